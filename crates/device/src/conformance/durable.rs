//! Conformance tests for every [`DurableQueue`](crate::DurableQueue).

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_base::limits::SECTOR_BYTES;

use crate::durable::PARTS_MAX;
use crate::path::bytes_u64;
use crate::{Access, AlignedBuf, Completed, Disk, DurableQueue, DurableWrite, File, Part};

/// Runs every check of a disk's queue. `make` returns a new empty disk for each check.
///
/// # Panics
/// At the first check that fails.
pub fn durable_queue(make: impl Fn() -> Arc<dyn Disk>) {
    each_write_completes_once_and_gives_its_buffers_back(&*make());
    parts_lie_one_behind_the_other(&*make());
    one_queue_writes_several_files(&*make());
    a_write_replaces_what_was_there(&*make());
    nothing_in_flight_is_nothing_to_wait_for(&*make());
    threads_that_end_at_once_submit(&*make());
    a_queue_that_is_dropped_leaves_nothing_in_flight(&*make());
}

/// Makes a file of zeros, `sectors` sectors long.
fn zeros(disk: &dyn Disk, path: &str, sectors: usize) -> Arc<dyn File> {
    let file = disk.create(path, Access::Direct).unwrap();
    file.allocate(bytes_u64(sectors * SECTOR_BYTES)).unwrap();
    file.sync().unwrap();
    disk.sync_dir("").unwrap();
    file
}

/// Returns one part of a write. It has `sectors` whole sectors, and its buffer is one sector longer.
fn part(fill: u8, sectors: usize) -> Part {
    let mut buf = AlignedBuf::zeroed((sectors + 1) * SECTOR_BYTES);
    buf.fill(fill);
    Part {
        buf,
        len: sectors * SECTOR_BYTES,
    }
}

fn write(file: &Arc<dyn File>, token: u64, sector: usize, parts: Vec<Part>) -> DurableWrite {
    DurableWrite {
        token,
        file: Arc::clone(file),
        offset: bytes_u64(sector * SECTOR_BYTES),
        parts,
    }
}

/// Waits until `count` writes have completed. Returns the completions by token.
fn completed(queue: &dyn DurableQueue, count: usize) -> BTreeMap<u64, Completed> {
    let (mut all, mut done) = (BTreeMap::new(), Vec::new());
    while all.len() < count {
        queue.wait();
        queue.collect(&mut done);
        for one in done.drain(..) {
            one.result.as_ref().unwrap();
            let token = one.token;
            let before = all.insert(token, one);
            assert!(before.is_none(), "write {token} completes twice");
        }
    }
    queue.wait();
    queue.collect(&mut done);
    assert!(
        all.len() == count && done.is_empty(),
        "no more completes than was submitted"
    );
    all
}

/// Returns the first byte of each sector. Checks that all bytes of a sector are equal.
fn fills(file: &dyn File) -> Vec<u8> {
    let bytes = super::all(file);
    let sectors = bytes.chunks(SECTOR_BYTES);
    let fill = |sector: &[u8]| {
        assert!(
            sector.iter().all(|byte| *byte == sector[0]),
            "a sector is torn"
        );
        sector[0]
    };
    sectors.map(fill).collect()
}

fn each_write_completes_once_and_gives_its_buffers_back(disk: &dyn Disk) {
    let queue = disk.durable_queue().unwrap();
    assert!(queue.depth() > 0, "a queue takes writes");
    let file = zeros(disk, "f", 40 * queue.depth());
    let (mut token, mut expected) = (0, Vec::new());
    for round in 0..20 {
        let mut addresses = BTreeMap::new();
        for slot in 0..queue.depth() {
            let fill = u8::try_from(1 + (round * 7 + slot) % 250).unwrap();
            let one = part(fill, 2);
            addresses.insert(token, one.buf.as_ptr().addr());
            queue.submit(write(&file, token, expected.len(), vec![one]));
            expected.extend([fill; 2]);
            token += 1;
        }
        for (token, one) in completed(&*queue, queue.depth()) {
            assert_eq!(one.parts.len(), 1, "the parts of a write come back");
            let buf = &one.parts[0].buf;
            assert_eq!(Some(&buf.as_ptr().addr()), addresses.get(&token));
            assert_eq!(buf.len(), 3 * SECTOR_BYTES);
        }
    }
    assert_eq!(fills(&*file), expected);
    assert_eq!(fills(&*disk.open("f", Access::Buffered).unwrap()), expected);
}

fn parts_lie_one_behind_the_other(disk: &dyn Disk) {
    let queue = disk.durable_queue().unwrap();
    let sectors: Vec<usize> = (0..PARTS_MAX).map(|at| 1 + at % 3).collect();
    let file = zeros(disk, "f", 2 + sectors.iter().sum::<usize>());
    let parts = sectors.iter().zip(1..);
    let parts = parts.map(|(sectors, fill)| part(fill, *sectors)).collect();
    let one = write(&file, 7, 1, parts);
    let bytes = one.bytes();
    assert_eq!(bytes, sectors.iter().sum::<usize>() * SECTOR_BYTES);
    queue.submit(one);
    let back = completed(&*queue, 1);
    assert_eq!(back[&7].parts.len(), PARTS_MAX);
    let inner = sectors.iter().zip(1u8..);
    let inner = inner.flat_map(|(sectors, fill)| vec![fill; *sectors]);
    let expected: Vec<u8> = [0].into_iter().chain(inner).chain([0]).collect();
    assert_eq!(fills(&*file), expected);
}

fn one_queue_writes_several_files(disk: &dyn Disk) {
    let queue = disk.durable_queue().unwrap();
    let files: Vec<Arc<dyn File>> = (0..queue.depth())
        .map(|at| zeros(disk, &format!("f{at}"), 2))
        .collect();
    for (token, file) in (0..).zip(&files) {
        let fill = u8::try_from(token + 1).unwrap();
        queue.submit(write(file, token, 1, vec![part(fill, 1)]));
    }
    completed(&*queue, files.len());
    for (fill, file) in (1..).zip(&files) {
        assert_eq!(fills(&**file), [0, fill]);
    }
}

fn a_write_replaces_what_was_there(disk: &dyn Disk) {
    let queue = disk.durable_queue().unwrap();
    let file = zeros(disk, "f", 3);
    for fill in 1..50 {
        queue.submit(write(&file, 3, 1, vec![part(fill, 1)]));
        completed(&*queue, 1);
        assert_eq!(fills(&*file), [0, fill, 0], "the write is in the file");
    }
}

fn nothing_in_flight_is_nothing_to_wait_for(disk: &dyn Disk) {
    let queue = disk.durable_queue().unwrap();
    completed(&*queue, 0);
    let file = zeros(disk, "f", 1);
    queue.submit(write(&file, 1, 0, vec![part(1, 1)]));
    completed(&*queue, 1);
    completed(&*queue, 0);
}

/// Writes of a thread complete even if the thread has ended.
fn threads_that_end_at_once_submit(disk: &dyn Disk) {
    let queue = disk.durable_queue().unwrap();
    let file = zeros(disk, "f", queue.depth());
    for round in 1..20 {
        let (queue, file) = (&*queue, &file);
        for slot in 0..queue.depth() {
            std::thread::scope(|scope| {
                let one = write(file, bytes_u64(slot), slot, vec![part(round, 1)]);
                scope.spawn(move || queue.submit(one));
            });
        }
        completed(queue, queue.depth());
        assert_eq!(fills(&**file), vec![round; queue.depth()]);
    }
}

fn a_queue_that_is_dropped_leaves_nothing_in_flight(disk: &dyn Disk) {
    for fill in 1..20 {
        let queue = disk.durable_queue().unwrap();
        let path = format!("f{fill}");
        let file = zeros(disk, &path, 4 * queue.depth());
        for slot in 0..queue.depth() {
            let one = write(&file, bytes_u64(slot), 4 * slot, vec![part(fill, 4)]);
            queue.submit(one);
        }
        drop(queue);
        let before = fills(&*file);
        assert!(before.iter().all(|found| [0, fill].contains(found)));
        std::thread::yield_now();
        assert_eq!(fills(&*file), before, "a write has landed later");
        assert_eq!(Arc::strong_count(&file), 1, "the file is let go");
    }
}
