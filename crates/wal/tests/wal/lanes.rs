//! The order of frames behind lanes.

use perdura_base::{CkptEpoch, Epoch, PartitionSet, StreamId};
use perdura_device::SimDisk;
use perdura_wal::{Direction, FrameKind, LaneId, Wal, WalOptions};

use crate::setup::{anchor, flush, open_with, scan};

fn open(disk: &std::sync::Arc<SimDisk>) -> Wal {
    let anchor = anchor(1);
    let options = WalOptions {
        segments: anchor.segments,
        block_bytes_max: 8192,
        lanes: 2,
        ..WalOptions::default()
    };
    open_with(disk.life(), &anchor, 1, options)
}

fn append(wal: &Wal, lane: usize, payload: &[u8]) -> Epoch {
    let stream = StreamId(0);
    let none = PartitionSet::empty();
    wal.append_group(LaneId { stream, lane }, &[payload], &none, CkptEpoch(0))
}

/// Returns the frames of the log: kind, first byte of the payload, and epoch.
fn frames(disk: &std::sync::Arc<SimDisk>) -> Vec<(FrameKind, u8, Epoch)> {
    let (scans, _) = scan(disk, &anchor(1)).unwrap();
    let mut found = Vec::new();
    for unit in scans[0].units(0) {
        scans[0]
            .read_unit(unit, Direction::Forward, |frame, block| {
                found.push((frame.kind, frame.payload[0], block.epoch));
                Ok(())
            })
            .unwrap();
    }
    found
}

/// There was a bug: a group that did not fit in a lane entered the blocks before earlier groups of its thread. The order
/// of a client's groups then depended on when the epoch was closed.
#[test]
fn a_group_that_fits_in_no_lane_comes_after_its_threads_earlier_groups() {
    let disk = SimDisk::new(1);
    let wal = open(&disk);
    let told: Vec<_> = [(1, 10), (2, 5000), (3, 10), (4, 700), (5, 700), (6, 10)]
        .map(|(byte, len)| (FrameKind::Group, byte, append(&wal, 0, &vec![byte; len])))
        .into();
    flush(&wal);
    assert_eq!(frames(&disk), told);
}

/// A restart from an image reads the log from the marks at the begin of its checkpoint. Groups before the marks need not
/// be read, so they must not move behind the marks.
#[test]
fn the_marks_of_a_checkpoint_come_after_the_groups_of_all_lanes() {
    let disk = SimDisk::new(2);
    let wal = open(&disk);
    let before = append(&wal, 1, &[1; 10]).max(append(&wal, 0, &[2; 10]));
    let (_, least) = wal.begin_checkpoint(CkptEpoch(7));
    append(&wal, 0, &[3; 10]);
    let (_, newest) = wal.end_checkpoint(CkptEpoch(7));
    flush(&wal);
    let found = frames(&disk);
    let found: Vec<_> = found.iter().map(|(kind, byte, _)| (*kind, *byte)).collect();
    let expected = [
        (FrameKind::Group, 2),
        (FrameKind::Group, 1),
        (FrameKind::BeginCheckpoint, 7),
        (FrameKind::Group, 3),
        (FrameKind::EndCheckpoint, 7),
    ];
    assert_eq!(found, expected);
    assert!(before <= least && least <= newest);
}

#[test]
fn the_figures_of_the_log_count_the_groups_in_lanes() {
    let disk = SimDisk::new(3);
    let wal = open(&disk);
    let figures = || {
        (
            wal.stats().log_bytes,
            wal.waiting_bytes(perdura_wal::Rung::Disk),
        )
    };
    assert_eq!(figures(), (0, 0));
    append(&wal, 0, &[1; 100]);
    let (bytes, waiting) = figures();
    assert!(bytes > 100 && waiting >= bytes, "{bytes} {waiting}");
    flush(&wal);
    assert_eq!(figures(), (bytes, 0), "moving a group counts it once");
}
