//! All appended frames are read back, in whole epochs only.

use perdura_base::{CkptEpoch, Incarnation, PartitionSet, Pos, StreamId};
use perdura_device::{CrashProfile, SimDisk};
use perdura_wal::{ChainLink, Direction, FlushProgress, FrameKind, Holds, Rung};

use crate::setup::{anchor, append, flush, groups, open, scan};

#[test]
fn groups_of_any_size_come_back_in_order_in_both_directions_and_in_any_units() {
    let mut rng = fastrand::Rng::with_seed(1);
    let disk = SimDisk::new(1);
    let anchor = anchor(2);
    let wal = open(&disk, &anchor, 1);
    let mut written = vec![Vec::new(), Vec::new()];
    for i in 0..400 {
        let len = if i % 40 == 7 {
            rng.usize(8000..90_000)
        } else {
            rng.usize(0..600)
        };
        let payload: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
        let stream = rng.u8(0..2);
        append(&wal, stream, &payload);
        written[usize::from(stream)].push(payload);
        if rng.u8(0..9) == 0 {
            flush(&wal);
        }
    }
    flush(&wal);
    disk.crash(CrashProfile::Nothing, 1);
    let (scans, cut) = scan(&disk, &anchor).unwrap();
    assert_eq!(cut.durable, wal.durable(Rung::Disk));
    for unit_bytes in [0, 10_000, u64::MAX] {
        assert_eq!(groups(&scans, unit_bytes, Direction::Forward), written);
        let mut backward = groups(&scans, unit_bytes, Direction::Backward);
        backward.iter_mut().for_each(|groups| groups.reverse());
        assert_eq!(backward, written);
    }
}

/// An earlier build had this bug. If a frame began at the end of a block, the log recorded the next block as the
/// frame's origin. The log may be cut at an origin, so the first record of an open transaction could be cut off.
#[test]
fn the_origin_of_a_frame_is_the_block_in_which_its_first_byte_is() {
    let mut rng = fastrand::Rng::with_seed(2);
    let disk = SimDisk::new(2);
    let anchor = anchor(1);
    let wal = open(&disk, &anchor, 1);
    let none = PartitionSet::empty();
    let written: Vec<Pos> = std::iter::repeat_with(|| {
        let payload = vec![7; rng.usize(0..4) + if rng.u8(0..9) == 0 { 200 } else { 0 }];
        wal.append(StreamId(0), FrameKind::Group, &payload, &none, CkptEpoch(0))
            .pos
    })
    .take(30_000)
    .collect();
    flush(&wal);
    disk.crash(CrashProfile::Nothing, 2);
    let (scans, _) = scan(&disk, &anchor).unwrap();
    assert!(scans[0].blocks.len() > 3, "frames lie in several blocks");
    for direction in [Direction::Forward, Direction::Backward] {
        let mut read = Vec::new();
        for unit in scans[0].units(u64::MAX) {
            let each = |frame: perdura_wal::Frame<'_>, origin: &perdura_wal::Origin| {
                if frame.kind == FrameKind::Group {
                    read.push(origin.pos);
                }
                Ok(())
            };
            scans[0].read_unit(unit, direction, each).unwrap();
        }
        if direction == Direction::Backward {
            read.reverse();
        }
        assert_eq!(read, written, "{direction:?}");
    }
}

#[test]
fn an_epoch_that_one_stream_lacks_is_void_in_all() {
    let disk = SimDisk::new(2);
    let anchor = anchor(2);
    let wal = open(&disk, &anchor, 1);
    append(&wal, 0, b"kept");
    append(&wal, 1, b"kept too");
    flush(&wal);
    append(&wal, 0, b"reached the disk");
    append(&wal, 1, b"did not");
    wal.close_epoch();
    while wal.flush_step(StreamId(0)).unwrap() != FlushProgress::Idle {}
    disk.crash(CrashProfile::Nothing, 2);
    let (scans, cut) = scan(&disk, &anchor).unwrap();
    assert_eq!(cut.durable.0, 1);
    assert_eq!(
        cut.epoch_max.0, 2,
        "the void epoch is seen, so that it is not used again"
    );
    let all = groups(&scans, 0, Direction::Forward);
    assert_eq!(all, [vec![b"kept".to_vec()], vec![b"kept too".to_vec()]]);
}

#[test]
fn the_void_tail_of_an_old_life_stays_dead_behind_the_next() {
    let disk = SimDisk::new(3);
    let mut anchor = anchor(1);
    let wal = open(&disk, &anchor, 1);
    append(&wal, 0, b"one");
    flush(&wal);
    let cut = scan(&disk, &anchor).unwrap().1;
    append(&wal, 0, b"void, though it reached the disk later");
    flush(&wal);
    disk.crash(CrashProfile::Everything, 3);
    anchor.chain.push(ChainLink {
        incarnation: Incarnation(1),
        durable: cut.durable,
        start: vec![Pos(0)],
        cut: cut.cut,
    });
    anchor.incarnation = Incarnation(2);
    let wal = open(&disk, &anchor, 9);
    append(&wal, 0, b"two");
    flush(&wal);
    disk.crash(CrashProfile::Nothing, 4);
    let (scans, cut) = scan(&disk, &anchor).unwrap();
    assert_eq!(cut.durable.0, 9);
    let all = groups(&scans, 0, Direction::Forward);
    assert_eq!(all, [vec![b"one".to_vec(), b"two".to_vec()]]);
}

#[test]
fn truncated_segments_are_used_again_and_their_old_blocks_do_not_count() {
    let disk = SimDisk::new(4);
    let anchor = anchor(1);
    let wal = open(&disk, &anchor, 1);
    let mut floor = vec![Pos(0)];
    for round in 0..40u8 {
        append(&wal, 0, &[round; 20_000]);
        flush(&wal);
        if round == 30 {
            (floor, _) = wal.begin_checkpoint(perdura_base::CkptEpoch(1));
            flush(&wal);
            assert!(wal.truncate(&floor).unwrap() > 2);
        }
    }
    disk.crash(CrashProfile::Nothing, 5);
    let life = disk.life();
    let scan = perdura_wal::scan_stream(
        life.as_ref(),
        &anchor.lives(),
        StreamId(0),
        floor[0],
        perdura_wal::Check::All,
    )
    .unwrap();
    let cut = perdura_wal::decide_cut(&anchor, std::slice::from_ref(&scan), None, false).unwrap();
    assert_eq!(cut.durable, wal.durable(Rung::Disk));
    let found = groups(&[scan], 0, Direction::Forward);
    let expected: Vec<Vec<u8>> = (31..40u8).map(|round| vec![round; 20_000]).collect();
    assert_eq!(found, [expected]);
}

#[test]
fn frames_of_one_transaction_stay_together_and_blocks_say_what_is_in_them() {
    let disk = SimDisk::new(1);
    let anchor = anchor(1);
    let wal = open(&disk, &anchor, 1);
    let none = PartitionSet::empty();
    let long = [7; 20_000];
    let append = |frames| wal.append_together(StreamId(0), frames, &none, CkptEpoch(0));
    let group: (_, &[&[u8]]) = (FrameKind::Group, &[b"group"]);
    let effects: (_, &[&[u8]]) = (FrameKind::Effects, &[b"head", &long, b"end"]);
    let first = append([group, effects]);
    flush(&wal);
    let second = append([(FrameKind::Command, &[b"command"]), effects]);
    flush(&wal);
    let third = append([group, (FrameKind::Group, &[&long])]);
    flush(&wal);
    assert!(first.epoch < second.epoch && second.epoch < third.epoch);
    let (scans, _) = scan(&disk, &anchor).unwrap();
    let holds = |ordered, others| Holds {
        ordered,
        others,
        ..Holds::default()
    };
    let mut seen = Vec::new();
    for block in &scans[0].blocks {
        seen.push((block.epoch, block.holds));
    }
    seen.dedup();
    let expected = [
        (first.epoch, holds(true, true)),
        (first.epoch, holds(true, false)),
        (second.epoch, holds(true, false)),
        (third.epoch, holds(false, true)),
    ];
    assert_eq!(seen, expected);
    let mut kinds = Vec::new();
    for unit in scans[0].units(0) {
        let whole = scans[0].holds(&unit);
        let read = scans[0].read_unit(unit, Direction::Forward, |frame, _| {
            assert!(whole.ordered || Holds::of(frame.kind).others);
            kinds.push((frame.kind, frame.payload.len()));
            Ok(())
        });
        read.unwrap();
    }
    let (five, more) = ((FrameKind::Group, 5), (FrameKind::Effects, 20_007));
    let (command, group) = ((FrameKind::Command, 7), (FrameKind::Group, 20_000));
    assert_eq!(kinds, [five, more, command, more, five, group]);
}
