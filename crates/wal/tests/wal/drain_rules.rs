//! The rules of a takeover for tails that nodes have kept. They say which parts are used, and which tails are refused.

use perdura_base::checksum::crc32c;
use perdura_base::{Error, Incarnation, Pos, Uuid};
use perdura_device::{CrashProfile, FaultPlan, SyncFailure};
use perdura_wal::block::HEADER_BYTES;
use perdura_wal::drain::KeptTail;

use crate::drained::{Left, Work, at, leave};
use crate::setup::anchor;

/// Returns the log of a writer that lost power in the middle of its copy to disk.
fn left() -> Left {
    let mut left = leave(Work::small(7, 1), CrashProfile::Nothing);
    left.history.vouched = anchor(1).vouched;
    assert!(Pos(0) < left.synced && left.synced < left.end());
    left
}

fn refused(left: &Left, tails: &[KeptTail<'_>], texts: &[&str]) {
    let before = left.disk.ops();
    let error = left.drain(tails).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    let error = error.to_string();
    for text in texts {
        assert!(error.contains(text), "{text}: {error}");
    }
    assert_eq!(left.disk.ops(), before, "nothing is written");
}

#[test]
fn a_drain_of_nothing_writes_nothing() {
    let left = left();
    let end = left.scan().valid_end;
    let ops = left.disk.ops();
    let garbage = [1; 5000];
    for bytes in [&[][..], &garbage] {
        for from in [Pos(0), left.synced, Pos(17), Pos(u64::MAX - 3)] {
            let tail = KeptTail {
                holder: "a".into(),
                from,
                bytes,
            };
            let drained = left.drain(&[tail]).unwrap();
            assert_eq!((drained.from, drained.end, drained.blocks), (end, end, 0));
            assert_eq!(
                drained.notes.is_empty(),
                bytes.is_empty(),
                "{:?}",
                drained.notes
            );
        }
    }
    assert_eq!(left.disk.ops(), ops);
}

#[test]
fn rot_and_a_cut_in_a_tail_end_it_at_the_block_before() {
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..30 {
        let left = left();
        let from = left.bound_before(left.synced);
        let mut bytes = left.all[at(from)..].to_vec();
        let bad = rng.usize(at(left.synced) - at(from)..bytes.len());
        let expected = left.bound_before(Pos(from.0 + bad as u64));
        match rng.bool() {
            true => bytes[bad] ^= 1 << rng.u8(..8),
            false => bytes.truncate(bad),
        }
        let tail = KeptTail {
            holder: "node a".into(),
            from,
            bytes: &bytes,
        };
        let drained = left.drain(&[tail]).unwrap();
        assert_eq!(drained.end, expected.max(left.synced));
        assert_eq!(left.scan().valid_end, drained.end);
        let is_noted = at(drained.end) != at(from) + bytes.len();
        assert_eq!(
            drained.notes.len(),
            usize::from(is_noted),
            "{:?}",
            drained.notes
        );
        assert!(drained.notes.iter().all(|note| note.contains("node a")));
        // The tail of another node continues where the first drain ended.
        let other = left.tail("b", drained.end, left.end());
        assert_eq!(left.drain(&[other]).unwrap().end, left.end());
        left.check_whole();
    }
}

#[test]
fn tails_that_hold_parts_are_put_together_with_the_disk() {
    let mut rng = fastrand::Rng::with_seed(2);
    for seed in 0..60 {
        let left = leave(Work::small(seed, rng.u64(1..40)), CrashProfile::Worst);
        let mut bounds = || left.bounds[rng.usize(0..left.bounds.len())];
        let (one, two) = (bounds(), bounds());
        let (low, high) = (one.min(two), one.max(two));
        let tails = [
            left.tail("b", low, left.end()),
            left.tail("a", left.synced.min(low), high.max(low)),
        ];
        assert_eq!(left.drain(&tails).unwrap().end, left.end());
        left.disk.crash(CrashProfile::Nothing, seed);
        left.check_whole();
    }
}

#[test]
fn a_segment_that_another_one_follows_says_so_after_a_drain_too() {
    let left = left();
    let path = left.place(left.synced).0;
    let is_followed = || left.disk.read_all(&path).unwrap()[7] == 1;
    assert!(is_followed(), "the next segment is placed ahead");
    let mut bounds = left.bounds.iter().filter(|bound| **bound > left.synced);
    let end = *bounds.next().unwrap();
    let tail = left.tail("a", left.synced, end);
    let drained = left.drain(&[tail]).unwrap();
    assert_eq!((drained.from, drained.end), (left.bounds[0], end));
    assert!(is_followed());
}

/// Returns another log of the same life. Its blocks differ from the blocks of [`left`].
fn other() -> Left {
    leave(Work::small(9, 1), CrashProfile::Nothing)
}

#[test]
fn places_that_differ_are_refused_and_both_are_named() {
    let (left, other) = (left(), other());
    let from = left.bound_before(left.synced);
    let tails = [
        left.tail("node a", from, left.end()),
        other.tail("node b", Pos(0), other.end()),
    ];
    let position = format!("at position {from}");
    refused(
        &left,
        &tails,
        &["in the copy of node a", "in the copy of node b", &position],
    );
    let path = left.place(Pos(0)).0;
    let on_disk = format!("{path} at byte 4096 has at position 0");
    refused(&left, &tails[1..], &["in the copy of node b", &on_disk]);
    // This block begins inside a block on the disk.
    let mut blocks = other.bounds.iter().zip(&other.bounds[1..]);
    let (within, end) = blocks
        .find(|(start, _)| !left.bounds.contains(start))
        .unwrap();
    let tail = other.tail("node b", *within, *end);
    let position = format!("a first block at position {within}");
    refused(&left, &[tail], &["contradict each other", &position]);
}

#[test]
fn a_tail_behind_the_end_of_disk_and_other_tails_is_refused_with_both_positions() {
    let left = left();
    let next = left
        .bounds
        .iter()
        .position(|bound| *bound == left.synced)
        .unwrap();
    let (gap, later) = (left.bounds[next + 1], left.bounds[next + 3]);
    let ends = format!("from position {} on", left.synced);
    let begins = format!("a first block at position {gap}");
    let tail = left.tail("node a", gap, left.end());
    refused(
        &left,
        std::slice::from_ref(&tail),
        &["in the copy of node a", &ends, &begins],
    );
    let before = left.tail("node b", left.synced, gap);
    let later = left.tail("node c", later, left.end());
    let ends = format!("from position {gap} on");
    refused(
        &left,
        &[before.clone(), later],
        &["in the copy of node c", &ends],
    );
    assert_eq!(left.drain(&[tail, before]).unwrap().end, left.end());
    left.check_whole();
}

#[test]
fn a_tail_of_another_life_counts_for_nothing_and_a_newer_builds_block_is_refused() {
    let mut left = left();
    let from = left.bound_before(left.synced);
    let mut bytes = left.all[at(from)..].to_vec();
    bytes[276] = 1;
    let crc = crc32c(&bytes[..HEADER_BYTES - 4]).to_le_bytes();
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc);
    let newer = KeptTail {
        holder: "node a".into(),
        from,
        bytes: &bytes,
    };
    refused(&left, &[newer], &["newer build", "in the copy of node a"]);
    left.history.incarnation = Incarnation(9);
    let drained = left.drain(&[left.tail("a", Pos(0), left.end())]).unwrap();
    assert_eq!((drained.end, drained.blocks), (Pos(0), 0));
    assert!(
        drained.notes[0].contains("another life"),
        "{:?}",
        drained.notes
    );
    left.history.incarnation = Incarnation(1);
    left.history.uuid = Uuid([9; 16]);
    let ops = left.disk.ops();
    let foreign = left.drain(&[left.tail("a", Pos(0), left.end())]);
    assert!(matches!(foreign, Err(Error::Foreign { .. })));
    assert_eq!(left.disk.ops(), ops);
}

#[test]
fn a_drain_goes_on_after_a_full_disk_and_after_a_failed_sync() {
    let plans = [
        FaultPlan {
            enospc_at: Some((1, 3)),
            ..FaultPlan::default()
        },
        FaultPlan {
            refuse_write_at: Some((3, 2)),
            ..FaultPlan::default()
        },
        FaultPlan {
            fail_sync_at: Some((3, SyncFailure::KeepsNew)),
            ..FaultPlan::default()
        },
    ];
    for plan in plans {
        let left = left();
        let tail = [left.tail("a", left.synced, left.end())];
        let is_final = plan.fail_sync_at.is_some();
        left.disk.set_plan(plan);
        let failed = left.drain(&tail).unwrap_err();
        assert_eq!(matches!(failed, Error::Stopped(_)), is_final, "{failed}");
        assert_eq!(failed.is_disk_full(), !is_final, "{failed}");
        left.disk.crash(CrashProfile::Nothing, 1);
        assert_eq!(left.drain(&tail).unwrap().end, left.end());
        left.disk.crash(CrashProfile::Nothing, 2);
        left.check_whole();
    }
}
