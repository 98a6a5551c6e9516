//! Mistakes in the paper's algorithms. Each test runs the shortest history that shows one mistake. The engine must
//! restore the right rows. With feature `flaws`, the test then seeds the mistake, and the engine must fail to restore
//! them. This proves that the history shows the mistake.
//!
//! # Source
//! *Differential Logging* (000), algorithms 1 to 3.

use std::collections::BTreeMap;

use perdura_base::flaw::Flaw;
use perdura_base::{PartitionId, StreamId};
use perdura_device::Disk;
use perdura_steal::{Place, Records, Steal, StealOptions};
use perdura_wal::Scheme;

use crate::steal::harness::{Disks, begin, flush_stream, options, row, rows};

type Rows = BTreeMap<Place, Vec<u8>>;

/// A database of two partitions. Each partition has one page with a committed row. Image 1 is complete.
struct Lab {
    disks: Disks,
    steal: Steal,
    /// The places of the two rows, by partition.
    places: [Place; 2],
}

fn lab_options() -> StealOptions {
    options(Scheme::Dl1p, Records::Full)
}

impl Lab {
    fn new(streams: usize) -> Lab {
        let disks = Disks::new(streams, 1);
        let steal = Steal::create(disks.env.clone(), lab_options()).unwrap();
        for partition in 0..2 {
            let _durable_later = steal.grow(PartitionId(partition)).unwrap();
        }
        let mut setup = begin(&steal);
        let mut insert = |number| {
            let place = steal.insert(&mut setup.txn, &row(number)).unwrap();
            place.expect("there are free slots")
        };
        let places = [insert(1), insert(2)];
        let _durable_later = steal.commit(setup.txn);
        steal.checkpoint_now().unwrap();
        Lab {
            disks,
            steal,
            places,
        }
    }

    fn rows(&self) -> Rows {
        rows(&self.steal)
    }

    /// Begins a checkpoint and takes its steps until `partitions` partitions have been visited and written.
    fn visit(&self, partitions: u64) {
        self.steal.checkpoint_begin().unwrap();
        while self.steal.checkpoint_stats().partitions_done < partitions {
            self.steal.checkpoint_step().unwrap();
        }
    }

    /// Completes the running checkpoint.
    fn complete(&self) {
        self.steal.checkpoint_now().unwrap();
        assert!(!self.steal.checkpoint_is_running());
    }

    /// Crashes, and returns the restarted database. `None`: the restart fails.
    fn crash(self) -> Option<Lab> {
        let Lab {
            disks,
            steal,
            places,
        } = self;
        drop(steal);
        let steal = Steal::open(disks.env.clone(), lab_options()).ok()??;
        Some(Lab {
            disks,
            steal,
            places,
        })
    }

    /// Returns whether a restart after a crash finds these rows.
    fn crash_finds(self, expected: &Rows) -> bool {
        self.crash().is_some_and(|lab| lab.rows() == *expected)
    }
}

/// Checks that the history succeeds, and that it fails if any one of these flaws is seeded.
fn shows(history: fn() -> bool, flaws: &[Flaw]) {
    assert!(history(), "as built");
    #[cfg(feature = "flaws")]
    for flaw in flaws {
        perdura_base::flaw::arm(Some(*flaw));
        let right = history();
        perdura_base::flaw::arm(None);
        assert!(!right, "{flaw:?} does not show");
    }
    #[cfg(not(feature = "flaws"))]
    let _only_with_the_feature = flaws;
}

/// P1: a page is updated, the update is rolled back, and the checkpoint visits the page, all within the window. The
/// image has the old row. The update's record says that the update came before the visit. So a restart undoes the
/// update on a page that does not have it.
#[test]
fn p1a_a_rollback_within_the_window_after_an_update_within_it() {
    fn history() -> bool {
        let lab = Lab::new(1);
        let expected = lab.rows();
        lab.visit(0);
        let mut txn = lab.steal.begin();
        assert!(
            lab.steal
                .update(&mut txn, lab.places[0], &row(121))
                .unwrap()
        );
        lab.steal.abort(txn);
        lab.complete();
        lab.crash_finds(&expected)
    }
    shows(history, &[Flaw::NoClr, Flaw::PrintedRule]);
}

/// P1: the update comes before the window. The rollback comes within the window, before the page's visit. Another
/// transaction is active at the end mark, so the restart reads the log from before the window.
#[test]
fn p1b_a_rollback_within_the_window_after_an_update_before_it() {
    fn history() -> bool {
        let lab = Lab::new(1);
        let expected = lab.rows();
        let mut bystander = lab.steal.begin();
        assert!(
            lab.steal
                .update(&mut bystander, lab.places[1], &row(120))
                .unwrap()
        );
        let mut txn = lab.steal.begin();
        assert!(
            lab.steal
                .update(&mut txn, lab.places[0], &row(121))
                .unwrap()
        );
        lab.visit(0);
        lab.steal.abort(txn);
        lab.complete();
        lab.crash_finds(&expected)
    }
    shows(history, &[Flaw::NoClr, Flaw::PrintedRule]);
}

/// P1: one page is visited before the rollback and one after it. So the image has the rollback only on the second page.
/// No single record can say this.
#[test]
fn p1c_a_rollback_between_the_visits_of_its_pages() {
    fn history() -> bool {
        let lab = Lab::new(1);
        let expected = lab.rows();
        let mut txn = lab.steal.begin();
        for place in lab.places {
            assert!(lab.steal.update(&mut txn, place, &row(121)).unwrap());
        }
        lab.visit(1);
        lab.steal.abort(txn);
        lab.complete();
        lab.crash_finds(&expected)
    }
    shows(history, &[Flaw::NoClr, Flaw::PrintedRule]);
}

/// A rollback that began within a window stays compensated even when the window is cancelled.
#[test]
fn p1d_a_rollback_that_outlives_its_window_stays_compensated() {
    fn history() -> bool {
        let lab = Lab::new(1);
        let expected = lab.rows();
        let mut txn = lab.steal.begin();
        for place in lab.places {
            assert!(lab.steal.update(&mut txn, place, &row(121)).unwrap());
        }
        lab.visit(1);
        lab.steal.abort_begin(&mut txn);
        assert!(!lab.steal.abort_step(&mut txn));
        assert!(lab.steal.checkpoint_cancel());
        lab.visit(1);
        while !lab.steal.abort_step(&mut txn) {}
        lab.complete();
        assert_eq!(lab.steal.stats().aborts_compensated, 1);
        lab.crash_finds(&expected)
    }
    shows(history, &[]);
}

/// P2 (a): the page is changed and then visited, but the change's record is not in the log before the end mark. After
/// a crash the image has a change that no record can undo.
#[test]
fn p2a_a_record_appended_after_the_latch_is_lost_and_its_change_is_not() {
    fn history() -> bool {
        // The mistake affects only some transactions, so several are tried.
        (0..8).all(|tries| {
            let lab = Lab::new(1);
            let expected = lab.rows();
            for _ in 0..tries {
                lab.steal.abort(lab.steal.begin());
            }
            let mut txn = lab.steal.begin();
            assert!(
                lab.steal
                    .update(&mut txn, lab.places[0], &row(121))
                    .unwrap()
            );
            lab.steal.checkpoint_now().unwrap();
            lab.crash_finds(&expected)
        })
    }
    shows(history, &[Flaw::LateAppendSteal]);
}

/// P2 (b): the late record comes after the end mark, and its transaction commits. The restart compares the tags of all
/// records, not only of records within the window. So it does not apply the change twice.
#[test]
fn p2b_a_record_behind_the_end_mark_with_an_old_tag_is_not_applied_again() {
    fn history() -> bool {
        (0..8).all(|tries| {
            let lab = Lab::new(1);
            for _ in 0..tries {
                lab.steal.abort(lab.steal.begin());
            }
            let mut txn = lab.steal.begin();
            assert!(
                lab.steal
                    .update(&mut txn, lab.places[0], &row(121))
                    .unwrap()
            );
            lab.steal.checkpoint_now().unwrap();
            let _flushed_next = lab.steal.commit(txn);
            lab.steal.flush_all().unwrap();
            let expected = lab.rows();
            lab.crash_finds(&expected)
        })
    }
    shows(history, &[]);
    #[cfg(feature = "flaws")]
    {
        perdura_base::flaw::arm(Some(Flaw::LateAppendSteal));
        let right = history();
        perdura_base::flaw::arm(None);
        assert!(right, "tags make the late append of a winner harmless");
    }
}

/// P3: the updater reads the tag, the checkpointer visits the page, and the updater then changes the page. The
/// record's tag says that the image has the change, but the image does not have it.
#[test]
fn p3_a_tag_read_outside_the_latch_loses_a_committed_update() {
    fn history() -> bool {
        (0..8).all(|tries| {
            let lab = Lab::new(1);
            for _ in 0..tries {
                lab.steal.abort(lab.steal.begin());
            }
            let mut txn = lab.steal.begin();
            assert!(
                lab.steal
                    .update(&mut txn, lab.places[0], &row(121))
                    .unwrap()
            );
            lab.steal.checkpoint_now().unwrap();
            let _flushed_next = lab.steal.commit(txn);
            lab.steal.flush_all().unwrap();
            let expected = lab.rows();
            lab.crash_finds(&expected)
        })
    }
    shows(history, &[Flaw::FlagOutsideLatch]);
}

/// P4: a page is written to the image directly from memory, after its latch is released. A change after the release
/// reaches the image, although the tag of the change's record says that the image lacks the change.
#[test]
fn p4_a_page_copied_after_its_latch_has_a_change_twice() {
    fn history() -> bool {
        let lab = Lab::new(1);
        let mut first = lab.steal.begin();
        assert!(
            lab.steal
                .update(&mut first, lab.places[0], &row(120))
                .unwrap()
        );
        let _durable_later = lab.steal.commit(first);
        lab.visit(0);
        // The first step visits partition 0. The next step writes the pages of this partition.
        lab.steal.checkpoint_step().unwrap();
        let mut txn = lab.steal.begin();
        assert!(
            lab.steal
                .update(&mut txn, lab.places[0], &row(121))
                .unwrap()
        );
        let _durable_later = lab.steal.commit(txn);
        lab.complete();
        let expected = lab.rows();
        lab.crash_finds(&expected)
    }
    shows(history, &[Flaw::CopyAfterLatch]);
}

/// P5: a cancelled sweep has visited some pages. If each visit toggled a bit, these pages would differ from the
/// unvisited pages for ever. The engine instead assigns the checkpoint's epoch to each visited page.
#[test]
fn p5_a_cancelled_checkpoint_leaves_no_mixed_parity() {
    fn history() -> bool {
        let lab = Lab::new(1);
        lab.visit(1);
        assert!(lab.steal.checkpoint_cancel());
        lab.visit(0);
        let mut txn = lab.steal.begin();
        assert!(
            lab.steal
                .update(&mut txn, lab.places[1], &row(121))
                .unwrap()
        );
        let _durable_later = lab.steal.commit(txn);
        lab.complete();
        let expected = lab.rows();
        lab.crash_finds(&expected)
    }
    shows(history, &[Flaw::PrintedRule]);
}

/// P6: a transaction commits after the active list was copied and before the end mark is appended. So the end mark
/// lists the transaction as active although the commit precedes the mark. A restart undoes the transaction's older
/// updates.
#[test]
fn p6_a_commit_between_the_active_list_and_the_end_mark() {
    fn history() -> bool {
        let lab = Lab::new(1);
        let mut txn = lab.steal.begin();
        assert!(
            lab.steal
                .update(&mut txn, lab.places[0], &row(121))
                .unwrap()
        );
        lab.visit(2);
        // The pages are synced and the directory is written. The end marks come next.
        lab.steal.checkpoint_step().unwrap();
        lab.steal.checkpoint_step().unwrap();
        let _durable_later = lab.steal.commit(txn);
        lab.complete();
        let expected = lab.rows();
        lab.crash_finds(&expected)
    }
    shows(history, &[Flaw::ListRace]);
}

/// P7 (a): a crash interrupts a checkpoint. The incomplete image has a change of an uncommitted transaction. The
/// restart loads the other image. The next checkpoint into the incomplete image must write all pages.
#[test]
fn p7a_the_other_image_is_not_trusted_after_a_crash() {
    fn history() -> bool {
        let lab = Lab::new(1);
        lab.steal.checkpoint_now().unwrap();
        let expected = lab.rows();
        let mut loser = lab.steal.begin();
        assert!(
            lab.steal
                .update(&mut loser, lab.places[0], &row(121))
                .unwrap()
        );
        lab.visit(1);
        let Some(lab) = lab.crash() else {
            return false;
        };
        lab.steal.checkpoint_now().unwrap();
        lab.crash_finds(&expected)
    }
    shows(history, &[Flaw::OtherImageTrusted]);
}

/// P7 (a): the restart loads an image. Redo and undo then make changes, which the image lacks. The next checkpoint into
/// this image must write the changed pages.
#[test]
fn p7a_pages_that_restart_changed_are_dirty_for_its_own_image() {
    fn history() -> bool {
        let lab = Lab::new(1);
        lab.steal.checkpoint_now().unwrap();
        let mut txn = lab.steal.begin();
        assert!(
            lab.steal
                .update(&mut txn, lab.places[0], &row(121))
                .unwrap()
        );
        let _flushed_next = lab.steal.commit(txn);
        lab.steal.flush_all().unwrap();
        let expected = lab.rows();
        let Some(lab) = lab.crash() else {
            return false;
        };
        lab.steal.checkpoint_now().unwrap();
        lab.steal.checkpoint_now().unwrap();
        lab.crash_finds(&expected)
    }
    shows(history, &[Flaw::RestartChangesClean]);
}

/// P7 (b): a crash interrupted a checkpoint. Tags in the log have that checkpoint's number. So no later checkpoint may
/// have the same number.
#[test]
fn p7b_the_number_of_a_crashed_checkpoint_is_not_used_again() {
    fn history() -> bool {
        let lab = Lab::new(1);
        lab.visit(1);
        let mut txn = lab.steal.begin();
        assert!(
            lab.steal
                .update(&mut txn, lab.places[0], &row(121))
                .unwrap()
        );
        let _flushed_next = lab.steal.commit(txn);
        lab.steal.flush_all().unwrap();
        let crashed = lab.steal.heap().ckpt_epoch();
        let Some(lab) = lab.crash() else {
            return false;
        };
        // The next checkpoint takes the number after the heap's. It refuses a number that is already used.
        if lab.steal.heap().ckpt_epoch() < crashed {
            return false;
        }
        lab.steal.checkpoint_now().unwrap();
        lab.steal.heap().ckpt_epoch() > crashed
    }
    shows(history, &[Flaw::CkptEpochReused]);
}

/// P7 (c): a transaction is lost if its epoch was not durable in every stream, even if its own stream has all of its
/// records. The transaction must stay lost when later epochs become durable.
#[test]
fn p7c_losers_are_dead_for_all_later_restarts() {
    fn history() -> bool {
        let lab = Lab::new(2);
        let expected = lab.rows();
        let in_stream = |stream| {
            loop {
                let txn = lab.steal.begin();
                if txn.stream() == StreamId(stream) {
                    return txn;
                }
                lab.steal.abort(txn);
            }
        };
        let (mut lost, mut other) = (in_stream(0), in_stream(1));
        assert!(
            lab.steal
                .update(&mut lost, lab.places[0], &row(121))
                .unwrap()
        );
        assert!(
            lab.steal
                .update(&mut other, lab.places[1], &row(122))
                .unwrap()
        );
        let lost = lab.steal.commit(lost);
        let other = lab.steal.commit(other);
        assert_eq!(lost.epoch, other.epoch);
        lab.steal.close_epoch();
        flush_stream(&lab.steal, 0);
        assert!(!lab.steal.is_acked(&lost));
        let Some(lab) = lab.crash() else {
            return false;
        };
        if lab.rows() != expected {
            return false;
        }
        let mut later = lab.steal.begin();
        assert!(
            lab.steal
                .update(&mut later, lab.places[1], &row(123))
                .unwrap()
        );
        let _flushed_next = lab.steal.commit(later);
        lab.steal.flush_all().unwrap();
        let expected = lab.rows();
        lab.crash_finds(&expected)
    }
    shows(history, &[Flaw::CutIgnored, Flaw::VoidTailRevived]);
}

/// Locks are released at pre-commit, and each stream is synced separately. Without epochs, a transaction could be
/// acknowledged although a crash loses a transaction that it depends on.
#[test]
fn a_commit_is_acknowledged_only_with_what_it_depends_on() {
    fn history() -> bool {
        let lab = Lab::new(2);
        let in_stream = |stream| {
            loop {
                let txn = lab.steal.begin();
                if txn.stream() == StreamId(stream) {
                    return txn;
                }
                lab.steal.abort(txn);
            }
        };
        let mut first = in_stream(0);
        assert!(
            lab.steal
                .update(&mut first, lab.places[0], &row(121))
                .unwrap()
        );
        let _never_durable = lab.steal.commit(first);
        let mut second = in_stream(1);
        assert!(
            lab.steal
                .update(&mut second, lab.places[0], &row(122))
                .unwrap()
        );
        let second = lab.steal.commit(second);
        lab.steal.close_epoch();
        flush_stream(&lab.steal, 1);
        let acked = lab.steal.is_acked(&second);
        let expected = lab.rows();
        !acked || lab.crash_finds(&expected)
    }
    shows(history, &[Flaw::NoEpochs]);
}

/// The images of a database may be on several disks. Each page is only on the disk of its partition.
#[test]
fn pages_of_a_partition_are_on_its_image_disk() {
    let disks = Disks::new(1, 2);
    let steal = Steal::create(disks.env.clone(), lab_options()).unwrap();
    let _durable_later = steal.grow(PartitionId(1)).unwrap();
    steal.checkpoint_now().unwrap();
    let bytes = |disk: &dyn Disk| {
        let file = disk.open("image-a/pages", perdura_device::Access::Buffered);
        file.unwrap().len().unwrap()
    };
    assert_eq!(bytes(disks.env.disks.images[0].as_ref()), 4096, "no page");
    assert!(bytes(disks.env.disks.images[1].as_ref()) > 4096);
    assert_eq!(steal.anchor().get().images.disks, 2);
}
