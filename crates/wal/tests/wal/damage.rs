//! Flipped bytes and truncated files. The result must be an error, or exactly a prefix of whole epochs.

use std::sync::Arc;

use perdura_base::{Error, StreamId};
use perdura_device::{CrashProfile, Disk, SimDisk};
use perdura_wal::{Direction, History, Rung, SegmentSizes};

use crate::setup::{anchor, append, flush, groups, open, scan};

/// Writes three epochs to two streams. Returns the disk after a power cut.
fn small_log(beacon: bool) -> (Arc<SimDisk>, History) {
    let disk = SimDisk::new(9);
    let anchor = anchor(2);
    let wal = open(&disk, &anchor, 1);
    for epoch in 0..3u8 {
        append(&wal, 0, &[epoch; 5000]);
        append(&wal, 1, &[epoch; 10]);
        flush(&wal);
    }
    if beacon {
        assert!(wal.append_beacon());
        flush(&wal);
        assert!(!wal.append_beacon(), "one is enough");
    }
    disk.crash(CrashProfile::Nothing, 1);
    (disk, anchor)
}

/// Returns the number of surviving epochs, or the scan's error.
fn outcome(disk: &Arc<SimDisk>, anchor: &History) -> Result<usize, Error> {
    let (scans, cut) = scan(disk, anchor)?;
    let all = groups(&scans, 0, Direction::Forward);
    assert_eq!(all[0].len(), all[1].len(), "whole epochs");
    for (epoch, (first, second)) in (0..).zip(all[0].iter().zip(&all[1])) {
        assert_eq!((first, second), (&vec![epoch; 5000], &vec![epoch; 10]));
    }
    assert!(cut.durable.0 >= all[0].len() as u64);
    Ok(all[0].len())
}

fn data_blocks_end() -> u64 {
    4096 + 3 * 8192 + 8192
}

#[test]
fn with_a_beacon_no_flipped_byte_loses_an_epoch_in_silence() {
    let (disk, anchor) = small_log(true);
    let before = disk.snapshot();
    let paths: Vec<String> = disk.files().into_iter().map(|(path, _)| path).collect();
    for path in paths {
        for at in (0..data_blocks_end()).step_by(37) {
            disk.restore(&before);
            disk.flip(&path, at, 3);
            match outcome(&disk, &anchor) {
                Ok(epochs) => assert_eq!(epochs, 3, "{path} byte {at}"),
                Err(Error::Corrupt(_)) => {}
                Err(other) => panic!("{path} byte {at}: {other}"),
            }
        }
    }
}

#[test]
fn without_later_evidence_only_the_newest_epoch_can_be_missing() {
    let (disk, anchor) = small_log(false);
    let before = disk.snapshot();
    let (mut whole, mut shorter, mut refused) = (0, 0, 0);
    let paths: Vec<String> = disk.files().into_iter().map(|(path, _)| path).collect();
    for path in paths {
        for at in (0..data_blocks_end()).step_by(41) {
            disk.restore(&before);
            disk.flip(&path, at, 6);
            match outcome(&disk, &anchor) {
                Ok(3) => whole += 1,
                Ok(2) => shorter += 1,
                Ok(epochs) => panic!("{path} byte {at}: {epochs} epochs left"),
                Err(Error::Corrupt(_)) => refused += 1,
                Err(other) => panic!("{path} byte {at}: {other}"),
            }
        }
    }
    assert!(
        whole > 0 && shorter > 0 && refused > 0,
        "{whole} {shorter} {refused}"
    );
}

#[test]
fn a_log_cut_anywhere_is_a_prefix_or_an_error() {
    let (disk, anchor) = small_log(true);
    let before = disk.snapshot();
    let paths: Vec<String> = disk.files().into_iter().map(|(path, _)| path).collect();
    for path in paths {
        for len in (0..data_blocks_end()).step_by(509) {
            disk.restore(&before);
            disk.truncate_file(&path, len);
            match outcome(&disk, &anchor) {
                Ok(_) | Err(Error::Corrupt(_)) => {}
                Err(other) => panic!("{path} cut at {len}: {other}"),
            }
        }
    }
}

#[test]
fn a_failed_sync_stops_the_log_for_good() {
    use perdura_device::{FaultPlan, SyncFailure};
    for kind in [SyncFailure::KeepsNew, SyncFailure::Reverts] {
        let disk = SimDisk::new(5);
        let wal = open(&disk, &anchor(1), 1);
        append(&wal, 0, b"first");
        flush(&wal);
        disk.set_plan(FaultPlan {
            fail_sync_at: Some((1, kind)),
            ..FaultPlan::default()
        });
        append(&wal, 0, b"second");
        wal.close_epoch();
        let failed = (0..5).find_map(|_| wal.flush_step(StreamId(0)).err());
        assert!(matches!(failed, Some(Error::Io { .. })));
        assert_eq!(wal.durable(Rung::Disk).0, 1);
        assert!(matches!(
            wal.flush_step(StreamId(0)),
            Err(Error::Stopped(_))
        ));
        assert!(matches!(
            wal.admit(StreamId(0), 1),
            Ok(()) | Err(Error::Stopped(_))
        ));
    }
}

#[test]
fn a_log_that_another_process_owns_stops_for_good_and_never_as_after_a_failure() {
    use perdura_device::FaultPlan;
    // The first write after the plan is set is a segment's header. The second is a write of all blocks.
    for nth in 1..=2 {
        let disk = SimDisk::new(5);
        let wal = open(&disk, &anchor(1), 1);
        disk.set_plan(FaultPlan {
            fence_write_at: Some(nth),
            ..FaultPlan::default()
        });
        append(&wal, 0, b"never acknowledged");
        append(&wal, 0, &[1; 9000]);
        wal.close_epoch();
        let fenced = (0..9).find_map(|_| wal.flush_step(StreamId(0)).err());
        assert!(matches!(fenced, Some(Error::Fenced(_))), "write {nth}");
        assert_eq!(wal.durable(Rung::Disk).0, 0);
        disk.set_plan(FaultPlan::default());
        let ops = disk.ops();
        for error in [
            wal.flush_step(StreamId(0)).unwrap_err(),
            wal.admit(StreamId(0), 1).unwrap_err(),
        ] {
            assert!(error.is_fenced(), "{error}");
            let text = error.to_string().to_lowercase();
            assert!(text.contains("another process owns the log"), "{text}");
            assert!(
                !["again", "retry", "restart"]
                    .iter()
                    .any(|word| text.contains(word))
            );
        }
        assert_eq!(disk.ops(), ops, "nothing more is written");
    }
}

/// A lost file leaves no damaged byte. So the preceding segment must be marked as followed.
#[test]
fn a_lost_segment_is_noticed_wherever_it_was() {
    let disk = SimDisk::new(7);
    let anchor = anchor(1);
    let wal = open(&disk, &anchor, 1);
    for round in 0..12u8 {
        append(&wal, 0, &[round; 20_000]);
        flush(&wal);
    }
    disk.crash(CrashProfile::Nothing, 2);
    let before = disk.snapshot();
    let segments: Vec<String> = disk
        .files()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| path.contains("/s00-"))
        .collect();
    assert!(segments.len() >= 4, "{segments:?}");
    for path in &segments[1..] {
        disk.restore(&before);
        disk.life().remove(path).unwrap();
        assert!(
            matches!(scan(&disk, &anchor), Err(Error::Corrupt(_))),
            "{path}"
        );
    }
}

/// A review found this bug. After a gap in the log, a scan searches for blocks that prove damage. The search ended at a
/// fixed distance after the gap. So an epoch larger than this distance hid all later epochs.
#[test]
fn damage_within_an_epoch_larger_than_the_search_is_no_torn_tail() {
    let disk = SimDisk::new(8);
    let anchor = History {
        segments: SegmentSizes::fixed(32 << 20),
        ..anchor(1)
    };
    let wal = open(&disk, &anchor, 1);
    append(&wal, 0, b"before");
    flush(&wal);
    append(&wal, 0, &vec![7; 12 << 20]);
    flush(&wal);
    append(&wal, 0, b"after");
    flush(&wal);
    disk.crash(CrashProfile::Nothing, 3);
    let path = disk
        .files()
        .into_iter()
        .map(|(path, _)| path)
        .find(|p| p.contains("/s00-"))
        .unwrap();
    assert!(disk.flip(&path, 4096 + 4096 + 100_000, 0));
    assert!(matches!(scan(&disk, &anchor), Err(Error::Corrupt(_))));
}

/// A review found this bug: a log failed while idle, and then admitted further writes.
#[test]
fn a_log_that_has_failed_admits_nothing() {
    let disk = SimDisk::new(10);
    let wal = open(&disk, &anchor(1), 1);
    wal.fail("the image's disk");
    assert!(matches!(wal.admit(StreamId(0), 1), Err(Error::Stopped(_))));
}
