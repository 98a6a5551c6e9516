//! Tests of damaged trees and unreadable log records, of a full disk, and of a small memory.

use std::sync::Arc;

use perdura_base::{CkptEpoch, Error, PartitionSet, StreamId, TxnId};
use perdura_device::{Access, Disk, FaultPlan, SimDisk};
use perdura_formats::operation::{Act, encode};
use perdura_recovery::Method;
use perdura_recovery::tree::writer::{TREE_STREAM, TreeWriter};
use perdura_steal::{Keyed, KeyedOptions};
use perdura_tree::check::check;
use perdura_wal::{FrameKind, Rung, Scheme};

use crate::keyed::support::{TABLE, crash, digest_of, env, insist, methods, open, options, put};

/// Returns, for each method of the logical scheme, the reason why it refuses to restart this disk. Leaves the disk
/// unchanged.
fn refusals(disk: &Arc<SimDisk>) -> Vec<(&'static str, String)> {
    let refusal = |method: &'static Method| {
        let options = KeyedOptions {
            method: method.name,
            ..options(Scheme::Logical)
        };
        let before = disk.snapshot();
        let why = Keyed::open(env(disk, 2), options).map(drop);
        disk.restore(&before);
        (method.name, why.expect_err("refused").to_string())
    };
    methods(Scheme::Logical).map(refusal).collect()
}

#[test]
fn a_record_of_the_tree_that_cannot_be_read_is_refused_with_its_block() {
    let disk = SimDisk::new(1);
    let made = Keyed::create(env(&disk, 2), options(Scheme::Logical), None);
    let keyed = made.expect("a new database");
    let mut txn = keyed.txns().begin();
    put(&keyed, &mut txn, b"a", Some(b"1"));
    let _flushed_below = keyed.txns().commit(txn);
    // The record is of a known kind, but its body ends too early.
    let none = PartitionSet::empty();
    let (at, gsn) = keyed.wal().append_numbered(
        TREE_STREAM,
        (FrameKind::Tree, 1),
        (&none, CkptEpoch(0)),
        |gsn| vec![1, u8::try_from(gsn.0).expect("few numbers")],
    );
    assert!(gsn.0 < 128, "a varint of one byte");
    keyed.flush_all().expect("no disk fails");
    drop(keyed);
    crash(&disk, 1);
    for (_, why) in refusals(&disk) {
        assert!(why.contains("a record of the tree"), "{why}");
        let block = format!("log stream 0 at byte {}", at.pos.0);
        assert!(why.contains(&block), "{why} is not of {block}");
    }
}

/// Below the end of the stable log, each sequence number must occur exactly once in all streams together. Redo alone
/// would not notice a missing operation.
#[test]
fn a_number_that_is_missing_or_there_twice_is_refused_by_every_method() {
    for (is_twice, told) in [(false, "but everything up to"), (true, "for a second time")] {
        let disk = SimDisk::new(1);
        let made = Keyed::create(env(&disk, 2), options(Scheme::Logical), None);
        let keyed = made.expect("a new database");
        let mut txn = keyed.txns().begin();
        put(&keyed, &mut txn, b"a", Some(b"1"));
        let (none, last) = (PartitionSet::empty(), keyed.wal().last_gsn());
        let other = StreamId(1 - txn.stream().0);
        if is_twice {
            let mut payload = Vec::new();
            encode(&mut payload, last, &[(TxnId(999), Act::Abort)]);
            let kind = FrameKind::Operations;
            keyed
                .wal()
                .append(other, kind, &payload, &none, CkptEpoch(0));
        } else {
            // A frame that does not belong to the tree uses up a number.
            let kind = (FrameKind::Beacon, 1);
            let (_, taken) =
                keyed
                    .wal()
                    .append_numbered(other, kind, (&none, CkptEpoch(0)), |_| Vec::new());
            assert!(taken > last);
        }
        put(&keyed, &mut txn, b"b", Some(b"1"));
        let _flushed_below = keyed.txns().commit(txn);
        keyed.flush_all().expect("no disk fails");
        drop(keyed);
        crash(&disk, 1);
        for (method, why) in refusals(&disk) {
            assert!(why.contains(told), "{method}: {why}");
        }
    }
}

/// The effects of operations before the redo start are only in the pages. An older copy of the pages would lose these
/// effects.
#[test]
fn pages_that_are_older_than_the_redo_start_are_refused_by_every_method() {
    for (scheme, seed) in [(Scheme::Logical, 1), (Scheme::Physiological, 2)] {
        let disk = SimDisk::new(seed);
        let made = Keyed::create(env(&disk, 1), options(scheme), None);
        let keyed = made.expect("a new database");
        let change = |value: &[u8]| {
            let mut txn = keyed.txns().begin();
            put(&keyed, &mut txn, b"a", Some(value));
            let _flushed_below = keyed.txns().commit(txn);
            insist(&keyed, || keyed.checkpoint_now());
        };
        change(b"1");
        let early = disk.read_all("tree/pages").expect("pages");
        change(b"2");
        drop(keyed);
        crash(&disk, seed);
        let late = disk.read_all("tree/pages").expect("pages");
        let file = disk.open("tree/pages", Access::Buffered).expect("a file");
        file.write_at(0, &early).expect("a write");
        file.sync().expect("a sync");
        for method in methods(scheme) {
            let mut options = options(scheme);
            options.method = method.name;
            let why = Keyed::open(env(&disk, 1), options).map(drop);
            let why = why.expect_err("refused").to_string();
            assert!(
                why.contains("tree/pages") && why.contains("an older copy"),
                "{why}"
            );
            assert_eq!(disk.read_all("tree/pages").expect("pages"), early);
        }
        file.write_at(0, &late).expect("a write");
        let keyed = open(&disk, 1, &options(scheme));
        let row = insist(&keyed, || keyed.txns().read(TABLE, b"a"));
        assert_eq!(row.as_deref(), Some(&b"2"[..]), "the newest copy is taken");
    }
}

/// A restart rebuilds a damaged page from the page's image in the log. If the page was written to disk after the image
/// was logged, the image lacks the changes in between. The restart's table of dirty pages omits these changes. In an
/// earlier version, deleted rows therefore came back (simulated crashes, seed 994620).
#[test]
fn a_page_that_rots_behind_its_image_is_refused_or_made_whole_by_every_method() {
    let disk = SimDisk::new(4);
    let made = Keyed::create(env(&disk, 1), options(Scheme::Logical), None);
    let keyed = made.expect("a new database");
    let write_all = || {
        keyed.flush_all().expect("no disk fails");
        while keyed.tree().pool().monitor().lock().dirty_count() > 0 {
            keyed.txns().write_step().expect("no disk fails");
        }
    };
    // The first pass splits pages; the records of splits have page images. The second pass changes the new pages. All
    // pages are written, and notes are cut.
    for value in [Some(&[1; 40][..]), None] {
        for part in 0..10u8 {
            let mut txn = keyed.txns().begin();
            for row in 0..12 {
                if value.is_some() || row % 2 == 0 {
                    put(&keyed, &mut txn, &[part, row], value);
                }
            }
            let _flushed_below = keyed.txns().commit(txn);
            write_all();
        }
    }
    let writer = TreeWriter::new(Arc::clone(keyed.wal()));
    let eosl = keyed.wal().eosl(Rung::Disk);
    keyed.tree().cut_notes_now(eosl, &writer);
    keyed.flush_all().expect("no disk fails");
    let rows = digest_of(&keyed);
    drop(keyed);
    crash(&disk, 4);
    let whole = disk.read_all("tree/pages").expect("pages");
    let before = disk.snapshot();
    let (mut refused, mut started) = (0, 0);
    for page in 0..whole.len() / 512 {
        for method in methods(Scheme::Logical) {
            let file = disk.open("tree/pages", Access::Buffered).expect("a file");
            let at = page * 512 + 100;
            let odd = [whole[at] ^ 4];
            file.write_at(u64::try_from(at).expect("a place"), &odd)
                .and_then(|()| file.sync())
                .expect("rot");
            let options = KeyedOptions {
                method: method.name,
                ..options(Scheme::Logical)
            };
            match Keyed::open(env(&disk, 1), options) {
                Ok(keyed) => {
                    let keyed = keyed.expect("a database");
                    match keyed.txns().contents().map(|found| found.hex()) {
                        Ok(found) => assert_eq!(found, rows, "page {page}, {}", method.name),
                        Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{error}"),
                    }
                    started += 1;
                }
                Err(error) => {
                    let is_named = error.to_string().contains("tree/pages");
                    assert!(is_named, "page {page}, {}: {error}", method.name);
                    refused += 1;
                }
            }
            disk.restore(&before);
        }
    }
    assert!(refused > 20 && started > 20, "{refused} and {started}");
}

#[test]
fn a_disk_without_room_for_another_page_refuses_the_write_and_takes_it_later() {
    for scheme in [Scheme::Logical, Scheme::Physiological] {
        let disk = SimDisk::new(2);
        let made = Keyed::create(env(&disk, 1), options(scheme), None);
        let keyed = made.expect("a new database");
        // The log already has all segment files that this test needs, so only the tree's file must grow.
        let mut first = keyed.txns().begin();
        put(&keyed, &mut first, b"z", Some(b"z"));
        let _flushed_below = keyed.txns().commit(first);
        keyed.flush_all().expect("no disk fails");
        disk.set_plan(FaultPlan {
            enospc_at: Some((1, u64::MAX)),
            ..FaultPlan::default()
        });
        let mut txn = keyed.txns().begin();
        let mut put_until = 0u32;
        let refused = loop {
            let key = put_until.to_be_bytes();
            match keyed.txns().write(&mut txn, TABLE, &key, Some(&[7; 60])) {
                Ok(_) => put_until += 1,
                Err(Error::LogFull(_)) if disk.faults().is_empty() => {
                    keyed.flush_all().expect("the log has its file");
                }
                Err(error) => break error,
            }
        };
        assert!(put_until > 3, "a page has room for some");
        let why = refused.to_string();
        assert!(why.contains("tree/pages"), "{why}");
        disk.set_plan(FaultPlan::default());
        // The refused call has changed nothing, and now there is room again.
        for number in put_until..put_until + 40 {
            put(&keyed, &mut txn, &number.to_be_bytes(), Some(&[7; 60]));
        }
        let _flushed_below = keyed.txns().commit(txn);
        insist(&keyed, || keyed.flush_all());
        let eosl = keyed.wal().eosl(Rung::Disk);
        let checked = check(keyed.tree(), eosl).expect("no disk fails");
        assert_eq!(checked.faults, []);
        assert_eq!(checked.rows, u64::from(put_until) + 41);
        let digest = digest_of(&keyed);
        drop(keyed);
        crash(&disk, 3);
        assert_eq!(digest_of(&open(&disk, 1, &options(scheme))), digest);
    }
}

#[test]
fn eight_pages_are_enough_for_a_tree_of_many_levels() {
    for scheme in [Scheme::Logical, Scheme::Physiological] {
        let disk = SimDisk::new(4);
        let mut few = options(scheme);
        few.frames = 8;
        let made = Keyed::create(env(&disk, 1), few.clone(), None);
        let keyed = made.expect("a new database");
        // Keys of the greatest length, put in an order that splits pages in the middle.
        for number in 0..3000u64 {
            let mut key = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
                .to_be_bytes()
                .to_vec();
            key.resize(32, b'x');
            let mut txn = keyed.txns().begin();
            put(&keyed, &mut txn, &key, Some(&[1; 60]));
            let _flushed_below = keyed.txns().commit(txn);
        }
        keyed.flush_all().expect("no disk fails");
        let checked = check(keyed.tree(), keyed.wal().eosl(Rung::Disk)).expect("no disk fails");
        assert_eq!((checked.rows, &checked.faults[..]), (3000, &[][..]));
        assert!(checked.inner > 20, "a tall tree: {checked:?}");
        let digest = digest_of(&keyed);
        drop(keyed);
        crash(&disk, 5);
        for method in methods(scheme) {
            few.method = method.name;
            let before = disk.snapshot();
            assert_eq!(digest_of(&open(&disk, 1, &few)), digest, "{}", method.name);
            disk.restore(&before);
        }
    }
}
