//! Measures how many transactions of the SMS workload one thread runs in a second, with flushes. Half of the
//! transactions insert two rows of 256 bytes, and half remove two rows. Run it with `cargo run --release -p
//! perdura-steal --example rate -- pl2p 400000`.

use std::sync::Arc;

use perdura_base::PartitionId;
use perdura_device::{Clock, Disk, MemDisk, SystemClock};
use perdura_recovery::Disks;
use perdura_steal::{Place, Steal, StealEnv, StealOptions};
use perdura_wal::Scheme;

const ROWS: usize = 1_000_000;

fn main() -> perdura_base::Result<()> {
    let mut args = std::env::args().skip(1);
    let scheme = args.next().and_then(|name| Scheme::from_name(&name));
    let scheme = scheme.unwrap_or(Scheme::Dl1p);
    let txns: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(400_000);
    let disk = || -> Arc<dyn Disk> { Arc::new(MemDisk::new()) };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let env = StealEnv {
        disks: Disks {
            data: disk(),
            images: vec![disk()],
            logs: vec![disk()],
        },
        clock: Arc::clone(&clock),
        seed: 1,
    };
    let steal = Steal::create(env, StealOptions::new(scheme, 256))?;
    let row = |number: usize| {
        let mut row = vec![0u8; 256];
        row[..8].copy_from_slice(&number.to_le_bytes());
        row[64..].fill(number.to_le_bytes()[0]);
        row
    };
    steal.fill((0..ROWS).map(row))?;
    let partitions = steal.heap().geometry().partitions;
    for id in 0..4 * partitions {
        let _durable_later = steal.grow(PartitionId(id % partitions))?;
    }
    steal.checkpoint_now()?;
    let mut places: Vec<Place> = (0..partitions)
        .flat_map(|id| steal.places(PartitionId(id)))
        .collect();
    let mut rng = fastrand::Rng::with_seed(1);
    let insert = row(7);
    let before = steal.wal().stats();
    let since = clock.mono_ns();
    for number in 0..txns {
        let mut txn = steal.begin();
        if number % 2 == 0 {
            for _ in 0..2 {
                let at = rng.usize(..places.len());
                let place = places.swap_remove(at);
                assert!(steal.delete(&mut txn, place)?);
            }
        } else {
            for _ in 0..2 {
                places.extend(steal.insert(&mut txn, &insert)?);
            }
        }
        let _acked_later = steal.commit(txn);
        if number % 4096 == 0 {
            steal.flush_all()?;
        }
    }
    steal.flush_all()?;
    let seconds = std::time::Duration::from_nanos(clock.mono_ns() - since).as_secs_f64();
    let bytes = steal.wal().stats().log_bytes - before.log_bytes;
    let of = |n: u64, per: usize| n / perdura_base::num::to_u64(per);
    println!(
        "{}: {txns} transactions in {seconds:.3} s, {:.0} ns each, {} log bytes each",
        scheme.name(),
        seconds * 1e9 / f64::from(u32::try_from(txns).unwrap_or(u32::MAX)),
        of(bytes, txns),
    );
    Ok(())
}
