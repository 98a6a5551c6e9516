//! Tests of the monitor's notes and of their use at restart. In the tested cases, the paper's unchanged algorithms lose
//! an update.

use perdura_base::{Gsn, Pid};
use perdura_formats::tree_record::{Delta, EndCheckpoint, Writes};
use perdura_tree::analysis::{AriesAnalysis, Detail, LogicalAnalysis, SqlAnalysis};
use perdura_tree::dirty_pages::{DirtyPages, Skip};
use perdura_tree::monitor::{Limits, Monitor, Tells};

const A: Pid = Pid(1);
const B: Pid = Pid(2);

fn monitor() -> Monitor {
    let mut monitor = Monitor::new(Limits::default(), 0, Tells::DeltasWithNumbers);
    monitor.end_restart();
    monitor
}

/// Notes a write of a page's current state. `eosl` is the end of the stable log.
fn write(monitor: &mut Monitor, pid: Pid, eosl: Gsn) {
    let copied = monitor.dirty(pid).expect("a dirty page");
    assert!(monitor.may_write(pid, eosl));
    monitor.note_written(pid, copied, eosl);
}

fn cut(monitor: &mut Monitor, eosl: Gsn) -> (Delta, Option<Writes>) {
    monitor.cut(eosl).expect("notes")
}

fn table(rssp: Gsn, detail: Detail, deltas: &[&Delta]) -> DirtyPages {
    let mut analysis = LogicalAnalysis::new(detail, rssp);
    for delta in deltas {
        analysis.delta(delta);
    }
    analysis.finish()
}

#[test]
fn a_delta_tells_what_was_dirtied_before_and_behind_the_first_write() {
    let mut monitor = monitor();
    for (pid, gsn) in [(A, 1), (B, 2), (A, 3)] {
        monitor.note(pid, Gsn(gsn));
    }
    write(&mut monitor, A, Gsn(3));
    monitor.note(B, Gsn(4));
    let (delta, writes) = cut(&mut monitor, Gsn(4));
    let want = Delta {
        first_note: 0,
        tc_lsn: Gsn(4),
        fw_lsn: Gsn(3),
        first_dirty: 3,
        dirty: vec![A, B, A, B],
        written: vec![A],
        lsns: Some(vec![Gsn(1), Gsn(2), Gsn(3), Gsn(4)]),
    };
    assert_eq!(delta, want);
    let want = Writes {
        fw_lsn: Gsn(3),
        written: vec![A],
    };
    assert_eq!(writes, Some(want));
    let table = table(Gsn(0), Detail::Standard, &[&delta]);
    assert_eq!(table.skips(A, Gsn(3)), Some(Skip::Clean));
    assert_eq!(table.skips(B, Gsn(2)), None);
    assert_eq!(table.skips(B, Gsn(5)), None, "the tail is judged by pages");
    assert_eq!(table.prefetch(), [A, B]);
    assert_eq!(monitor.cut(Gsn(4)), None);
}

#[test]
fn a_delta_counts_by_where_it_stands_and_not_by_its_stable_end() {
    // The redo start is 2, operation 3 is noted, and the stable log still ends at 1.
    let mut monitor = monitor();
    monitor.note(A, Gsn(1));
    write(&mut monitor, A, Gsn(1));
    assert_eq!(monitor.begin_checkpoint(|| Gsn(2)), Gsn(2));
    monitor.note(B, Gsn(3));
    let (first, _) = cut(&mut monitor, Gsn(1));
    monitor.note(A, Gsn(6));
    let (second, _) = cut(&mut monitor, Gsn(6));
    for detail in [Detail::Standard, Detail::Numbers, Detail::Reduced] {
        let table = table(Gsn(2), detail, &[&first, &second]);
        assert_eq!(table.knows(), Gsn(6));
        assert_eq!(table.skips(B, Gsn(3)), None, "{detail:?}: 3 is on no disk");
    }
}

#[test]
fn a_page_that_is_dirtied_again_behind_its_write_stays_in_the_table() {
    let mut monitor = monitor();
    monitor.note(A, Gsn(1));
    let (first, _) = cut(&mut monitor, Gsn(1));
    write(&mut monitor, A, Gsn(1));
    monitor.note(A, Gsn(2));
    let (second, _) = cut(&mut monitor, Gsn(2));
    for detail in [Detail::Standard, Detail::Numbers, Detail::Reduced] {
        let table = table(Gsn(0), detail, &[&first, &second]);
        assert_eq!(table.skips(A, Gsn(2)), None, "{detail:?}");
    }
    let mut analysis = SqlAnalysis::new();
    analysis.update(A, Gsn(1));
    analysis.update(A, Gsn(2));
    analysis.writes(&Writes {
        fw_lsn: Gsn(1),
        written: vec![A],
    });
    assert_eq!(analysis.finish().skips(A, Gsn(2)), None);
}

#[test]
fn a_page_that_has_changed_since_it_was_copied_was_not_written() {
    let mut monitor = monitor();
    monitor.note(A, Gsn(1));
    let copied = monitor.dirty(A).expect("a dirty page");
    monitor.note(A, Gsn(2));
    monitor.note_written(A, copied, Gsn(2));
    let (delta, writes) = cut(&mut monitor, Gsn(2));
    assert_eq!((delta.written.len(), writes), (0, None));
    assert!(monitor.dirty(A).is_some());
}

#[test]
fn a_checkpoint_ends_when_each_page_that_was_dirty_at_its_begin_is_written() {
    let mut monitor = monitor();
    monitor.note(A, Gsn(1));
    let early = monitor.dirty(A).expect("a dirty page");
    monitor.begin_checkpoint(|| Gsn(2));
    monitor.note(A, Gsn(3));
    monitor.note(B, Gsn(4));
    // A copy made before the redo start does not count as the write that the checkpoint needs.
    monitor.note_written(A, early, Gsn(4));
    assert_eq!(monitor.end_checkpoint(), None);
    assert_eq!(monitor.owed().collect::<Vec<_>>(), [A]);
    let copied = monitor.dirty(A).expect("a dirty page");
    monitor.note(A, Gsn(5));
    monitor.note_written(A, copied, Gsn(5));
    let end = monitor.end_checkpoint().expect("the end");
    let want = EndCheckpoint {
        rssp: Gsn(2),
        dirty: vec![(A, Gsn(3)), (B, Gsn(4))],
    };
    assert_eq!(end, want);
    let mut analysis = AriesAnalysis::new();
    analysis.update(Pid(9), Gsn(3));
    analysis.checkpoint(&end);
    let table = analysis.finish();
    assert_eq!(table.skips(Pid(9), Gsn(3)), Some(Skip::Clean));
    assert_eq!(table.skips(B, Gsn(3)), Some(Skip::BeforeRLsn));
    assert_eq!(table.skips(B, Gsn(4)), None);
}

/// Tests a copy of a page that was made for a cancelled checkpoint. The page changed after the copy and before the next
/// checkpoint began. The copy lacks this change, so the next checkpoint must still write the page.
#[test]
fn a_copy_that_was_made_for_a_checkpoint_which_was_given_up_pays_for_no_other() {
    let mut monitor = monitor();
    monitor.note(A, Gsn(1));
    monitor.begin_checkpoint(|| Gsn(2));
    let copied = monitor.dirty(A).expect("a dirty page");
    monitor.cancel_checkpoint();
    assert_eq!(monitor.end_checkpoint(), None);
    monitor.note(A, Gsn(3));
    monitor.begin_checkpoint(|| Gsn(4));
    monitor.note_written(A, copied, Gsn(4));
    assert_eq!(monitor.owed().collect::<Vec<_>>(), [A]);
    assert_eq!(monitor.end_checkpoint(), None);
    let copied = monitor.dirty(A).expect("a dirty page");
    monitor.note_written(A, copied, Gsn(4));
    assert!(
        monitor
            .end_checkpoint()
            .is_some_and(|end| end.dirty.is_empty())
    );
}

#[test]
fn a_restart_notes_what_it_dirties_and_not_what_it_writes() {
    let mut monitor = Monitor::new(Limits::default(), 7, Tells::Deltas);
    // The monitor notes first a change of structure, then an older operation. The page has changed, although its
    // highest number has not.
    monitor.note(A, Gsn(9));
    let copied = monitor.dirty(A).expect("a dirty page");
    monitor.note(A, Gsn(5));
    monitor.note_written(A, copied, Gsn(9));
    let dirty = monitor.dirty(A).expect("still dirty");
    assert_eq!((dirty.r_lsn, dirty.last), (Gsn(5), Gsn(9)));
    monitor.note_written(A, dirty, Gsn(9));
    assert_eq!(monitor.dirty(A), None);
    monitor.end_restart();
    let (delta, writes) = cut(&mut monitor, Gsn(9));
    assert_eq!((delta.first_note, delta.dirty), (7, vec![A, A]));
    assert_eq!((delta.written, writes), (vec![], None));
}
