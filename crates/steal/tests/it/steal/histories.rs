//! Random histories: interleaved transactions, checkpoints in steps, flushes of single streams, crashes, restarts.
//! After each restart the database must hold exactly the writes of the transactions up to the durable epoch. All
//! acknowledged transactions must be among them.

use perdura_steal::{Records, Steal};
use perdura_wal::Scheme;

use crate::steal::harness::{Disks, STEAL_SCHEMES, options};
use crate::steal::walk::{Walk, seeds};

/// Runs one history. The error describes the first wrong result.
fn run(seed: u64, scheme: Scheme, records: Records) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let disks = Disks::new(rng.usize(1..4), rng.usize(1..3));
    let options = options(scheme, records);
    let mut walk = Walk::default();
    let mut steal = Steal::create(disks.env.clone(), options.clone()).unwrap();
    for life in 0..4 {
        for _ in 0..rng.usize(1..150) {
            if rng.u32(..60) < 47 {
                walk.step(&mut rng, &steal, 4);
            } else if !steal.checkpoint_is_running() {
                steal.checkpoint_begin().unwrap();
            } else if rng.u32(..40) == 0 {
                steal.checkpoint_cancel();
            } else {
                steal.checkpoint_step().unwrap();
            }
        }
        let acked = walk.end_of_life(&steal);
        drop(steal);
        let back = Steal::open(disks.env.clone(), options.clone());
        let back = back.map_err(|error| format!("life {life}: {error}"))?;
        steal = back.expect("there is a database");
        let checked = walk.check(&steal, &acked);
        checked.map_err(|wrong| format!("life {life}: {wrong}"))?;
    }
    Ok(())
}

#[test]
fn random_histories_end_in_what_was_committed() {
    for scheme in STEAL_SCHEMES {
        for records in [Records::Full, Records::Sparse] {
            for seed in 0..seeds(60) {
                let end = run(seed, scheme, records);
                assert_eq!(end, Ok(()), "seed {seed} {scheme:?} {records:?}");
            }
        }
    }
}
