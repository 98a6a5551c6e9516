//! The pages, records and rows that `verify` finds in a closed tree.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_base::{CkptEpoch, PartitionSet, StreamId};
use perdura_device::{MemDisk, OverlayDisk, SimDisk};
use perdura_recovery::component::Value;
use perdura_recovery::verify::{Findings, verify};
use perdura_recovery::{Disks, Level, Methods, RestartMode, RestartOptions, Schedule};
use perdura_steal::Keyed;
use perdura_wal::{FrameKind, Scheme};

use crate::keyed::support::{crash, env, insist, options, put};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns a tree with three rows: one in the pages, one only in the log, and one from an open transaction.
fn worked(disk: &Arc<SimDisk>) -> Keyed {
    let made = Keyed::create(env(disk, 1), options(Scheme::Logical), None);
    let keyed = made.expect("a new database");
    for key in [b"a", b"b"] {
        insist(&keyed, || keyed.checkpoint_now());
        let mut txn = keyed.txns().begin();
        put(&keyed, &mut txn, key, Some(b"1"));
        let _flushed_below = keyed.txns().commit(txn);
    }
    let mut lost = keyed.txns().begin();
    put(&keyed, &mut lost, b"c", Some(b"never committed"));
    keyed
}

/// Returns the findings of `verify` after a crash, and the rows that a restart in memory finds.
fn looked_at(disk: &Arc<SimDisk>, keyed: Keyed) -> (Findings, Rows) {
    keyed.flush_all().expect("no disk fails");
    drop(keyed);
    crash(disk, 1);
    let env = env(disk, 1);
    let overlay = OverlayDisk::new(Arc::clone(&env.disks.data), &MemDisk::new(), "");
    let disks = Disks {
        data: Arc::new(overlay.expect("a scratch file")),
        ..env.disks
    };
    let schedule = Schedule::inline(Level::One, 0);
    let options = RestartOptions {
        mode: RestartMode::Dry,
        ..RestartOptions::of_records(disks, env.clock, schedule, Methods::default())
    };
    let rows = RefCell::new(Rows::new());
    let verified = verify(&options, &|restarted| {
        restarted.data().contents(&mut |_, content| {
            if let Some(Value::Row(row)) = content.value {
                let key = content.key.into_owned();
                rows.borrow_mut().insert(key, row.to_vec());
            }
            Ok(())
        })?;
        Ok((0, String::new()))
    });
    let verified = verified.expect("files").expect("a database");
    (verified.found, rows.into_inner())
}

#[test]
fn a_restart_in_memory_lists_the_committed_rows_of_a_tree_and_no_others() {
    let disk = SimDisk::new(1);
    let (found, rows) = looked_at(&disk, worked(&disk));
    assert_eq!(found.refused, None);
    let committed = [b"a", b"b"].map(|key| (key.to_vec(), b"1".to_vec()));
    assert_eq!(rows, Rows::from(committed));
}

#[test]
fn the_pages_of_a_tree_are_counted_on_disk_and_as_a_restart_reaches_them() {
    let disk = SimDisk::new(2);
    let (found, _) = looked_at(&disk, worked(&disk));
    let tree = &found.trees["tree"];
    assert!(tree.whole > 0 && tree.torn == 0, "{} whole", tree.whole);
    assert!(tree.leaves > 0, "a restart reaches the row's page");
}

#[test]
fn operations_of_a_tree_are_counted_and_one_that_does_not_parse_is_named() {
    let disk = SimDisk::new(3);
    let (found, _) = looked_at(&disk, worked(&disk));
    assert_eq!(found.streams[0].records, 3, "one of each row");
    for kind in [FrameKind::Operations, FrameKind::Tree] {
        let disk = SimDisk::new(4);
        let keyed = worked(&disk);
        let none = PartitionSet::empty();
        let numbered = (&none, CkptEpoch(0));
        let _place = keyed
            .wal()
            .append_numbered(StreamId(0), (kind, 1), numbered, |_| vec![255]);
        let (found, _) = looked_at(&disk, keyed);
        let what = &found.problems[0].what;
        assert!(what.contains("bytes that do not parse"), "{what}");
    }
}
