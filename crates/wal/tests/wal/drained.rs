//! A takeover writes the part of the log that other nodes have in memory. It is interrupted at every I/O.

use std::sync::{Arc, Mutex};

use perdura_base::{CkptEpoch, PartitionSet, Pos, StreamId};
use perdura_device::{Access, CrashProfile, Disk, FaultPlan, SimDisk, SimSnapshot};
use perdura_wal::drain::{Drained, KeptTail, drain};
use perdura_wal::segment::{SEGMENT_HEADER_BYTES, SegmentId};
use perdura_wal::{
    Check, FlushProgress, FrameKind, History, Rung, SegmentSizes, StreamScan, TailOptions, Wait,
    Wal, WalOptions, scan_stream,
};

use crate::setup::{SEGMENT_BYTES, anchor, open_with};

pub const STREAM: StreamId = StreamId(0);

/// The remains of a failed writer: the disk and all sealed blocks.
pub struct Left {
    pub disk: Arc<SimDisk>,
    pub history: History,
    /// The bytes of the stream from its start.
    pub all: Vec<u8>,
    /// The start of each block of the stream, followed by the end of the last block.
    pub bounds: Vec<Pos>,
    /// The stream's end on disk when the writer stopped.
    pub synced: Pos,
}

/// The settings and the stopping point of a writer.
#[derive(Clone, Copy)]
pub struct Work {
    pub seed: u64,
    pub segment_bytes: u64,
    pub block_bytes_max: usize,
    /// The approximate number of bytes appended.
    pub bytes: usize,
    /// The number of disk operations before the power failure, counted from the start of the second copy to disk.
    pub cut_after_ops: u64,
}

impl Work {
    pub fn small(seed: u64, cut_after_ops: u64) -> Work {
        Work {
            seed,
            segment_bytes: SEGMENT_BYTES,
            block_bytes_max: 8192,
            bytes: 400 << 10,
            cut_after_ops,
        }
    }
}

/// Appends half of the bytes and copies them to disk. Then appends and seals the second half, and copies until the
/// power fails.
pub fn leave(work: Work, profile: CrashProfile) -> Left {
    let disk = SimDisk::new(work.seed);
    let mut rng = fastrand::Rng::with_seed(work.seed);
    let mut history = anchor(1);
    history.segments = SegmentSizes {
        first: work.segment_bytes,
        max: (1 + work.seed % 2) * work.segment_bytes,
    };
    let options = WalOptions {
        segments: history.segments,
        block_bytes_max: work.block_bytes_max,
        queue_bytes_max: 1 << 30,

        lanes: 1,
        mirror: Some(TailOptions {
            tail_bytes_max: 1 << 30,
        }),
    };
    let wal = open_with(disk.life(), &history, 1, options);
    let shipped = Arc::new(Mutex::new((Vec::new(), vec![Pos(0)])));
    let received = Arc::clone(&shipped);
    wal.ship_by(move |block| {
        let (all, bounds) = &mut *received.lock().unwrap();
        all.extend_from_slice(block.bytes);
        bounds.push(Pos(block.pos.0 + block.bytes.len() as u64));
    });
    let mut append = |bytes: usize, each: &dyn Fn()| {
        let mut appended = 0;
        while appended < bytes {
            let payload = vec![rng.u8(..); rng.usize(1..=work.block_bytes_max)];
            appended += payload.len();
            let none = PartitionSet::empty();
            wal.append(STREAM, FrameKind::Group, &payload, &none, CkptEpoch(0));
            if rng.u8(..3) == 0 {
                wal.close_epoch();
                each();
            }
        }
        wal.close_epoch();
        wal.ship_step(STREAM).unwrap();
    };
    append(work.bytes / 2, &|| {
        while wal.flush_step(STREAM).unwrap() != FlushProgress::Idle {}
    });
    // The first call makes a file for the next segment, the second call gives it its name.
    for _ in 0..2 {
        wal.prepare_segment(STREAM, &|| {}).unwrap();
    }
    let vouched = wal.durable_end(Rung::Disk);
    append(work.bytes / 2, &|| {});
    if rng.bool() {
        history.vouched = vouched;
    }
    disk.set_plan(FaultPlan {
        cut_after_ops: Some(work.cut_after_ops),
        ..FaultPlan::default()
    });
    copy(&wal, &mut rng);
    let synced = wal.synced(STREAM);
    drop(wal);
    disk.crash(profile, work.seed);
    let (all, bounds) = std::mem::take(&mut *shipped.lock().unwrap());
    Left {
        disk,
        history,
        all,
        bounds,
        synced,
    }
}

/// Keeps several writes in flight until everything is written or the power fails.
fn copy(wal: &Wal, rng: &mut fastrand::Rng) {
    while !wal.is_idle() {
        let begun = wal.flush_begin(STREAM);
        let collects = rng.u8(..3) == 0 || matches!(begun, Ok(false));
        if begun.is_err() || (collects && wal.flush_end(STREAM, Wait::No).is_err()) {
            return;
        }
    }
}

impl Left {
    pub fn tail<'a>(&'a self, holder: &str, from: Pos, end: Pos) -> KeptTail<'a> {
        KeptTail {
            holder: holder.to_owned(),
            from,
            bytes: &self.all[at(from)..at(end)],
        }
    }

    pub fn end(&self) -> Pos {
        *self.bounds.last().unwrap()
    }

    pub fn drain(&self, tails: &[KeptTail<'_>]) -> perdura_base::Result<Drained> {
        let life: Arc<dyn Disk> = self.disk.life();
        drain(&life, &self.history.drain_life(STREAM), tails)
    }

    /// Returns the last block boundary at or before a position.
    pub fn bound_before(&self, pos: Pos) -> Pos {
        self.bounds[self.bounds.partition_point(|bound| *bound <= pos) - 1]
    }

    pub fn scan(&self) -> StreamScan {
        let disk = self.disk.life();
        let lives = self.history.lives();
        let scan = scan_stream(disk.as_ref(), &lives, STREAM, Pos(0), Check::All).unwrap();
        assert_eq!(
            scan.evidence.out_of_reach, None,
            "a crash of a flusher leaves no such block"
        );
        scan
    }

    /// Checks every block on disk, byte by byte. The disk must be in a state that a flusher could leave.
    pub fn check_whole(&self) {
        let scan = self.scan();
        assert_eq!(scan.valid_end, self.end());
        assert_eq!(scan.notes, Vec::<String>::new());
        let starts: Vec<Pos> = scan.blocks.iter().map(|block| block.pos).collect();
        assert_eq!(starts, self.bounds[..self.bounds.len() - 1]);
        for (from, end) in self.bounds.iter().zip(&self.bounds[1..]) {
            assert!(self.on_disk(*from, *end) == self.all[at(*from)..at(*end)]);
        }
    }

    /// Returns the path of the segment that contains a position, and the position's offset in this file.
    pub fn place(&self, pos: Pos) -> (String, u64) {
        let start = self.history.segments.span_at(Pos(0), pos).start;
        let id = SegmentId {
            stream: STREAM,
            start,
            incarnation: self.history.incarnation,
        };
        (id.path(), SEGMENT_HEADER_BYTES + pos.0 - start.0)
    }

    fn on_disk(&self, from: Pos, end: Pos) -> Vec<u8> {
        let (path, offset) = self.place(from);
        let file = self.disk.life();
        let file = file.open(&path, Access::Buffered).unwrap();
        let mut bytes = vec![0; at(Pos(end.0 - from.0))];
        file.read_at(offset, &mut bytes).unwrap();
        bytes
    }

    /// Repeats a drain, and cuts the power `step` I/Os later each time. After each power failure, drains again and
    /// checks the durable contents. Returns the number of power failures.
    fn interrupted_everywhere(
        &self,
        before: &SimSnapshot,
        profile: CrashProfile,
        step: usize,
    ) -> u64 {
        let tail = [self.tail("a", self.synced, self.end())];
        for cut in (1..).step_by(step) {
            self.disk.restore(before);
            self.disk.set_plan(FaultPlan {
                cut_after_ops: Some(cut),
                ..FaultPlan::default()
            });
            let drained = self.drain(&tail);
            if self.disk.has_power() {
                assert_eq!(drained.unwrap().end, self.end());
                self.disk.crash(CrashProfile::Nothing, cut);
                self.check_whole();
                return cut - 1;
            }
            assert!(drained.is_err(), "a drain that lost power says so");
            self.disk.crash(profile, cut);
            let valid_end = self.scan().valid_end;
            assert!(
                valid_end >= self.synced,
                "{valid_end} after {}",
                self.synced
            );
            assert_eq!(self.drain(&tail).unwrap().end, self.end());
            if profile == CrashProfile::Killed {
                // The blocks that the killed drain wrote can be read but are not durable. The restart writes them
                // again.
                let (scan, disk) = (self.scan(), self.disk.life());
                scan.write_again(disk.as_ref(), &self.history).unwrap();
            }
            self.disk.crash(CrashProfile::Nothing, cut);
            self.check_whole();
            let nothing = self.drain(&tail).unwrap();
            assert_eq!((nothing.blocks, nothing.bytes_written), (0, 0));
        }
        unreachable!("a drain ends")
    }
}

pub fn at(pos: Pos) -> usize {
    usize::try_from(pos.0).unwrap()
}

#[test]
fn a_drain_that_is_interrupted_at_any_io_is_completed_by_the_next_one() {
    let (mut cuts, mut holes) = (0, 0);
    for (seed, profile) in (0..10).zip(CrashProfile::ALL.into_iter().cycle()) {
        let left = leave(Work::small(seed, 1 + 3 * seed), CrashProfile::Worst);
        let scan = left.scan();
        holes += u64::from(
            scan.evidence.epoch_max > scan.blocks.last().map_or(Default::default(), |b| b.epoch),
        );
        cuts += left.interrupted_everywhere(&left.disk.snapshot(), profile, 1);
    }
    assert!(
        cuts > 200 && holes > 0,
        "{cuts} interruptions, {holes} holes"
    );
}

/// The drain finds a block that was in flight at the writer's death and is not durable.
#[test]
fn a_drain_of_more_than_may_be_in_flight_leaves_no_block_too_far_behind_a_hole() {
    let work = Work {
        seed: 2,
        segment_bytes: 10 << 20,
        block_bytes_max: 4 << 20,
        bytes: 30 << 20,
        cut_after_ops: 1,
    };
    let left = leave(work, CrashProfile::Nothing);
    assert!(left.end().0 - left.synced.0 > 12 << 20);
    let next = left.bounds[left.bounds.partition_point(|bound| *bound <= left.synced)];
    let (path, offset) = left.place(left.synced);
    let file = left.disk.life().open(&path, Access::Buffered).unwrap();
    let block = &left.all[at(left.synced)..at(next)];
    file.write_at(offset, block).unwrap();
    drop(file);
    assert_eq!(left.scan().valid_end, next);
    let before = left.disk.snapshot();
    let cuts = left.interrupted_everywhere(&before, CrashProfile::Nothing, 4);
    assert!(cuts > 20, "{cuts}");
}
