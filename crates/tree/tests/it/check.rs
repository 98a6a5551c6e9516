//! The check of trees with whole pages but wrong links. It must report each wrongly linked page and the lost keys.

use perdura_base::{Gsn, Pid, TableId};
use perdura_device::{Access, AlignedBuf, Disk, MemDisk};
use perdura_page::tree_page::{Kind, Node, NodeMut};
use perdura_tree::bulk::fill;
use perdura_tree::check::{Checked, check};
use perdura_tree::contract::Answer;
use perdura_tree::file::{PageFile, Shape};
use perdura_tree::monitor::{Limits, Monitor, Tells};
use perdura_tree::scrub::scrub;
use perdura_tree::tree::Tree;

const SHAPE: Shape = Shape {
    page_bytes: 512,
    database: [7; 8],
};
const TABLE: TableId = TableId(3);
const ROWS: u64 = 2000;

fn open(disk: &MemDisk) -> PageFile {
    PageFile::open(disk, "t", SHAPE, Access::Buffered).expect("files")
}

fn made() -> MemDisk {
    let disk = MemDisk::new();
    disk.make_dir("t").expect("a directory");
    Tree::make(&disk, "t", SHAPE).expect("a tree");
    let mut rows = (0..ROWS).map(|number| (number.to_be_bytes().to_vec(), vec![1; 20]));
    fill(&open(&disk), SHAPE, &[TABLE], &mut rows, 90).expect("rows");
    disk
}

fn checked(disk: &MemDisk) -> Checked {
    let monitor = Monitor::new(Limits::default(), 0, Tells::Deltas);
    let tree = Tree::new(open(disk), SHAPE, 8, monitor);
    let found = tree.find_tables().expect("a meta page");
    assert_eq!(found, Answer::Done(()));
    check(&tree, Gsn(0)).expect("no disk fails")
}

fn page(disk: &MemDisk, pid: Pid) -> AlignedBuf {
    let file = open(disk);
    let mut bytes = file.buffer();
    file.read(pid, &mut bytes).expect("a page");
    bytes
}

/// Changes a page on disk and seals it again.
fn change(disk: &MemDisk, pid: Pid, change: impl FnOnce(&mut NodeMut<'_>)) {
    let mut bytes = page(disk, pid);
    let mut node = NodeMut::over(&mut bytes);
    change(&mut node);
    node.seal();
    open(disk).write(&[(pid, &bytes)]).expect("a page");
}

/// Returns the first inner page, and the pages that it leads to.
fn first_inner(disk: &MemDisk) -> (Pid, Vec<Pid>) {
    let inner = (1..).map(Pid).find(|pid| {
        let bytes = page(disk, *pid);
        Node::over(&bytes).kind() == Kind::Inner
    });
    let inner = inner.expect("there is one");
    let bytes = page(disk, inner);
    let node = Node::over(&bytes);
    (inner, (0..node.len()).map(|at| node.child(at)).collect())
}

#[test]
fn a_tree_that_hangs_together_is_counted() {
    let disk = made();
    let found = checked(&disk);
    assert_eq!((found.rows, &found.faults[..]), (ROWS, &[][..]));
    assert!(found.inner > 2 && found.free == 0, "{found:?}");
    let scrubbed = scrub(&open(&disk)).expect("files");
    assert_eq!(scrubbed.whole, found.leaves + found.inner + 1);
    assert_eq!(scrubbed.damaged, []);
}

#[test]
fn a_leaf_with_other_fences_and_a_page_that_two_lead_to_are_told_with_the_keys() {
    let disk = made();
    let (inner, children) = first_inner(&disk);
    let bytes = page(&disk, children[1]);
    let cut = Node::over(&bytes).key(2).to_vec();
    change(&disk, children[1], |leaf| leaf.cut_at(&cut));
    let found = checked(&disk);
    assert_eq!(found.faults.len(), 1, "{found:?}");
    let fault = &found.faults[0];
    assert_eq!(fault.pid, children[1]);
    assert!(fault.expected.contains("fences"), "{fault:?}");
    let lost = fault.lost.as_ref().expect("keys");
    let parent = page(&disk, inner);
    assert_eq!(
        (lost.table, &lost.low[..]),
        (TABLE, Node::over(&parent).key(1))
    );
    assert_eq!(lost.high.as_deref(), Some(Node::over(&parent).key(2)));

    let disk = made();
    let second = Node::over(&page(&disk, inner)).key(1).to_vec();
    change(&disk, inner, |inner| {
        assert_eq!(inner.put_child(&second, children[0]), Ok(false));
    });
    let found = checked(&disk);
    let told = found.faults.iter().any(|fault| fault.pid == children[0]);
    assert!(told, "{:?}", found.faults);
}

#[test]
fn pages_that_nothing_leads_to_and_ends_that_are_elsewhere_are_told() {
    // According to the meta page, one page more was used than the tree uses. The file has this page, but no page
    // leads to it.
    let disk = made();
    let pages = u32::try_from(scrub(&open(&disk)).expect("files").whole).expect("few");
    open(&disk).grow(pages + 1).expect("room");
    change(&disk, Pid(0), |meta| {
        let put = meta.put(b"", &(pages + 1).to_le_bytes());
        assert!(put.is_ok());
    });
    let found = checked(&disk);
    assert_eq!(found.faults.len(), 1, "{found:?}");
    assert_eq!(found.faults[0].pid, Pid(pages));
    assert_eq!(found.faults[0].lost, None);
    // According to the meta page, the tree's last page was never used, but another page leads to it.
    change(&disk, Pid(0), |meta| {
        let put = meta.put(b"", &(pages - 1).to_le_bytes());
        assert!(put.is_ok());
    });
    let found = checked(&disk);
    let told = &found.faults[0];
    assert_eq!(told.pid, Pid(pages - 1));
    assert!(told.expected.contains("before the end"), "{told:?}");
}

#[test]
fn a_file_that_ends_before_the_pages_that_were_used_is_refused() {
    let disk = made();
    change(&disk, Pid(0), |meta| {
        assert!(meta.put(b"", &9999u32.to_le_bytes()).is_ok());
    });
    let monitor = Monitor::new(Limits::default(), 0, Tells::Deltas);
    let tree = Tree::new(open(&disk), SHAPE, 8, monitor);
    let why = tree.find_tables().expect_err("refused").to_string();
    assert!(
        why.contains("9999 pages") && why.contains("cut short"),
        "{why}"
    );
}

#[test]
fn a_file_of_another_database_is_refused_before_a_page_is_written() {
    let disk = made();
    let other = Shape {
        database: [9; 8],
        ..SHAPE
    };
    let file = PageFile::open(&disk, "t", other, Access::Buffered).expect("files");
    let before = page(&disk, Pid(0)).to_vec();
    let why = file.repair().expect_err("refused").to_string();
    assert!(why.contains("database"), "{why}");
    assert_eq!(page(&disk, Pid(0)).to_vec(), before);
}
