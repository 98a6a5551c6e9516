//! A log with a full disk or too few files: accepted, waiting and refused writes.

use perdura_base::{Error, Gsn, StreamId};
use perdura_device::{CrashProfile, SimDisk};
use perdura_wal::{Direction, FlushProgress, History, Rung, SegmentSizes};

use crate::setup::{anchor, append, flush, groups, open, scan};

#[test]
fn a_full_disk_holds_blocks_back_and_lets_them_go_when_space_returns() {
    use perdura_device::FaultPlan;
    let disk = SimDisk::new(6);
    let wal = open(&disk, &anchor(1), 1);
    append(&wal, 0, b"first");
    flush(&wal);
    let plan = FaultPlan {
        enospc_at: Some((1, u64::MAX)),
        ..FaultPlan::default()
    };
    disk.set_plan(plan);
    let mut accepted = 1;
    let refused = loop {
        if let Err(error) = wal.admit(StreamId(0), 3000) {
            break error;
        }
        append(&wal, 0, &[7; 3000]);
        accepted += 1;
        wal.close_epoch();
        loop {
            match wal.flush_step(StreamId(0)) {
                Ok(FlushProgress::Idle) => break,
                Ok(_) => {}
                Err(error) => {
                    assert!(error.is_disk_full(), "{error}");
                    break;
                }
            }
        }
        // The housekeeper prepares files ahead, and so detects a full disk in time.
        assert!(
            wal.prepare_segment(StreamId(0), &|| {})
                .is_ok_and(|made| !made)
                || wal.is_disk_full()
        );
    };
    assert!(matches!(refused, Error::LogFull(text) if text.contains("no space")));
    assert!(accepted > 5);
    assert_eq!(
        wal.durable(Rung::Disk).0,
        accepted,
        "nothing that was accepted waits for space"
    );
    disk.set_plan(FaultPlan::default());
    wal.prepare_segment(StreamId(0), &|| {}).unwrap();
    wal.admit(StreamId(0), 3000).unwrap();
    for _ in 0..40 {
        append(&wal, 0, &[8; 3000]);
        flush(&wal);
    }
    assert!(wal.is_idle());
}

/// A review found this bug: after the disk had been full, the log did not use segments that a checkpoint had freed.
#[test]
fn segments_freed_while_the_disk_is_full_let_writes_go_on() {
    use perdura_device::FaultPlan;
    let disk = SimDisk::new(9);
    let wal = open(&disk, &anchor(1), 1);
    // The disk becomes full when not quite half of a segment is in use.
    for _ in 0..21 {
        append(&wal, 0, &[1; 20_000]);
        flush(&wal);
    }
    disk.set_plan(FaultPlan {
        enospc_at: Some((1, u64::MAX)),
        ..FaultPlan::default()
    });
    while wal.prepare_segment(StreamId(0), &|| {}).is_ok() {
        append(&wal, 0, &[1; 5000]);
        flush(&wal);
    }
    assert!(wal.is_disk_full());
    let (floor, _) = wal.begin_checkpoint(perdura_base::CkptEpoch(1));
    flush(&wal);
    assert!(wal.truncate(&floor).unwrap() > 0);
    assert!(!wal.prepare_segment(StreamId(0), &|| {}).unwrap());
    assert!(!wal.is_disk_full());
    for _ in 0..3 {
        wal.admit(StreamId(0), 20_000).unwrap();
        append(&wal, 0, &[1; 20_000]);
        flush(&wal);
    }
    assert!(wal.is_idle());
}

/// A copy-on-write file system may refuse an overwrite for lack of space, even after a part of the overwrite was
/// written.
#[test]
fn a_block_refused_for_want_of_space_is_written_again_before_anything_behind_it_counts() {
    use perdura_device::FaultPlan;
    // The loop ends with an iteration that makes fewer than `nth` writes, so that no write is refused.
    for nth in 1.. {
        let (disk, anchor) = (SimDisk::new(nth), anchor(1));
        let wal = open(&disk, &anchor, 1);
        append(&wal, 0, &[1; 3000]);
        flush(&wal);
        disk.set_plan(FaultPlan {
            refuse_write_at: Some((nth, 3)),
            ..FaultPlan::default()
        });
        let mut refused = 0;
        // The data is longer than a segment. So the next segment's header and the preceding segment's mark are refused
        // too.
        for value in 2..30 {
            append(&wal, 0, &[value; 3000]);
            wal.close_epoch();
            loop {
                match wal.flush_step(StreamId(0)) {
                    Ok(FlushProgress::Idle) => break,
                    Ok(_) => {}
                    Err(error) => {
                        refused += 1;
                        assert!(error.is_disk_full(), "{error}");
                        assert_eq!(wal.failure(), None);
                        assert!(wal.is_disk_full());
                        let refusal = wal.admit(StreamId(0), 1);
                        assert!(matches!(refusal, Err(Error::LogFull(_))), "{refusal:?}");
                    }
                }
            }
        }
        if refused == 0 {
            assert!(
                nth > 28 + 2,
                "every block, a header and a mark were refused"
            );
            break;
        }
        assert_eq!(refused, 3, "write {nth}");
        assert!(wal.is_idle() && !wal.is_short());
        wal.admit(StreamId(0), 1).unwrap();
        drop(wal);
        disk.crash(CrashProfile::Nothing, 1);
        let (scans, cut) = scan(&disk, &anchor).unwrap();
        let kept: usize = groups(&scans, 0, Direction::Forward)
            .iter()
            .map(Vec::len)
            .sum();
        assert_eq!((kept, cut.durable.0), (29, 29), "write {nth}");
    }
}

/// A review found this bug. If segments were small, they were used up before the preparing thread detected the full
/// disk. So the log accepted writes that then waited for space.
#[test]
fn no_write_is_accepted_that_waits_for_space_however_small_the_segments_are() {
    use perdura_device::FaultPlan;
    let doubling = SegmentSizes {
        first: 64 << 10,
        max: 512 << 10,
    };
    for sizes in [SegmentSizes::fixed(64 << 10), doubling] {
        for (seed, spare_bytes) in (1..).zip((0..2_000_000).step_by(30_000)) {
            let disk = SimDisk::new(seed);
            let anchor = History {
                segments: sizes,
                ..anchor(1)
            };
            let wal = open(&disk, &anchor, 1);
            append(&wal, 0, b"first");
            flush(&wal);
            let used: u64 = disk.files().iter().map(|(_, len)| len).sum();
            disk.set_plan(FaultPlan {
                capacity_bytes: Some(used + spare_bytes),
                ..FaultPlan::default()
            });
            let lengths = [10usize, 3000, 100, 30_000, 150_000, 1];
            let mut accepted = 0u64;
            let refused = lengths.iter().cycle().take(1000).find_map(|len| {
                if let Err(error) = wal.admit(StreamId(0), *len) {
                    return Some(error);
                }
                append(&wal, 0, &vec![7; *len]);
                accepted += 1;
                // Several writes share an epoch, and none of them may find the disk full.
                if accepted.is_multiple_of(3) {
                    flush(&wal);
                }
                None
            });
            let refused = refused.expect("the disk is full before that");
            assert!(refused.to_string().contains("no space"), "{refused}");
            flush(&wal);
            assert!(wal.is_idle(), "{spare_bytes} bytes of space");
            disk.set_plan(FaultPlan::default());
            wal.admit(StreamId(0), 150_000).unwrap();
            append(&wal, 0, &[8; 150_000]);
            flush(&wal);
            assert!(wal.is_idle() && !wal.is_short());
        }
    }
}

#[test]
fn where_a_thread_prepares_segments_writers_are_held_back_until_it_has() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    let disk = SimDisk::new(12);
    let anchor = History {
        segments: SegmentSizes {
            first: 64 << 10,
            max: 256 << 10,
        },
        ..anchor(1)
    };
    let wal = open(&disk, &anchor, 1);
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    wal.prepare_by(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let s = StreamId(0);
    let refused = wal.admit(s, 400_000);
    assert!(matches!(&refused, Err(Error::LogFull(why)) if why.contains("is being made")));
    assert!(wal.is_behind(400_000) && !wal.is_short());
    assert!(calls.load(Ordering::SeqCst) > 0);
    // Files of 64, 128 and 256 KiB have room for the write, with block headers and twice the reserve.
    let mut made = 0;
    while wal
        .prepare_segment(s, &|| panic!("a writer waits"))
        .unwrap()
    {
        made += 1;
    }
    assert!((3..=4).contains(&made), "{made}");
    wal.admit(s, 400_000).unwrap();
    assert!(!wal.is_behind(400_000));
    append(&wal, 0, &vec![1; 400_000]);
    flush(&wal);
    assert!(wal.is_idle());
}

/// After a restart, the log first needs segments of the smallest size. Large spare files may have filled the disk.
#[test]
fn spares_of_sizes_that_are_not_needed_make_way_on_a_full_disk() {
    use perdura_device::{Disk, FaultPlan};
    let disk = SimDisk::new(13);
    let anchor = History {
        segments: SegmentSizes {
            first: 64 << 10,
            max: 256 << 10,
        },
        ..anchor(1)
    };
    let life = disk.life();
    life.make_dir("log").unwrap();
    for number in 0..3 {
        let path = format!("log/spare-s00-{number}.log");
        let file = life
            .create(&path, perdura_device::Access::Buffered)
            .unwrap();
        file.set_len(256 << 10).unwrap();
    }
    let wal = open(&disk, &anchor, 1);
    disk.set_plan(FaultPlan {
        capacity_bytes: Some(768 << 10),
        ..FaultPlan::default()
    });
    let mut accepted = 0;
    while wal.admit(StreamId(0), 10_000).is_ok() {
        append(&wal, 0, &[1; 10_000]);
        flush(&wal);
        accepted += 1;
    }
    // The existing files have 64, 128 and 256 KiB, less the reserve.
    assert!(accepted > 30, "{accepted}");
    assert!(wal.is_idle() && wal.is_disk_full());
}

/// A review found this bug. One stream could not write because the disk was full. When another stream wrote
/// successfully, the log no longer reported the first stream's failure.
#[test]
fn the_trouble_of_a_stream_lasts_until_that_stream_is_out_of_it() {
    use perdura_device::{Clock, Disk, FaultPlan, ManualClock};
    use perdura_wal::{FlushProgress, Wal, WalOptions, WalStart};
    use std::sync::Arc;
    let disks = [SimDisk::new(14), SimDisk::new(15)];
    let anchor = anchor(2);
    let lives: Vec<Arc<dyn Disk>> = disks.iter().map(|d| d.life() as Arc<dyn Disk>).collect();
    lives.iter().for_each(|life| life.make_dir("log").unwrap());
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(1));
    let options = WalOptions {
        segments: anchor.segments,
        block_bytes_max: 8192,
        ..WalOptions::default()
    };
    let start = WalStart {
        uuid: anchor.uuid,
        incarnation: anchor.incarnation,
        start: anchor.open_start(),
        epoch: perdura_base::Epoch(1),
        durable: perdura_base::Epoch(0),
        wall_us: 0,
        gsn: Gsn(0),
        lives: perdura_wal::Lineage::default(),
    };
    let wal = Wal::open(&lives, clock, options, start, |_| true).unwrap();
    for stream in 0..2 {
        append(&wal, stream, b"first");
    }
    flush(&wal);
    let refuses = |nth| FaultPlan {
        refuse_write_at: Some((nth, 2)),
        ..FaultPlan::default()
    };
    disks[1].set_plan(refuses(1));
    for stream in 0..2 {
        append(&wal, stream, b"second");
    }
    wal.close_epoch();
    let is_refused = || (0..9).any(|_| wal.flush_step(StreamId(1)).is_err());
    assert!(is_refused());
    while wal.flush_step(StreamId(0)).unwrap() != FlushProgress::Idle {}
    while wal.prepare_segment(StreamId(0), &|| {}).unwrap() {}
    assert!(wal.is_short(), "stream 1 still cannot write");
    for stream in 0..2 {
        let refused = wal.admit(StreamId(stream), 1);
        assert!(matches!(refused, Err(Error::LogFull(_))), "stream {stream}");
    }
    assert!(is_refused());
    while wal.flush_step(StreamId(1)).unwrap() != FlushProgress::Idle {}
    assert!(wal.is_idle() && !wal.is_short());
    wal.admit(StreamId(0), 1).unwrap();

    // A failure to name a file is another trouble than a failure to prepare one. It lasts until a file has been named.
    disks[1].set_plan(FaultPlan {
        fail_name_at: Some(2),
        ..FaultPlan::default()
    });
    let mut short = 0;
    for _ in 0..12 {
        append(&wal, 1, &[2; 8000]);
        wal.close_epoch();
        while wal.flush_step(StreamId(0)).unwrap() != FlushProgress::Idle {}
        while wal.flush_step(StreamId(1)).unwrap() != FlushProgress::Idle {}
        for stream in 0..2 {
            while wal.prepare_segment(StreamId(stream), &|| {}).unwrap() {}
        }
        assert!(!wal.is_disk_full());
        short += u32::from(wal.is_short());
    }
    assert!(short == 1 && wal.is_idle() && !wal.is_short());
}

/// A review found this bug. On a full disk, the existing files had enough room for a usual write. A writer that needed
/// more room was not refused, and waited for ever.
#[test]
fn a_writer_that_needs_more_than_a_full_disk_can_give_is_refused_and_not_held_back_for_ever() {
    use perdura_device::FaultPlan;
    let disk = SimDisk::new(16);
    let wal = open(&disk, &anchor(1), 1);
    wal.prepare_by(|| {});
    let s = StreamId(0);
    while wal.prepare_segment(s, &|| {}).unwrap() {}
    let used = disk.files().iter().map(|(_, len)| len).sum();
    disk.set_plan(FaultPlan {
        capacity_bytes: Some(used),
        ..FaultPlan::default()
    });
    let refused = wal.admit(s, 400_000).unwrap_err().to_string();
    assert!(refused.contains("is being made"), "{refused}");
    assert!(wal.is_refused_for_now(s, 400_000) && wal.is_behind(400_000));
    assert!(wal.prepare_segment(s, &|| {}).unwrap_err().is_disk_full());
    // The next call finds that no file is due.
    assert!(!wal.prepare_segment(s, &|| {}).unwrap() && !wal.is_short());
    let refused = wal.admit(s, 400_000).unwrap_err().to_string();
    assert!(refused.contains("no space"), "{refused}");
    assert!(!wal.is_refused_for_now(s, 400_000) && !wal.is_behind(400_000));
    wal.admit(s, 100).unwrap();
    disk.set_plan(FaultPlan::default());
    while wal.prepare_segment(s, &|| {}).unwrap() {}
    wal.admit(s, 400_000).unwrap();
}

/// A test of the engine on a faulty disk found this bug. After the full disk had refused a segment's header, the log
/// refused all writes. So no write could show that the disk had space again.
#[test]
fn a_header_that_was_refused_and_is_written_refuses_no_write_any_more() {
    use perdura_device::FaultPlan;
    let stream = StreamId(0);
    let mut refused = 0;
    for nth in 1..12 {
        let disk = SimDisk::new(9);
        let wal = open(&disk, &anchor(1), 1);
        // More than half of the first segment is written, so that the second one can be prepared and placed.
        for _ in 0..5 {
            append(&wal, 0, &[1; 8000]);
        }
        flush(&wal);
        disk.set_plan(FaultPlan {
            refuse_write_at: Some((nth, 1)),
            ..FaultPlan::default()
        });
        for _ in 0..6 {
            // The thread that prepares files repeats these two steps.
            for step in [wal.prepare_segment(stream, &|| {}), wal.place_ahead(stream)] {
                assert!(step.is_ok() || step.is_err_and(|error| error.is_disk_full()));
                refused += u32::from(wal.admit(stream, 100).is_err());
            }
        }
        assert!(wal.is_placed_ahead(stream) && !wal.is_disk_full(), "{nth}");
        wal.admit(stream, 100).unwrap();
    }
    assert!(refused > 0, "a write of a header was refused");
}
