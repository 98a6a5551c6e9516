//! Real threads make transfers between accounts, while other threads close epochs, flush streams and take checkpoints.
//! The total of all accounts must not change, whenever the crash comes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use perdura_base::PartitionId;
use perdura_recovery::CheckpointProgress;
use perdura_steal::{Flushers, Place, Records, Route, Steal, StealOptions};

use crate::steal::harness::{Disks, STEAL_SCHEMES, options, rows};

const ACCOUNTS: u64 = 40;
const START: u64 = 1000;

fn amount(row: &[u8]) -> u64 {
    let mut low = [0; 8];
    let n = row.len().min(8);
    low[..n].copy_from_slice(&row[..n]);
    u64::from_le_bytes(low)
}

fn balance(steal: &Steal, place: Place) -> u64 {
    let mut row = Vec::new();
    assert!(steal.read(place, &mut row));
    amount(&row)
}

fn total(steal: &Steal) -> u64 {
    rows(steal).values().map(|row| amount(row)).sum()
}

/// Tries one transfer once. Returns whether it committed.
fn transfer(steal: &Steal, flushers: &Flushers, places: &[Place], rng: &mut fastrand::Rng) -> bool {
    let (a, b) = (rng.usize(..places.len()), rng.usize(..places.len()));
    let mut txn = steal.begin();
    // The two rows are locked before the read, so that no row can change after it.
    if a == b || !steal.lock(&mut txn, places[a]) || !steal.lock(&mut txn, places[b]) {
        steal.abort(txn);
        return false;
    }
    let (from, to) = (balance(steal, places[a]), balance(steal, places[b]));
    let sum = rng.u64(..=from);
    for (place, new) in [(places[a], from - sum), (places[b], to + sum)] {
        assert!(steal.update(&mut txn, place, &new.to_le_bytes()).unwrap());
    }
    if rng.u32(..5) == 0 {
        steal.abort(txn);
        return false;
    }
    let committed = steal.commit(txn);
    if rng.u32(..20) == 0 {
        flushers.wait(committed.epoch).unwrap();
        assert!(steal.is_acked(&committed));
    }
    true
}

#[test]
fn money_is_neither_made_nor_lost_by_threads_checkpoints_and_crashes() {
    for scheme in STEAL_SCHEMES {
        let disks = Disks::new(3, 2);
        let options = StealOptions {
            route: Route::Idlest,
            segment_bytes: 1 << 20,
            ..options(scheme, Records::Sparse)
        };
        let steal = Steal::create(disks.env.clone(), options.clone()).unwrap();
        steal
            .fill((0..ACCOUNTS).map(|_| START.to_le_bytes()))
            .unwrap();
        steal.checkpoint_now().unwrap();
        drop(steal);
        for life in 0..3 {
            let steal = Steal::open(disks.env.clone(), options.clone())
                .unwrap()
                .unwrap();
            assert_eq!(total(&steal), ACCOUNTS * START, "{scheme:?} life {life}");
            let places: Vec<Place> = (0..2)
                .flat_map(|id| steal.places(PartitionId(id)))
                .collect();
            let flushers = Flushers::start(steal.wal());
            let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let (steal, flushers, places) = (&steal, &flushers, &places);
                    let (over, done) = (&over, &done);
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(10 * life + thread);
                        while !over.load(Ordering::Relaxed) {
                            let committed = transfer(steal, flushers, places, &mut rng);
                            done.fetch_add(u64::from(committed), Ordering::Relaxed);
                        }
                    });
                }
                let begin = std::time::Instant::now();
                let enough =
                    || done.load(Ordering::Relaxed) > 100 && steal.checkpoint_stats().completed > 0;
                while begin.elapsed() < Duration::from_millis(120) || !enough() {
                    assert!(begin.elapsed() < Duration::from_secs(60), "nothing goes on");
                    match steal.checkpoint_step().unwrap() {
                        CheckpointProgress::Idle | CheckpointProgress::Done => {
                            steal.checkpoint_begin().unwrap();
                        }
                        CheckpointProgress::Working(_) => {}
                        CheckpointProgress::Waiting => {
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                }
                over.store(true, Ordering::Relaxed);
            });
        }
    }
}
