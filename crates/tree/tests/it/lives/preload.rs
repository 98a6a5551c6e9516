//! The preload of inner pages. Any number of threads must read each inner page exactly once, before redo begins.

use super::log::TestLog;
use super::restart::insist;
use crate::lives::{new_tree, shape};
use perdura_base::{Gsn, TableId};
use perdura_device::{Access, SimDisk};
use perdura_tree::file::PageFile;
use perdura_tree::monitor::{Limits, Monitor, Tells};
use perdura_tree::read_ahead::Step;
use perdura_tree::tree::Tree;
use std::sync::Arc;

const TABLES: [TableId; 3] = [TableId(1), TableId(2), TableId(3)];
const ROWS: u32 = 4000;

/// Makes a tree with three tables: one of several levels, one of a single leaf, and an empty one.
fn tree_on_disk() -> Arc<SimDisk> {
    let (disk, tree) = new_tree(1, shape(512), 200);
    let log = TestLog::default();
    for table in TABLES {
        insist(&tree, Gsn(0), || tree.make_table(table, &log)).expect("a table");
    }
    for key in 0..ROWS + 1 {
        log.flush(log.unstable());
        let table = TABLES[usize::from(key == ROWS)];
        let row = (table, &key.to_be_bytes()[..]);
        insist(&tree, log.eosl(), || {
            tree.apply(row.0, row.1, Some(&[7; 60]), &log)
        })
        .expect("a row");
    }
    log.flush(log.unstable());
    while tree.pool().monitor().lock().dirty_count() > 0 {
        tree.pool().write_step(log.eosl()).expect("a step");
    }
    disk
}

fn open(disk: &SimDisk, frames: usize) -> Tree {
    let file = PageFile::open(disk, "tree", shape(512), Access::Buffered).expect("files");
    let tree = Tree::new(
        file,
        shape(512),
        frames,
        Monitor::new(Limits::default(), 0, Tells::Deltas),
    );
    insist(&tree, Gsn(0), || tree.find_tables()).expect("tables");
    tree
}

fn read_all(tree: &Tree) {
    for key in (0..ROWS).step_by(3) {
        let read = insist(tree, Gsn(0), || tree.read(TABLES[0], &key.to_be_bytes()));
        assert!(read.expect("a read").is_some(), "row {key}");
    }
}

#[test]
fn after_it_no_search_waits_for_a_page_that_leads_to_others() {
    let disk = tree_on_disk();
    let on_demand = open(&disk, 400);
    read_all(&on_demand);
    let all = on_demand.pool().counts().index_fetches;
    assert!(all > 20, "{all}");
    for readers in [1, 4] {
        let tree = open(&disk, 400);
        let preload = tree.preload_index();
        std::thread::scope(|threads| {
            for _ in 0..readers {
                threads.spawn(|| preload.work());
            }
        });
        assert_eq!(preload.step(), Step::Done);
        let read = tree.pool().counts();
        assert_eq!(read.index_fetches, all);
        // Two of the three roots are leaves, and the preload reads them. No page is left in the read-ahead window.
        assert_eq!((read.data_fetches, read.index_stalls), (2, 1), "{read:?}");
        assert!(read.ahead_reads < read.ahead_pages, "{read:?}");
        assert_eq!(tree.pool().unused_ahead(), 0);
        read_all(&tree);
        let read = tree.pool().counts();
        assert_eq!((read.index_fetches, read.index_stalls), (all, 1));
    }
}

#[test]
fn it_takes_half_of_the_pool_and_a_page_that_is_damaged_is_left_to_the_search() {
    let disk = tree_on_disk();
    for frames in [3, 4, 10, 16, 30] {
        let tree = open(&disk, frames);
        let preload = tree.preload_index();
        while preload.step() != Step::Done {}
        let pages = tree.pool().counts().ahead_pages;
        let most = u64::try_from(frames).expect("a count") / 2;
        assert!(pages <= most.next_multiple_of(8), "{pages} of {frames}");
        read_all(&tree);
    }
    let tree = open(&disk, 400);
    let preload = tree.preload_index();
    assert_eq!(preload.step(), Step::Read, "roots are whole");
    let bytes = disk.read_all("tree/pages").expect("pages").len() / 512;
    for pid in 0..bytes {
        disk.flip(
            "tree/pages",
            u64::try_from(pid).expect("a number") * 512 + 80,
            1,
        );
    }
    while preload.step() != Step::Done {}
    assert_eq!(tree.pool().unused_ahead(), 0);
    let error = tree.read(TABLES[0], b"").map(|_| ()).expect_err("damage");
    assert!(error.to_string().contains("in page"), "{error}");
}
