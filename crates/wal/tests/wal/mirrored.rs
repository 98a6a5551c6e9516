//! A log with a mirror: how far sealing runs ahead of the disk, and what a restart refuses.

use std::sync::{Arc, Mutex};

use perdura_base::limits::IN_FLIGHT_BYTES_MAX;
use perdura_base::{CkptEpoch, Epoch, Error, PartitionSet, Pos, StreamId};
use perdura_device::{Access, CrashProfile, Disk, SimDisk};
use perdura_wal::segment::{SEGMENT_HEADER_BYTES, SegmentId};
use perdura_wal::{
    Check, FlushProgress, FrameKind, History, Rung, SegmentSizes, StreamScan, TailOptions, Wait,
    Wal, WalOptions, block, decide_cut, scan_stream,
};

use crate::in_flight::{Held, held_disk};
use crate::setup::{anchor, append, next_life, open_with};

const STREAM: StreamId = StreamId(0);
const MIB: u64 = 1 << 20;

type Shipped = Arc<Mutex<Vec<(Pos, Vec<u8>)>>>;

fn options(anchor: &History, block_bytes_max: usize, tail_bytes_max: u64) -> WalOptions {
    WalOptions {
        segments: anchor.segments,
        block_bytes_max,
        queue_bytes_max: 4 * MIB,

        lanes: 1,
        mirror: Some(TailOptions { tail_bytes_max }),
    }
}

/// Returns a log of one stream. A block has at most 4 MiB, and the tail has 24 MiB. The disk completes a write only
/// when the test requests it.
fn long_log() -> (Arc<dyn Disk>, Wal, Arc<Mutex<Held>>) {
    let (disk, held) = held_disk();
    let mut anchor = anchor(1);
    anchor.segments = SegmentSizes::fixed(64 * MIB);
    let options = options(&anchor, 4 << 20, 24 * MIB);
    let wal = open_with(Arc::clone(&disk), &anchor, 1, options);
    wal.mirror_follows_disk(false);
    (disk, wal, held)
}

/// Appends a block of `mib` MiB in an epoch that has no other block.
fn append_block(wal: &Wal, mib: usize) {
    let none = PartitionSet::empty();
    let payload = vec![7; (mib << 20) - block::HEADER_BYTES - 8];
    wal.append(STREAM, FrameKind::Group, &payload, &none, CkptEpoch(0));
    wal.close_epoch();
}

/// At most four writes are in flight. Each has at most 2 MiB, or is a single longer block.
#[test]
fn sealing_runs_ahead_of_the_disk_by_a_tail_and_the_copy_by_what_may_be_in_flight() {
    for (mib, most) in [(1, IN_FLIGHT_BYTES_MAX), (3, 6 * MIB)] {
        run_ahead(mib, most);
    }
}

fn run_ahead(mib: u64, most: u64) {
    let (disk, wal, held) = long_log();
    let shipped: Shipped = Arc::default();
    let received = Arc::clone(&shipped);
    wal.ship_by(move |block| {
        let mut received = received.lock().unwrap();
        received.push((block.pos, block.bytes.to_vec()));
    });
    let (in_tail, all) = (24 / mib, 30 / mib);
    for _ in 0..all {
        append_block(&wal, usize::try_from(mib).unwrap());
        wal.ship_step(STREAM).unwrap();
        wal.raise_mirror(STREAM, wal.sealed_end(STREAM));
    }
    assert_eq!(wal.sealed_end(STREAM), Pos(24 * MIB), "the tail is full");
    assert!(!wal.ship_step(STREAM).unwrap());
    assert_eq!(wal.stats().tail_bytes, 24 * MIB);
    assert_eq!(wal.durable(Rung::Mirror), Epoch(in_tail));
    assert_eq!(wal.durable(Rung::Disk), Epoch(0));
    let mut seen = 0;
    while !wal.is_idle() {
        while wal.flush_begin(STREAM).unwrap() {}
        let mut held = held.lock().unwrap();
        let in_flight = held.in_flight_bytes();
        assert!(
            0 < in_flight && in_flight <= IN_FLIGHT_BYTES_MAX,
            "{in_flight}"
        );
        seen = in_flight.max(seen);
        held.end(0, None);
        drop(held);
        wal.flush_end(STREAM, Wait::No).unwrap();
        let tail = wal.sealed_end(STREAM).0 - wal.synced(STREAM).0;
        assert!(tail <= 24 * MIB);
    }
    assert_eq!(seen, most);
    assert_eq!(wal.stats().tail_bytes, 0);
    let shipped = shipped.lock().unwrap();
    assert_eq!(shipped.len() as u64, all, "the copy seals too");
    for (number, (pos, bytes)) in (1..).zip(shipped.iter()) {
        let header = block::decode(bytes).unwrap();
        assert_eq!((header.pos, header.epoch), (*pos, Epoch(number)));
        let acked = Epoch(number.min(in_tail + 1) - 1);
        assert_eq!(header.acked, acked, "as of when it was sealed");
        assert!(on_disk(disk.as_ref(), *pos, bytes.len()) == *bytes);
    }
}

/// Returns the bytes that the segments of `long_log` have at a position.
fn on_disk(disk: &dyn Disk, pos: Pos, len: usize) -> Vec<u8> {
    let mut anchor = anchor(1);
    anchor.segments = SegmentSizes::fixed(64 * MIB);
    let start = anchor.segments.span_at(Pos(0), pos).start;
    let id = SegmentId {
        stream: STREAM,
        start,
        incarnation: anchor.incarnation,
    };
    let file = disk.open(&id.path(), Access::Buffered).unwrap();
    let mut bytes = vec![0; len];
    file.read_at(SEGMENT_HEADER_BYTES + pos.0 - start.0, &mut bytes)
        .unwrap();
    bytes
}

#[test]
fn a_full_tail_pushes_back_like_a_full_queue() {
    let (_disk, wal, _held) = long_log();
    for mib in 1..=28 {
        append_block(&wal, 1);
        wal.ship_step(STREAM).unwrap();
        assert_eq!(wal.is_behind(0), mib >= 26, "{mib} MiB wait");
        let admitted = wal.admit(STREAM, 0);
        assert_eq!(admitted.is_err(), mib >= 28, "{mib} MiB");
        assert!(matches!(admitted, Ok(()) | Err(Error::LogFull(_))));
    }
}

/// Returns a mirrored log of two streams. The disk has the first two epochs in both streams, and the third epoch in
/// only one stream. The disk also has a block of the fourth epoch. When this block was sealed, the mirror had the third
/// epoch in both streams.
fn with_loss() -> (Arc<SimDisk>, History) {
    let disk = SimDisk::new(5);
    let anchor = anchor(2);
    let wal = open_with(disk.life(), &anchor, 1, options(&anchor, 8192, 1 << 20));
    wal.mirror_follows_disk(false);
    for epoch in 1..=4 {
        for stream in [0, 1] {
            append(&wal, stream, &[epoch; 100]);
        }
        wal.close_epoch();
        for stream in [0, 1].map(StreamId) {
            wal.ship_step(stream).unwrap();
            wal.raise_mirror(stream, wal.sealed_end(stream));
            let is_written = epoch <= 2 || stream == StreamId(1);
            while is_written && wal.flush_step(stream).unwrap() != FlushProgress::Idle {}
        }
    }
    assert_eq!(
        (wal.durable(Rung::Disk), wal.durable(Rung::Mirror)),
        (Epoch(2), Epoch(4))
    );
    disk.crash(CrashProfile::Nothing, 1);
    (disk, anchor)
}

fn scans(disk: &SimDisk, anchor: &History) -> Vec<StreamScan> {
    let scan = |stream| scan_stream(disk, &anchor.lives(), stream, Pos(0), Check::All).unwrap();
    [0, 1].map(StreamId).into_iter().map(scan).collect()
}

#[test]
fn a_restart_that_ends_before_an_epoch_that_was_acknowledged_is_refused_unless_its_loss_is_accepted()
 {
    let (disk, mut anchor) = with_loss();
    let life = disk.life();
    let found = scans(&life, &anchor);
    let refused = decide_cut(&anchor, &found, None, false)
        .unwrap_err()
        .to_string();
    for told in [
        "log stream 1",
        "says that epoch 3 was acknowledged",
        "ends with epoch 2",
        "epochs 3 to 3",
        "mirror",
    ] {
        assert!(refused.contains(told), "{told}: {refused}");
    }
    let cut = decide_cut(&anchor, &found, None, true).unwrap();
    assert_eq!((cut.durable, cut.lost_to), (Epoch(2), Some(Epoch(3))));
    // The blocks that the previous life wrote beyond its cut no longer count.
    let epoch = next_life(&mut anchor, &cut);
    let wal = open_with(life, &anchor, epoch, options(&anchor, 8192, 1 << 20));
    append(&wal, 0, b"after");
    wal.close_epoch();
    for stream in [0, 1].map(StreamId) {
        while wal.flush_step(stream).unwrap() != FlushProgress::Idle {}
    }
    drop(wal);
    disk.crash(CrashProfile::Nothing, 2);
    let again = decide_cut(&anchor, &scans(&disk.life(), &anchor), None, false).unwrap();
    assert_eq!((again.durable, again.lost_to), (Epoch(epoch), None));
}
