//! The redo of one operation, by its key and by the page number in the log.

use super::log::TestLog;
use perdura_base::{Gsn, Pid, TableId};
use perdura_device::{Access, Disk, MemDisk};
use perdura_tree::contract::{Answer, Operation};
use perdura_tree::dirty_pages::DirtyPages;
use perdura_tree::file::{PageFile, Shape};
use perdura_tree::monitor::{Limits, Monitor, Tells};
use perdura_tree::redo::Redone;
use perdura_tree::tree::Tree;

const TABLE: TableId = TableId(1);

/// Makes a table with an inner page as root, and leaves below the root.
fn tall() -> (Tree, TestLog) {
    let disk = MemDisk::new();
    let shape = Shape {
        page_bytes: 512,
        database: *b"database",
    };
    disk.make_dir("tree").expect("a directory");
    Tree::make(&disk, "tree", shape).expect("a tree");
    let file = PageFile::open(&disk, "tree", shape, Access::Buffered).expect("files");
    let mut monitor = Monitor::new(Limits::default(), 0, Tells::Deltas);
    monitor.end_restart();
    let tree = Tree::new(file, shape, 64, monitor);
    let log = TestLog::default();
    assert_eq!(tree.find_tables().expect("no tables"), Answer::Done(()));
    assert_eq!(
        tree.make_table(TABLE, &log).expect("a table"),
        Answer::Done(())
    );
    for n in 0u8..40 {
        let done = tree.apply(TABLE, &[n], Some(&[n; 60]), &log);
        assert!(matches!(done, Ok(Answer::Done(_))), "{done:?}");
    }
    (tree, log)
}

fn inner_page(tree: &Tree) -> Pid {
    let mut pids = (1..).map(Pid);
    let is_inner = |pid: &Pid| {
        let pinned = tree.pool().pin(*pid).expect("a page").expect("a frame");
        pinned.read().node().level() > 0
    };
    pids.find(is_inner).expect("a root")
}

/// Found by the simulator: a leaf was merged away, freed, and used again as an inner page of its table. The key of a
/// row that the leaf once had lay between the inner page's fences. So SQL1 and ARIES took the page for a leaf without
/// room, and the restart failed.
#[test]
fn a_page_that_has_become_an_inner_one_has_lost_its_rows_to_others() {
    let (tree, _log) = tall();
    let operation = Operation {
        table: TABLE,
        key: &[7],
        before: None,
        after: Some(&[1; 60]),
        pid: inner_page(&tree),
    };
    let redone = tree.redo_by_page(Gsn(1000), &operation, &mut DirtyPages::default());
    assert_eq!(redone.expect("a page"), Answer::Done(Redone::Moved));
}

#[test]
fn a_row_is_redone_where_its_page_lacks_it_and_nowhere_else() {
    let (tree, log) = tall();
    let last = log.entries().last().expect("entries").0;
    let at = tree.leaf_of(TABLE, &[7]).expect("a table");
    let Answer::Done(pid) = at else {
        panic!("{at:?}");
    };
    let newer = [9; 60];
    let operation = Operation {
        table: TABLE,
        key: &[7],
        before: None,
        after: Some(&newer),
        pid,
    };
    let had = tree.redo_by_key(Gsn(1), &operation, None);
    assert_eq!(had.expect("a page"), Answer::Done(Redone::Had));
    let next = Gsn(last.0 + 1);
    let applied = tree.redo_by_page(next, &operation, &mut DirtyPages::default());
    assert_eq!(applied.expect("a page"), Answer::Done(Redone::Applied));
    let had = tree.redo_by_key(next, &operation, None);
    assert_eq!(had.expect("a page"), Answer::Done(Redone::Had));
    let read = tree.read(TABLE, &[7]).expect("a table");
    assert_eq!(read, Answer::Done(Some(newer.to_vec())));
    let elsewhere = Operation {
        table: TableId(2),
        ..operation
    };
    let moved = tree.redo_by_page(next, &elsewhere, &mut DirtyPages::default());
    assert_eq!(moved.expect("a page"), Answer::Done(Redone::Moved));
    assert!(
        tree.redo_by_key(next, &elsewhere, None).is_err(),
        "no such table"
    );
}
