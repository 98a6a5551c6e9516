//! A window's begin marks in all streams must mark one instant in the order of physical records.

use std::sync::atomic::{AtomicBool, Ordering};

use perdura_base::PartitionId;
use perdura_recovery::CheckpointProgress;
use perdura_steal::{Place, Route, Steal, StealOptions};
use perdura_wal::Scheme;

use crate::steal::harness::{Disks, rows};
use crate::steal::walk::seeds;

const ROWS: u64 = 4000;

fn filled(steal: &Steal) -> Vec<Place> {
    for _ in 0..20 {
        for partition in 0..2 {
            let _durable_later = steal.grow(PartitionId(partition)).unwrap();
        }
    }
    let mut txn = steal.begin();
    let mut insert = |number: u64| steal.insert(&mut txn, &number.to_le_bytes());
    let places = (0..ROWS).map(|number| insert(number).unwrap().unwrap());
    let places = places.collect();
    let _durable_later = steal.commit(txn);
    steal.flush_all().unwrap();
    places
}

/// Overwrites the rows one after another. Each row is overwritten by four successive transactions, which are in
/// different streams.
fn overwrite(steal: &Steal, places: &[Place], go: &AtomicBool, stop: &AtomicBool) {
    for number in 0..30 * ROWS {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let at = usize::try_from(number / 4).unwrap() % places.len();
        let mut txn = steal.begin();
        let row = (1_000_000 + number).to_le_bytes();
        assert!(steal.update(&mut txn, places[at], &row).unwrap());
        let _flushed_at_the_end = steal.commit(txn);
        if number == 50 {
            go.store(true, Ordering::Relaxed);
        }
    }
}

/// Found in review: the begin marks were appended one by one. A transaction changed a slot after its stream's mark and
/// committed. The next transaction changed the slot in another stream, before the mark of that stream was appended.
/// Redo played the first change and skipped the second, so an acknowledged commit was lost.
#[test]
fn a_slot_changed_in_two_streams_while_a_window_begins_keeps_its_last_row() {
    for _ in 0..seeds(8) {
        let disks = Disks::new(16, 1);
        let options = StealOptions {
            partitions: 2,
            chunk_pages: 64,
            segment_bytes: 1 << 20,
            block_bytes_max: 64 << 10,
            queue_bytes_max: 1 << 40,
            route: Route::Scattered,
            ..StealOptions::new(Scheme::Pl2p, 64)
        };
        let steal = Steal::create(disks.env.clone(), options.clone()).unwrap();
        let places = filled(&steal);
        let (go, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| overwrite(&steal, &places, &go, &stop));
            while !go.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            steal.checkpoint_begin().unwrap();
            stop.store(true, Ordering::Relaxed);
        });
        while steal.checkpoint_is_running() {
            if steal.checkpoint_step().unwrap() == CheckpointProgress::Waiting {
                steal.flush_all().unwrap();
            }
        }
        steal.flush_all().unwrap();
        let before = rows(&steal);
        drop(steal);
        let steal = Steal::open(disks.env, options).unwrap().unwrap();
        assert!(rows(&steal) == before, "an acknowledged commit was lost");
    }
}
