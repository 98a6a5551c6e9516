//! Files prepared for a writer that is then refused.

use std::sync::Arc;

use perdura_base::{Epoch, Gsn, StreamId};
use perdura_device::{Disk, FaultPlan, ManualClock, SimDisk};
use perdura_wal::segment::LOG_DIR;
use perdura_wal::{SegmentSizes, Wal, WalOptions, WalStart};

use crate::setup::*;

/// If the disk is too full for a writer, the files that were prepared for the writer are deleted. An earlier build kept
/// these files for later segments, so images had no space.
#[test]
fn what_was_prepared_for_a_writer_that_a_full_disk_refuses_is_given_back() {
    let disk = SimDisk::new(17);
    let wal = open(&disk, &anchor(1), 1);
    wal.prepare_by(|| {});
    let s = StreamId(0);
    while wal.prepare_segment(s, &|| {}).unwrap() {}
    let used = || -> u64 { disk.files().iter().map(|(_, len)| len).sum() };
    let before = used();
    disk.set_plan(FaultPlan {
        capacity_bytes: Some(before + 6 * SEGMENT_BYTES),
        ..FaultPlan::default()
    });
    let (long, middle) = (20 * SEGMENT_BYTES, 3 * SEGMENT_BYTES);
    let (long, middle) = (long.try_into().unwrap(), middle.try_into().unwrap());
    for _ in 0..3 {
        wal.admit(s, long).unwrap_err();
        let refused = loop {
            match wal.prepare_segment(s, &|| {}) {
                Ok(true) => {}
                Ok(false) => panic!("the writer has asked for more"),
                Err(error) => break error,
            }
        };
        assert!(refused.is_disk_full());
        assert!(used() <= before + SEGMENT_BYTES, "{before} {}", used());
        assert!(!wal.prepare_segment(s, &|| {}).unwrap() && !wal.is_short());
        assert!(!wal.is_refused_for_now(s, long));
        wal.admit(s, 100).unwrap();
    }
    // Another writer needs files for which there is space. It waits and is admitted.
    assert!(wal.admit(s, middle).is_err() && wal.is_refused_for_now(s, middle));
    while wal.prepare_segment(s, &|| {}).unwrap() {}
    wal.admit(s, middle).unwrap();
}

/// An earlier build's event loop repeated a refused write in every round until the queue was shorter.
#[test]
fn a_full_disk_whose_files_have_room_has_a_writer_wait_for_a_long_queue_instead_of_trying_again() {
    let disk = SimDisk::new(18);
    let life: Arc<dyn Disk> = disk.life();
    life.make_dir(LOG_DIR).unwrap();
    let history = anchor(1);
    let start = WalStart {
        uuid: history.uuid,
        incarnation: history.incarnation,
        start: history.open_start(),
        epoch: Epoch(1),
        durable: Epoch(0),
        wall_us: 0,
        gsn: Gsn(0),
        lives: perdura_wal::Lineage::default(),
    };
    let options = WalOptions {
        segments: SegmentSizes::fixed(1 << 20),
        block_bytes_max: 8192,
        queue_bytes_max: 64 << 10,

        lanes: 1,
        mirror: None,
    };
    let clock = Arc::new(ManualClock::at(1));
    let wal = Wal::open(&[life], clock, options, start, |_| true).unwrap();
    wal.prepare_by(|| {});
    let s = StreamId(0);
    while wal.prepare_segment(s, &|| {}).unwrap() {}
    disk.set_plan(FaultPlan {
        capacity_bytes: Some(disk.files().iter().map(|(_, len)| len).sum()),
        ..FaultPlan::default()
    });
    wal.admit(s, 4 << 20).unwrap_err();
    assert!(wal.prepare_segment(s, &|| {}).unwrap_err().is_disk_full());
    assert!(wal.is_disk_full() && wal.has_room_ahead(s));
    // The server makes this check before each attempt; see `Db::is_behind`.
    let waits = || wal.is_behind(100) && !wal.is_stuck();
    let (mut attempts, mut refused) = (0, 0);
    let mut appended = 0;
    while appended < 10 {
        if waits() {
            flush(&wal);
            assert!(!waits(), "the queue is empty");
        }
        attempts += 1;
        match wal.admit(s, 100) {
            Ok(()) => {
                append(&wal, 0, &[7; 20_000]);
                appended += 1;
            }
            Err(_) => refused += 1,
        }
        assert!(attempts < 100, "it is tried in every round");
    }
    assert_eq!((attempts, refused), (10, 0));
    // A write is refused while the queue has its maximum length. The writer must wait.
    while wal.admit(s, 100).is_ok() {
        append(&wal, 0, &[7; 20_000]);
    }
    assert!(wal.is_refused_for_now(s, 100) && waits());
}
