//! The states of a checkpoint, with one table of their successors.
//!
//! Failing and giving up are events like any other. A checkpoint in `Anchor` or `Truncate` cannot be abandoned: the
//! anchor may name its image already.

/// The indices of the two shares in the list of shares: `HEAP` for the pages in memory, `TREES` for the trees.
pub(super) const HEAP: usize = 0;
pub(super) const TREES: usize = 1;

/// The next step of a running checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Copies pages of the next partition under its latch.
    Copy,
    /// Writes the staged pages from index `run` on. `is_last` is true once the partition's last page was visited.
    Write {
        partition: u16,
        is_last: bool,
        run: usize,
    },
    /// Syncs the pages files.
    SyncPages,
    /// Completes the directory.
    Directory,
    /// Writes the trees' pages that were dirty at the begin.
    Trees,
    /// Appends the end marks.
    Mark,
    /// Waits until the end marks are durable.
    Await,
    /// Names the image in the anchor.
    Anchor,
    /// Cuts the log and removes old directories.
    Truncate,
}

/// A state of a checkpoint: a phase without its operands, or `Idle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Idle,
    Copy,
    Write,
    SyncPages,
    Directory,
    Trees,
    Mark,
    Await,
    Anchor,
    Truncate,
}

/// An event of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The begin marks are appended and the checkpoint epoch is published.
    Begin,
    /// A batch of pages is staged.
    Staged,
    /// Staged pages that lie side by side are written.
    RunWritten,
    /// The batch is written, and the sweep has more pages to visit.
    BatchWritten,
    /// The batch is written, and it was the last batch of the last partition.
    LastBatchWritten,
    /// The pages files are synced.
    Synced,
    /// The directory is complete and durable, and trees still have pages to write.
    TreesDirty,
    /// The directory and the tree pages that were dirty at the begin are durable. The records that end the trees'
    /// checkpoints are in the log.
    TreesClean,
    /// The end marks are appended.
    Marked,
    /// The end marks are not durable yet.
    NotDurable,
    /// The end marks are durable.
    Durable,
    /// The update of the anchor was refused for want of space.
    Refused,
    /// The anchor names the image.
    Named,
    /// The log is cut, except parts that the disk failed to remove.
    Truncated,
    /// A step failed.
    Fail,
    /// The caller gives the checkpoint up.
    Abandon,
}

impl Phase {
    /// Returns the index of the share that the phase belongs to. `None`: the phase comes after the phases of all
    /// shares.
    pub(super) fn share(self) -> Option<usize> {
        match self {
            Phase::Copy | Phase::Write { .. } | Phase::SyncPages | Phase::Directory => Some(HEAP),
            Phase::Trees => Some(TREES),
            Phase::Mark | Phase::Await | Phase::Anchor | Phase::Truncate => None,
        }
    }

    /// Returns the state that corresponds to the phase.
    pub(super) fn stage(self) -> Stage {
        match self {
            Phase::Copy => Stage::Copy,
            Phase::Write { .. } => Stage::Write,
            Phase::SyncPages => Stage::SyncPages,
            Phase::Directory => Stage::Directory,
            Phase::Trees => Stage::Trees,
            Phase::Mark => Stage::Mark,
            Phase::Await => Stage::Await,
            Phase::Anchor => Stage::Anchor,
            Phase::Truncate => Stage::Truncate,
        }
    }
}

impl Stage {
    /// Returns the state after an event. `None`: the event cannot happen in this state.
    pub(super) fn after(self, event: Event) -> Option<Stage> {
        use Event as On;
        use Stage as Is;
        match (self, event) {
            (Is::Idle, On::Begin) | (Is::Write, On::BatchWritten) => Some(Is::Copy),
            (Is::Copy, On::Staged) | (Is::Write, On::RunWritten) => Some(Is::Write),
            (Is::Write, On::LastBatchWritten) => Some(Is::SyncPages),
            (Is::SyncPages, On::Synced) => Some(Is::Directory),
            (Is::Directory | Is::Trees, On::TreesDirty) => Some(Is::Trees),
            (Is::Directory | Is::Trees, On::TreesClean) => Some(Is::Mark),
            (Is::Mark, On::Marked) | (Is::Await, On::NotDurable) => Some(Is::Await),
            (Is::Await, On::Durable) | (Is::Anchor, On::Refused) => Some(Is::Anchor),
            (Is::Anchor, On::Named) => Some(Is::Truncate),
            (Is::Truncate, On::Truncated)
            | (
                Is::Write | Is::SyncPages | Is::Directory | Is::Trees | Is::Await | Is::Anchor,
                On::Fail,
            )
            | (
                Is::Copy
                | Is::Write
                | Is::SyncPages
                | Is::Directory
                | Is::Trees
                | Is::Mark
                | Is::Await,
                On::Abandon,
            ) => Some(Is::Idle),
            (
                Is::Idle
                | Is::Copy
                | Is::Write
                | Is::SyncPages
                | Is::Directory
                | Is::Trees
                | Is::Mark
                | Is::Await
                | Is::Anchor
                | Is::Truncate,
                _,
            ) => None,
        }
    }

    /// Returns the state after an event.
    ///
    /// # Panics
    /// If the event cannot happen in this state. Such an event is a bug of the checkpointer, not a fault of the disk or
    /// the caller.
    pub(super) fn advance(self, event: Event) -> Stage {
        self.after(event)
            .unwrap_or_else(|| panic!("{event:?} of a checkpoint that is {self:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 16] = [
        Event::Begin,
        Event::Staged,
        Event::RunWritten,
        Event::BatchWritten,
        Event::LastBatchWritten,
        Event::Synced,
        Event::TreesDirty,
        Event::TreesClean,
        Event::Marked,
        Event::NotDurable,
        Event::Durable,
        Event::Refused,
        Event::Named,
        Event::Truncated,
        Event::Fail,
        Event::Abandon,
    ];

    /// A row for each state, with a cell for each event: the first letter of the next state. `S` is SyncPages, `t` is
    /// Trees, `T` is Truncate, and `.` is a pair that cannot happen.
    const TABLE: [(Stage, &str); 10] = [
        (Stage::Idle, "C..............."),
        (Stage::Copy, ".W.............I"),
        (Stage::Write, "..WCS.........II"),
        (Stage::SyncPages, ".....D........II"),
        (Stage::Directory, "......tM......II"),
        (Stage::Trees, "......tM......II"),
        (Stage::Mark, "........w......I"),
        (Stage::Await, ".........wA...II"),
        (Stage::Anchor, "...........AT.I."),
        (Stage::Truncate, ".............I.."),
    ];

    fn letter(stage: Stage) -> char {
        match stage {
            Stage::Idle => 'I',
            Stage::Copy => 'C',
            Stage::Write => 'W',
            Stage::SyncPages => 'S',
            Stage::Directory => 'D',
            Stage::Trees => 't',
            Stage::Mark => 'M',
            Stage::Await => 'w',
            Stage::Anchor => 'A',
            Stage::Truncate => 'T',
        }
    }

    #[test]
    fn every_state_of_a_checkpoint_answers_every_event_as_the_table_says() {
        for (stage, row) in TABLE {
            assert_eq!(row.len(), EVENTS.len(), "{stage:?}");
            for (event, cell) in EVENTS.into_iter().zip(row.chars()) {
                let next = stage.after(event).map_or('.', letter);
                assert_eq!(next, cell, "{event:?} of a checkpoint that is {stage:?}");
                let advanced = std::panic::catch_unwind(|| stage.advance(event));
                assert_eq!(advanced.ok(), stage.after(event));
            }
        }
    }

    #[test]
    fn a_checkpoint_that_the_anchor_may_name_cannot_be_abandoned() {
        for (stage, _) in TABLE {
            let is_named = matches!(stage, Stage::Anchor | Stage::Truncate | Stage::Idle);
            assert_eq!(stage.after(Event::Abandon).is_none(), is_named);
        }
    }
}
