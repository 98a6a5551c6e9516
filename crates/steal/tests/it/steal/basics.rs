//! Basic behaviour, tested one feature at a time.

use std::sync::Arc;

use perdura_base::PartitionId;
use perdura_steal::{Records, Route, Steal, StealOptions};
use perdura_wal::Scheme;

use crate::steal::harness::{
    Disks, History, STEAL_SCHEMES, begin, commit, insert, options, row, rows, update,
};

fn fresh(scheme: Scheme, records: Records) -> (Disks, Steal) {
    let disks = Disks::new(2, 2);
    let steal = Steal::create(disks.env.clone(), options(scheme, records)).unwrap();
    for partition in 0..2 {
        let _durable_later = steal.grow(PartitionId(partition)).unwrap();
    }
    (disks, steal)
}

#[test]
fn committed_rows_come_back_and_rolled_back_ones_do_not() {
    for scheme in STEAL_SCHEMES {
        for records in [Records::Full, Records::Sparse] {
            let (disks, steal) = fresh(scheme, records);
            let mut history = History::default();
            let mut open = begin(&steal);
            let a = insert(&steal, &mut open, row(1)).unwrap();
            let b = insert(&steal, &mut open, row(2)).unwrap();
            let committed = commit(&steal, &mut history, open);
            assert!(!steal.is_acked(&committed));
            let mut lost = begin(&steal);
            assert!(update(&steal, &mut lost, a, row(3)));
            let mut other = begin(&steal);
            assert!(!update(&steal, &mut other, a, row(4)), "somebody has it");
            steal.abort(other.txn);
            assert!(steal.delete(&mut lost.txn, b).unwrap());
            assert!(!steal.delete(&mut lost.txn, b).unwrap(), "it is free");
            steal.abort(lost.txn);
            assert_eq!(rows(&steal), history.rows(committed.epoch));
            let digest = steal.digest();
            steal.flush_all().unwrap();
            assert!(steal.is_acked(&committed));
            drop(steal);
            let options = options(scheme, records);
            let steal = Steal::open(disks.env.clone(), options).unwrap().unwrap();
            assert_eq!(rows(&steal), history.rows(committed.epoch));
            assert_eq!(steal.digest(), digest);
        }
    }
}

#[test]
fn a_slot_that_a_transaction_freed_is_not_handed_out_before_it_commits() {
    let (_disks, steal) = fresh(Scheme::Dl1p, Records::Full);
    let mut fill = begin(&steal);
    let mut places = Vec::new();
    while let Some(place) = insert(&steal, &mut fill, row(1)) {
        places.push(place);
    }
    let _all = steal.commit(fill.txn);
    let mut deleter = begin(&steal);
    assert!(steal.delete(&mut deleter.txn, places[3]).unwrap());
    let mut other = begin(&steal);
    assert_eq!(insert(&steal, &mut other, row(2)), None);
    let _freed = steal.commit(deleter.txn);
    assert_eq!(insert(&steal, &mut other, row(2)), Some(places[3]));
    steal.abort(other.txn);
    assert_eq!(steal.free_slots(), 1);
}

#[test]
fn all_records_of_a_transaction_stay_in_the_stream_it_was_given_at_begin() {
    let disks = Disks::new(4, 1);
    let options = StealOptions {
        route: Route::Idlest,
        ..options(Scheme::Dl1p, Records::Full)
    };
    let steal = Steal::create(disks.env.clone(), options).unwrap();
    let _page = steal.grow(PartitionId(0)).unwrap();
    steal.flush_all().unwrap();
    // Unwritten blocks pile up in a transaction's stream, so the next transactions are routed to other streams.
    let mut streams = Vec::new();
    for number in 0..8 {
        let mut open = begin(&steal);
        let stream = open.txn.stream();
        let place = insert(&steal, &mut open, row(number)).unwrap();
        for i in 0..8 {
            assert!(update(&steal, &mut open, place, row(100 * number + i)));
            assert_eq!(open.txn.stream(), stream);
        }
        let committed = steal.commit(open.txn);
        assert_eq!(committed.stream, stream);
        streams.push(stream.0);
    }
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams, [0, 1, 2, 3], "the idlest is used");
}

#[test]
fn the_initial_load_is_there_after_its_checkpoint() {
    let disks = Disks::new(1, 3);
    let options = options(Scheme::Dl1p, Records::Full);
    let steal = Steal::create(disks.env.clone(), options.clone()).unwrap();
    assert_eq!(steal.fill((0..100).map(row)).unwrap(), 100);
    steal.checkpoint_now().unwrap();
    let (before, digest) = (rows(&steal), steal.digest());
    assert_eq!(before.len(), 100);
    drop(steal);
    let steal = Steal::open(disks.env, options).unwrap().unwrap();
    assert_eq!(rows(&steal), before);
    assert_eq!(steal.digest(), digest);
}

#[test]
fn the_product_refuses_a_database_of_interleaved_transactions_and_the_other_way_round() {
    use perdura::{Core, CoreOptions, Env};
    use perdura_recovery::Progress;

    let core = |disks: &Disks| {
        let env = Env {
            disks: disks.env.disks.clone(),
            clock: Arc::clone(&disks.env.clock),
            seed: 1,
            nodes: None,
            accept_loss: false,
        };
        let options = CoreOptions {
            partitions: 2,
            ..CoreOptions::default()
        };
        Core::open(env, options, Arc::new(Progress::default())).map(drop)
    };
    let (disks, steal) = fresh(Scheme::Dl2p, Records::Full);
    drop(steal);
    let message = core(&disks).unwrap_err().to_string();
    assert!(message.contains("dl2p"), "{message}");
    assert!(message.contains("`perdura restart`"), "{message}");

    let disks = Disks::new(1, 1);
    core(&disks).unwrap();
    let options = options(Scheme::Dl1p, Records::Full);
    let message = Steal::open(disks.env.clone(), options.clone()).map(drop);
    let message = message.unwrap_err().to_string();
    assert!(message.contains("differential"), "{message}");
    let message = Steal::create(disks.env.clone(), options).map(drop);
    let message = message.unwrap_err().to_string();
    assert!(message.contains("already"), "{message}");
}
