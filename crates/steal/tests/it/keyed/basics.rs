//! The behaviour that a program sees while nothing fails.

use std::sync::Arc;

use perdura_base::TableId;
use perdura_device::SimDisk;
use perdura_steal::{Keyed, Write};
use perdura_wal::Scheme;

use crate::keyed::support::{TABLE, digest_of, env, insist, open, options, put};

fn new(seed: u64) -> (Arc<SimDisk>, Keyed) {
    let disk = SimDisk::new(seed);
    let keyed = Keyed::create(env(&disk, 2), options(Scheme::Logical), None);
    (disk, keyed.expect("a new database"))
}

#[test]
fn a_row_is_written_read_and_removed_and_belongs_to_one_transaction() {
    let (_disk, keyed) = new(1);
    let mut one = keyed.txns().begin();
    let mut other = keyed.txns().begin();
    assert_eq!(put(&keyed, &mut one, b"a", Some(b"1")), None);
    assert_eq!(put(&keyed, &mut one, b"a", Some(b"2")), Some(b"1".to_vec()));
    let taken = insist(&keyed, || keyed.txns().write(&mut other, TABLE, b"a", None));
    assert_eq!(taken, Write::Taken);
    assert_eq!(
        keyed.txns().read(TABLE, b"a").expect("a table"),
        Some(b"2".to_vec())
    );
    let committed = keyed.txns().commit(one);
    assert!(!keyed.is_acked(&committed));
    keyed.flush_all().expect("no disk fails");
    assert!(keyed.is_acked(&committed));
    assert_eq!(put(&keyed, &mut other, b"a", None), Some(b"2".to_vec()));
    insist(&keyed, || keyed.txns().abort_step(&mut other).map(drop));
    assert_eq!(
        keyed.txns().read(TABLE, b"a").expect("a table"),
        Some(b"2".to_vec())
    );
    while !insist(&keyed, || keyed.txns().abort_step(&mut other)) {}
    let stats = keyed.txns().stats();
    assert_eq!(
        (
            stats.commits,
            stats.aborts,
            stats.updates,
            stats.compensations
        ),
        (1, 1, 3, 1)
    );
    assert!(
        keyed.txns().read(TableId(9), b"a").is_err(),
        "there is no such table"
    );
}

#[test]
fn a_write_that_changes_nothing_is_not_logged() {
    let (_disk, keyed) = new(2);
    let mut txn = keyed.txns().begin();
    put(&keyed, &mut txn, b"a", Some(b"1"));
    let last = keyed.wal().last_gsn();
    assert_eq!(put(&keyed, &mut txn, b"a", Some(b"1")), Some(b"1".to_vec()));
    assert_eq!(put(&keyed, &mut txn, b"b", None), None);
    assert_eq!(keyed.wal().last_gsn(), last);
    let _unacked = keyed.txns().commit(txn);
}

#[test]
fn a_database_is_made_with_rows_and_opened_again() {
    let disk = SimDisk::new(3);
    let rows = |n: u32| (n.to_be_bytes().to_vec(), vec![7; 20]);
    let mut rows = (0..5_000).map(rows);
    let keyed = Keyed::create(env(&disk, 1), options(Scheme::Logical), Some(&mut rows));
    let keyed = keyed.expect("a new database");
    let digest = digest_of(&keyed);
    let mut txn = keyed.txns().begin();
    for n in (0..5_000u32).step_by(7) {
        put(&keyed, &mut txn, &n.to_be_bytes(), Some(&[8; 30]));
    }
    assert_ne!(digest_of(&keyed), digest);
    insist(&keyed, || keyed.checkpoint_now());
    while !insist(&keyed, || keyed.txns().abort_step(&mut txn)) {}
    assert_eq!(digest_of(&keyed), digest);
    keyed.flush_all().expect("no disk fails");
    drop(keyed);
    let again = open(&disk, 1, &options(Scheme::Logical));
    assert_eq!(digest_of(&again), digest);
    assert!(!again.report().created);
}
