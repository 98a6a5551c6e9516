//! Tests that each seeded bug of the second pass is detected.

use perdura_base::flaw::{Flaw, arm};

use crate::ordered::*;

fn with<T>(flaw: Flaw, run: impl FnOnce() -> T) -> T {
    arm(Some(flaw));
    let out = run();
    arm(None);
    out
}

fn is_seen_in_the_order(flaw: Flaw) -> bool {
    let machine = Machine::new();
    history(&machine, 3);
    (0..20).any(|seed| {
        let back = || machine.back(Schedule::inline(Level::Four, seed));
        let (recorder, _) = with(flaw, back).unwrap();
        let violations = recorder.violations.lock();
        !violations.is_empty()
    })
}

#[test]
fn a_fence_at_one_queue_and_an_order_that_is_not_kept_are_seen() {
    assert!(is_seen_in_the_order(Flaw::FenceAtOneQueue));
    assert!(is_seen_in_the_order(Flaw::ColumnImagesUnordered));
    assert!(!is_seen_in_the_order(Flaw::PoolsShared), "another place");
}

#[test]
fn a_gap_that_is_passed_over_is_seen() {
    let machine = Machine::new();
    let life = machine.declared();
    command(&life.wal, 0, &[part(0, 2)], "the second");
    flush_all(&life.wal).unwrap();
    drop(life);
    assert!(machine.refused().contains("transaction 1"));
    let back = || machine.back(Schedule::inline(Level::One, 0));
    let (recorder, _) = with(Flaw::SequenceGapIgnored, back).unwrap();
    assert!(!recorder.violations.lock().is_empty());
}

#[test]
fn void_frames_that_are_played_are_seen() {
    let machine = Machine::new();
    let life = machine.declared();
    command(&life.wal, 0, &[part(0, 1)], "durable");
    flush_all(&life.wal).unwrap();
    command(&life.wal, 0, &[part(0, 2)], "void");
    command(&life.wal, 1, &[part(1, 1)], "lost");
    life.wal.close_epoch();
    while life.wal.flush_step(StreamId(0)).unwrap() != perdura_wal::FlushProgress::Idle {}
    drop(life);
    for (flaw, played) in [(Flaw::PoolsShared, 1), (Flaw::CommandOfVoidTail, 2)] {
        let back = || machine.back(Schedule::inline(Level::One, 0));
        let (recorder, restarted) = with(flaw, back).unwrap();
        assert_eq!(recorder.all().len(), played);
        assert!(restarted.report.void_blocks > 0);
    }
}
