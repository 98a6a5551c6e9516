//! Checkpoints of a tree: cancelled, or taken while a transaction is open.

use perdura_device::SimDisk;
use perdura_steal::{Keyed, KeyedOptions};
use perdura_wal::Scheme;

use crate::keyed::support::{TABLE, crash, env, insist, open, options, put};

fn commit(keyed: &Keyed, key: &[u8], value: &[u8]) {
    let mut txn = keyed.txns().begin();
    put(keyed, &mut txn, key, Some(value));
    let _flushed_below = keyed.txns().commit(txn);
}

/// In an earlier version, a cancelled checkpoint left its redo start behind. The next checkpoint then used this redo
/// start, which lies before the next checkpoint's begin marks.
#[test]
fn a_checkpoint_that_is_given_up_leaves_its_redo_start_to_no_other() {
    let disk = SimDisk::new(1);
    let options = KeyedOptions {
        frames: 128,
        ..options(Scheme::Logical)
    };
    let made = Keyed::create(env(&disk, 1), options.clone(), None);
    let keyed = made.expect("a new database");
    let keys = || (0..=u8::MAX).map(|n| [n]);
    keys().for_each(|key| commit(&keyed, &key, &[1; 40]));
    insist(&keyed, || keyed.checkpoint_now());
    keyed.checkpoint_begin().expect("no disk fails");
    while !keyed.tree().pool().monitor().lock().is_in_checkpoint() {
        let _worked = keyed.checkpoint_step().expect("no disk fails");
    }
    assert!(keyed.checkpoint_cancel());
    // This changes more pages than a batch has. The cancelled checkpoint did not have to write these pages.
    keys().for_each(|key| commit(&keyed, &key, &[2; 40]));
    keyed.flush_all().expect("no disk fails");
    insist(&keyed, || keyed.checkpoint_now());
    drop(keyed);
    crash(&disk, 1);
    let keyed = open(&disk, 1, &options);
    for key in keys() {
        let row = insist(&keyed, || keyed.txns().read(TABLE, &key));
        assert_eq!(row.as_deref(), Some(&[2; 40][..]), "row {key:?}");
    }
}

#[test]
fn the_log_of_an_open_transaction_is_kept_over_checkpoints_and_it_is_undone() {
    let disk = SimDisk::new(2);
    let made = Keyed::create(env(&disk, 1), options(Scheme::Logical), None);
    let keyed = made.expect("a new database");
    commit(&keyed, b"a", b"1");
    let mut lost = keyed.txns().begin();
    put(&keyed, &mut lost, b"a", Some(b"never committed"));
    for _ in 0..3 {
        commit(&keyed, b"b", b"1");
        insist(&keyed, || keyed.checkpoint_now());
    }
    drop(keyed);
    crash(&disk, 2);
    let keyed = open(&disk, 1, &options(Scheme::Logical));
    let row = insist(&keyed, || keyed.txns().read(TABLE, b"a"));
    assert_eq!(row.as_deref(), Some(&b"1"[..]));
}
