//! Pages that each hold a counter, and a pool over them.

use perdura_base::{Gsn, Pid, TableId};
use perdura_device::{Disk, MemDisk};
use perdura_page::tree_page::{Kind, NodeMut, NodeSpec, format};
use perdura_tree::file::{PageFile, Shape};
use perdura_tree::monitor::{Limits, Monitor, Tells};
use perdura_tree::pool::{Pinned, Pool, Progress};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const SHAPE: Shape = Shape {
    page_bytes: 512,
    database: *b"database",
};
pub const DIR: &str = "tree";

pub fn page(pid: Pid, kind: Kind) -> Box<[u8]> {
    let spec = NodeSpec {
        kind,
        level: u8::from(kind == Kind::Inner),
        pid,
        table: TableId(1),
        database: SHAPE.database,
        low: b"",
        high: None,
    };
    let mut bytes = format(SHAPE.page_bytes, &spec);
    let mut page = NodeMut::over(&mut bytes);
    let put = match kind {
        Kind::Inner => page.put_child(b"", Pid(1)),
        _ => page.put(b"count", &0u64.to_le_bytes()),
    };
    assert_eq!(put, Ok(true));
    page.seal();
    bytes
}

/// Makes a file of `pages` pages on a disk. The first page is an inner page, and all other pages are leaves.
pub fn files_on(disk: &dyn Disk, pages: u32) -> PageFile {
    disk.make_dir(DIR).expect("a directory");
    let file = PageFile::create(disk, DIR, SHAPE, pages).expect("files");
    let made: Vec<_> = (0..pages)
        .map(|pid| {
            let kind = if pid == 0 { Kind::Inner } else { Kind::Leaf };
            (Pid(pid), page(Pid(pid), kind))
        })
        .collect();
    for part in made.chunks(100) {
        let part: Vec<_> = part.iter().map(|(pid, page)| (*pid, &**page)).collect();
        file.write(&part).expect("pages");
    }
    file
}

/// Makes pages like [`files_on`], in memory.
pub fn files(pages: u32) -> (Arc<dyn Disk>, PageFile) {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let file = files_on(&*disk, pages);
    (disk, file)
}

pub fn pool(file: PageFile, frames: usize) -> Pool {
    let mut monitor = Monitor::new(Limits::default(), 0, Tells::Deltas);
    monitor.end_restart();
    Pool::new(file, frames, monitor)
}

/// Adds one to a page's counter. The update's number is taken from the counter `numbers`.
pub fn add(pool: &Pool, pinned: &Pinned<'_>, pid: Pid, numbers: &AtomicU64) {
    let mut latched = pinned.write();
    let mut node = latched.node();
    let value = node.node().value(0).first_chunk().expect("eight bytes");
    let next = u64::from_le_bytes(*value) + 1;
    let mut monitor = pool.monitor().lock();
    let gsn = Gsn(numbers.fetch_add(1, Ordering::SeqCst) + 1);
    monitor.note(pid, gsn);
    node.set_plsn(gsn);
    drop(monitor);
    assert_eq!(node.put(b"count", &next.to_le_bytes()), Ok(false));
}

pub fn count(pinned: &Pinned<'_>) -> u64 {
    let latched = pinned.read();
    let value = latched.node().value(0).first_chunk().expect("eight bytes");
    u64::from_le_bytes(*value)
}

/// Writes pages until no page is dirty.
pub fn flush(pool: &Pool) {
    while pool.write_step(Gsn(u64::MAX)).expect("a step") != Progress::Idle {}
}
