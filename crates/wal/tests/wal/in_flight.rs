//! Several writes in flight that complete in any order. The tests check which writes make epochs durable, what a
//! restart finds, and the effect of each failure.

use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use perdura_base::{Epoch, Error, Pos, Result, StreamId};
use perdura_device::{
    Access, Completed, CrashProfile, Disk, DiskLayer, DurableQueue, DurableWrite, File, MemDisk,
    Part, SimDisk, Through,
};
use perdura_wal::segment::{LOG_DIR, SEGMENT_HEADER_BYTES, SegmentId, check_header};
use perdura_wal::{Begun, Collected, Direction, FlushProgress, Rung, Wait, Wal};

use crate::setup::{anchor, append, flush, groups, open, open_on, scan, scan_on};

const STREAM: StreamId = StreamId(0);

/// Writes that stay in flight until the test completes them.
#[derive(Default)]
pub(crate) struct Held {
    flying: Vec<DurableWrite>,
    done: Vec<Completed>,
}

/// A disk that completes durable writes only on the test's request. Its files have an access of the test's choice.
struct HeldDisk(MemDisk, Arc<Mutex<Held>>, Access);

struct HeldQueue(Arc<Mutex<Held>>);

impl Held {
    /// Returns the bytes of the writes in flight.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        let parts = self.flying.iter().flat_map(|write| &write.parts);
        parts.map(|part| part.bytes().len() as u64).sum()
    }

    /// Completes the write in flight at index `at`: executes it, or fails it with `error`.
    pub(crate) fn end(&mut self, at: usize, error: Option<ErrorKind>) {
        let write = self.flying.remove(at);
        let result = match error {
            Some(kind) => Err(Error::io("write", write.file.path(), kind.into())),
            None => {
                let parts: Vec<&[u8]> = write.parts.iter().map(Part::bytes).collect();
                let (file, offset) = (&write.file, write.offset);
                file.write_durable(offset, &parts, Through::WriteAndSync)
            }
        };
        self.done.push(Completed {
            token: write.token,
            parts: write.parts,
            result,
        });
    }
}

impl DurableQueue for HeldQueue {
    fn depth(&self) -> usize {
        4
    }

    fn submit(&self, write: DurableWrite) {
        self.0.lock().unwrap().flying.push(write);
    }

    fn collect(&self, done: &mut Vec<Completed>) {
        done.append(&mut self.0.lock().unwrap().done);
    }

    fn wait(&self) {}

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl DiskLayer for HeldDisk {
    fn behind(&self) -> &dyn Disk {
        &self.0
    }

    fn in_front(&self, _: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        file
    }

    fn access(&self, _: Access) -> Access {
        self.2
    }

    fn durable_queue(&self) -> Result<Box<dyn DurableQueue>> {
        Ok(Box::new(HeldQueue(Arc::clone(&self.1))))
    }
}

/// Returns a disk that holds its durable writes, and the list of the held writes.
pub(crate) fn held_disk() -> (Arc<dyn Disk>, Arc<Mutex<Held>>) {
    held_disk_with(Access::Direct)
}

fn held_disk_with(access: Access) -> (Arc<dyn Disk>, Arc<Mutex<Held>>) {
    let held = Arc::new(Mutex::new(Held::default()));
    let disk = Arc::new(HeldDisk(MemDisk::new(), Arc::clone(&held), access));
    (disk, held)
}

/// Returns a log with `count` writes in flight. Each write has one epoch. The disk completes a write only when the test
/// requests it.
fn with_in_flight(count: u8) -> (Arc<dyn Disk>, Wal, Arc<Mutex<Held>>) {
    let (disk, held) = held_disk();
    let wal = open_on(Arc::clone(&disk), &anchor(1), 1);
    for value in 1..=count {
        append(&wal, 0, &[value; 100]);
        wal.close_epoch();
        assert!(wal.flush_begin(STREAM).unwrap(), "a slot is free");
    }
    assert_eq!(wal.in_flight(STREAM), u64::from(count));
    (disk, wal, held)
}

fn durable(wal: &Wal) -> u64 {
    wal.durable(Rung::Disk).0
}

#[test]
fn d_advances_in_order_however_the_writes_complete() {
    for order in [[0, 0, 0, 0], [3, 2, 1, 0], [1, 2, 0, 0], [2, 0, 1, 0]] {
        let (_disk, wal, held) = with_in_flight(4);
        assert!(!wal.has_slot(STREAM) && !wal.flush_begin(STREAM).unwrap());
        let mut left = vec![1, 2, 3, 4];
        for at in order {
            held.lock().unwrap().end(at, None);
            left.remove(at);
            let first = left.first().copied().unwrap_or(5);
            let before = durable(&wal);
            let found = wal.flush_end(STREAM, Wait::No).unwrap();
            assert_eq!(durable(&wal), first - 1, "{left:?} are in flight");
            let advanced = before < durable(&wal);
            assert_eq!(found == Collected::Advanced, advanced);
        }
        assert!(wal.is_idle() && wal.in_flight(STREAM) == 0);
    }
}

#[test]
fn a_hole_beyond_d_is_the_end_of_the_log_and_what_follows_it_is_void() {
    let (disk, wal, held) = with_in_flight(4);
    for at in [3, 2, 0] {
        held.lock().unwrap().end(at, None);
    }
    wal.flush_end(STREAM, Wait::No).unwrap();
    assert_eq!(durable(&wal), 1);
    let (scans, cut) = scan_on(&disk, &anchor(1)).unwrap();
    assert_eq!(cut.durable, Epoch(1));
    let found = groups(&scans, 0, Direction::Forward);
    assert_eq!(found, [[vec![1; 100]]]);
}

#[test]
fn a_hole_that_a_later_block_names_as_durable_is_damage() {
    let (disk, wal, held) = with_in_flight(2);
    for _ in 0..2 {
        held.lock().unwrap().end(0, None);
    }
    wal.flush_end(STREAM, Wait::No).unwrap();
    assert_eq!(durable(&wal), 2);
    append(&wal, 0, b"names epoch 2");
    wal.close_epoch();
    wal.flush_begin(STREAM).unwrap();
    held.lock().unwrap().end(0, None);
    // The block of the second epoch is overwritten with zeros, as if its write had been lost.
    let path = SegmentId {
        stream: STREAM,
        start: Pos(0),
        incarnation: anchor(1).incarnation,
    };
    let file = disk.open(&path.path(), Access::Buffered).unwrap();
    file.write_at(SEGMENT_HEADER_BYTES + 4096, &[0; 4096])
        .unwrap();
    let refused = scan_on(&disk, &anchor(1)).map(drop);
    assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
}

#[test]
fn a_write_that_fails_or_is_short_is_final_whatever_else_completes() {
    for error in [
        ErrorKind::Other,
        ErrorKind::InvalidInput,
        ErrorKind::WriteZero,
    ] {
        let (_disk, wal, held) = with_in_flight(3);
        held.lock().unwrap().end(1, Some(error));
        assert!(matches!(
            wal.flush_end(STREAM, Wait::No),
            Err(Error::Io { .. })
        ));
        assert!(wal.failure().is_some());
        for _ in 0..2 {
            held.lock().unwrap().end(0, None);
        }
        assert!(matches!(
            wal.flush_end(STREAM, Wait::No),
            Err(Error::Stopped(_))
        ));
        assert_eq!(durable(&wal), 0, "nothing counts after a failure");
        assert!(matches!(wal.flush_begin(STREAM), Err(Error::Stopped(_))));
    }
}

#[test]
fn a_write_that_finds_no_space_is_repeated_in_its_place_before_any_other_begins() {
    for error in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
        let (disk, wal, held) = with_in_flight(3);
        held.lock().unwrap().end(0, Some(error));
        held.lock().unwrap().end(0, None);
        let delayed = wal.flush_end(STREAM, Wait::No).unwrap_err();
        assert!(delayed.is_disk_full() && wal.failure().is_none() && wal.is_disk_full());
        append(&wal, 0, &[4; 100]);
        wal.close_epoch();
        assert_eq!(durable(&wal), 0);
        assert_eq!(wal.begin_if_placed(STREAM).unwrap(), Begun::Yes);
        let again = held.lock().unwrap().flying.last().map(|write| write.offset);
        assert_eq!(again, Some(SEGMENT_HEADER_BYTES), "the first write again");
        for _ in 0..2 {
            held.lock().unwrap().end(0, None);
        }
        wal.flush_end(STREAM, Wait::No).unwrap();
        assert!(durable(&wal) == 3 && !wal.is_disk_full());
        assert!(wal.flush_begin(STREAM).unwrap());
        held.lock().unwrap().end(0, None);
        wal.flush_end(STREAM, Wait::No).unwrap();
        let (scans, _) = scan_on(&disk, &anchor(1)).unwrap();
        let values: Vec<u8> = groups(&scans, 0, Direction::Forward)[0]
            .iter()
            .map(|group| group[0])
            .collect();
        assert_eq!(values, [1, 2, 3, 4]);
    }
}

#[test]
fn a_segments_header_and_the_mark_before_it_are_durable_before_its_first_block_is_written() {
    let (disk, anchor) = (SimDisk::new(3), anchor(1));
    let wal = open(&disk, &anchor, 1);
    // The loop ends when blocks of the second segment have been written.
    while wal.synced(STREAM) <= Pos(crate::setup::SEGMENT_BYTES) {
        append(&wal, 0, &[7; 8000]);
        flush(&wal);
    }
    disk.crash(CrashProfile::Nothing, 0);
    let life = disk.life();
    let mut names: Vec<SegmentId> = life
        .list(LOG_DIR)
        .unwrap()
        .iter()
        .filter_map(|name| SegmentId::parse(name))
        .collect();
    names.sort_unstable();
    assert!(names.len() >= 2, "{names:?}");
    for (at, id) in names.iter().enumerate() {
        let mut header = vec![0; 4096];
        let file = life.open(&id.path(), Access::Buffered).unwrap();
        file.read_at(0, &mut header).unwrap();
        let followed = check_header(*id, &anchor.uuid, &header).unwrap();
        assert_eq!(followed, at + 1 < names.len(), "{id:?}");
    }
    let (scans, _) = scan(&disk, &anchor).unwrap();
    assert_eq!(scans[0].notes, [""; 0]);
}

#[test]
fn a_segment_placed_ahead_is_empty_until_the_log_reaches_it_and_a_restart_ignores_it() {
    let (disk, anchor) = (SimDisk::new(4), anchor(1));
    let wal = open(&disk, &anchor, 1);
    // More than half of the first segment is written, so that a file for the second one is prepared.
    for _ in 0..5 {
        append(&wal, 0, &[1; 8000]);
    }
    flush(&wal);
    while wal.prepare_segment(STREAM, &|| {}).unwrap() {}
    assert!(wal.place_ahead(STREAM).unwrap() || wal.is_placed_ahead(STREAM));
    assert!(!wal.place_ahead(STREAM).unwrap(), "one at a time");
    append(&wal, 0, b"second");
    while wal.flush_step(STREAM).unwrap() != FlushProgress::Idle {}
    flush(&wal);
    disk.crash(CrashProfile::Nothing, 0);
    let (scans, cut) = scan(&disk, &anchor).unwrap();
    assert_eq!(cut.durable, Epoch(2));
    assert_eq!(groups(&scans, 0, Direction::Forward)[0].len(), 6);
}

#[test]
fn a_thread_that_writes_beside_another_write_advances_d_in_order() {
    let (_disk, wal, held) = with_in_flight(1);
    append(&wal, 0, &[2; 100]);
    wal.close_epoch();
    // A third write begins while the thread writes.
    let begun = || {
        append(&wal, 0, &[3; 100]);
        wal.close_epoch();
        assert!(wal.flush_begin(STREAM).unwrap());
    };
    let written = wal.flush_in_place(STREAM, 3, begun).unwrap();
    assert_eq!(written, Collected::Nothing);
    assert_eq!((durable(&wal), wal.in_flight(STREAM)), (0, 3));
    held.lock().unwrap().end(0, None);
    let collected = wal.flush_end(STREAM, Wait::No).unwrap();
    assert_eq!((collected, durable(&wal)), (Collected::Advanced, 2));
    held.lock().unwrap().end(0, None);
    wal.flush_end(STREAM, Wait::No).unwrap();
    assert_eq!(durable(&wal), 3);
    let limit = wal.flush_in_place(STREAM, 0, || panic!("nothing is left to write"));
    assert_eq!(limit.unwrap(), Collected::Nothing);
}

/// Linux reports a failed write of a cached file to one sync only. With two syncs at once, the sync of the write that was
/// lost could have succeeded. Review found this before two writes could be in flight.
#[test]
fn a_cached_file_has_one_write_of_a_waiting_thread_in_flight() {
    let (disk, held) = held_disk_with(Access::Buffered);
    let wal = open_on(disk, &anchor(1), 1);
    append(&wal, 0, &[1; 100]);
    wal.close_epoch();
    assert!(wal.flush_begin(STREAM).unwrap());
    append(&wal, 0, &[2; 100]);
    wal.close_epoch();
    let begun = || panic!("no second write may begin");
    let written = wal.flush_in_place(STREAM, 3, begun).unwrap();
    assert_eq!((written, wal.in_flight(STREAM)), (Collected::Nothing, 1));
    held.lock().unwrap().end(0, None);
    wal.flush_end(STREAM, Wait::No).unwrap();
    let begun = || {
        append(&wal, 0, &[3; 100]);
        wal.close_epoch();
        assert_eq!(wal.begin_if_placed(STREAM).unwrap(), Begun::No);
    };
    let written = wal.flush_in_place(STREAM, 3, begun).unwrap();
    assert_eq!((written, durable(&wal)), (Collected::Advanced, 2));
    assert!(wal.flush_begin(STREAM).unwrap());
}
