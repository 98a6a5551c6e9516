//! One crash, every way back: methods, levels, threads and orders give one digest, and one seed
//! gives one digest whatever the scheme.

use std::sync::Arc;

use perdura_base::PartitionId;
use perdura_device::SystemClock;
use perdura_recovery::restart::{Catalog, RestartOptions, restart};
use perdura_recovery::{Level, METHODS, Method, Progress, Schedule};
use perdura_steal::{Records, Steal, StealOptions};
use perdura_store::MemoryAccount;
use perdura_wal::Scheme;

use crate::harness::{Disks, History, Open, STEAL_SCHEMES, begin, commit, insert, options, row};

/// A history with two checkpoints, the second left in its window at times, aborts before, within
/// and after windows, and transactions open at the crash. The same for every scheme.
fn history(disks: &Disks, options: StealOptions, seed: u64) -> String {
    let mut rng = fastrand::Rng::with_seed(seed);
    let steal = Steal::create(disks.env.clone(), options).unwrap();
    for partition in 0..2 {
        for _ in 0..6 {
            let _durable_with_the_first_flush = steal.grow(PartitionId(partition)).unwrap();
        }
    }
    let mut past = History::default();
    let mut open: Vec<Open> = Vec::new();
    let mut places = Vec::new();
    for number in 0..1500u64 {
        if open.len() < 6 {
            open.push(begin(&steal));
        }
        let at = rng.usize(..open.len());
        let fresh = row(number);
        match rng.u32(..10) {
            0..3 => places.extend(insert(&steal, &mut open[at], fresh)),
            3..6 if !places.is_empty() => {
                let place = places[rng.usize(..places.len())];
                steal.update(&mut open[at].txn, place, &fresh).unwrap();
            }
            6 if !places.is_empty() => {
                let place = places[rng.usize(..places.len())];
                steal.delete(&mut open[at].txn, place).unwrap();
            }
            7 | 8 => drop(commit(&steal, &mut past, open.swap_remove(at))),
            _ => steal.abort(open.swap_remove(at).txn),
        }
        if number % 700 == 300 {
            steal.checkpoint_begin().unwrap();
        }
        steal.checkpoint_step().unwrap();
        if number % 50 == 0 {
            steal.flush_all().unwrap();
        }
    }
    steal.flush_all().unwrap();
    // What the open transactions changed so far is in the log and must not be in the answer.
    for open in open {
        steal.abort(open.txn);
    }
    steal.digest()
}

fn back(disks: &Disks, method: &'static Method, schedule: Schedule) -> Result<String, String> {
    let restarted = restart(&RestartOptions {
        data: Arc::clone(&disks.env.data),
        images: disks.env.images.clone(),
        logs: disks.env.logs.clone(),
        clock: Arc::new(SystemClock::new()),
        schedule,
        method,
        dry_run: true,
        memory: Arc::new(MemoryAccount::new(u64::MAX)),
        catalog: &|_| Ok(Catalog::new()),
        progress: Arc::new(Progress::default()),
    });
    let restarted = restarted.map_err(|error| error.to_string())?;
    Ok(perdura_steal::digest(&restarted.unwrap().heap))
}

#[test]
fn every_method_level_thread_count_and_order_gives_one_digest() {
    for seed in 0..6 {
        let mut of_seed = None;
        for scheme in STEAL_SCHEMES {
            for records in [Records::Full, Records::Sparse] {
                let disks = Disks::new(3, 2);
                let digest = history(&disks, options(scheme, records), seed);
                let of_seed = of_seed.get_or_insert_with(|| digest.clone());
                assert_eq!(&digest, of_seed, "{scheme:?} {records:?}, seed {seed}");
                for method in METHODS.iter().filter(|m| m.schemes.contains(&scheme)) {
                    for level in Level::ALL {
                        if level > Method::highest_level(scheme) {
                            assert!(back(&disks, method, Schedule::inline(level, 0)).is_err());
                            continue;
                        }
                        for threads in [1, 2, 4] {
                            let found = back(&disks, method, Schedule::new(level, threads));
                            let what = format!("{} {level:?} {threads}, seed {seed}", method.name);
                            assert_eq!(found.as_ref(), Ok(&digest), "{what}");
                        }
                        for order in 0..4 {
                            let mut schedule = Schedule::inline(level, order);
                            schedule.pile_bytes = 8192;
                            let found = back(&disks, method, schedule);
                            assert_eq!(found.as_ref(), Ok(&digest), "{} {order}", method.name);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_method_is_refused_for_a_log_it_cannot_read() {
    let disks = Disks::new(1, 1);
    history(&disks, options(Scheme::Dl1p, Records::Full), 1);
    for (method, reason) in [
        ("dl2p", "reads logs of scheme dl2p"),
        ("pl2p", "reads logs of scheme pl2p"),
        ("differential", "this one's scheme is dl1p"),
    ] {
        let method = Method::by_name(method, Scheme::Dl1p).unwrap();
        let why = back(&disks, method, Schedule::inline(Level::Two, 0)).unwrap_err();
        assert!(why.contains(reason), "{why}");
    }
}
