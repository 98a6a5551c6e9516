//! Run generation by replacement selection. This is row `selection` of [`Generation`](crate::generation::Generation).
//!
//! All records are in one selection tree, ordered by the run's number and then by the sort key in the run. While the
//! records of the *leaving run* leave the tree and are written, arriving records join the next run, the *collected
//! run*. So one workspace is enough to read the log while a run is written. An arriving record always joins the
//! collected run, even if the record sorts after the last written record. So each run holds a contiguous piece of the
//! log.
//!
//! A run ends where an epoch ends. In the paper, a run ends when the memory is full and the previous run is written,
//! even in the middle of an epoch. Our run continues to the end of the epoch. Until then, new records join the
//! collected run, even if all records of the previous run have left the tree.
//!
//! # Source
//! "Single-pass restore after a media failure", 3.1: replacement selection, except that no record joins the leaving
//! run.
//! # Deviations
//! * A run ends with an epoch, not with an arbitrary record.
//! * The memory of a run's records is freed when the whole run has left the tree, not record by record. So the run that
//!   is being written takes memory in addition to the workspace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use perdura_base::{Epoch, Result};
use perdura_page::{Chunks, PageRecord};

use crate::name::EpochRange;
use crate::record::RunRecord;
use crate::workspace::{Arena, EPOCHS_MAX, InOrder, Key, cut_range};

/// The size of an entry of the tree, bytes. An entry consists of a run's number and a key.
const ENTRY_BYTES: usize = size_of::<Reverse<(u64, Key)>>();

/// The run that the last call of [`Selecting::cut`] ended. Its records are leaving the tree.
struct Leaving {
    arena: Arena,
    /// The total size of the records that have left the tree, bytes.
    gone: usize,
    left: usize,
}

/// A selection tree with the records of two runs: the run that is being collected, and the previous run, which is being
/// written.
pub struct Selecting {
    chunks: Chunks,
    workspace_bytes: usize,
    tree: BinaryHeap<Reverse<(u64, Key)>>,
    /// The number of the collected run. The leaving run has the previous number.
    run: u64,
    begin: Epoch,
    epoch_max: Epoch,
    collecting: Arena,
    collected: usize,
    leaving: Option<Leaving>,
}

impl Selecting {
    /// Returns an empty tree. The first run begins with epoch `begin`.
    #[must_use]
    pub fn new(begin: Epoch, chunks: Chunks, workspace_bytes: usize) -> Selecting {
        Selecting {
            chunks,
            workspace_bytes,
            tree: BinaryHeap::new(),
            run: 1,
            begin,
            epoch_max: begin,
            collecting: Arena::new(begin, chunks),
            collected: 0,
            leaving: None,
        }
    }

    /// Returns the first epoch of the run that is being collected.
    #[must_use]
    pub fn begin(&self) -> Epoch {
        self.begin
    }

    /// Returns the memory that the records in the tree and the tree's entries take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let leaving = self.leaving.as_ref();
        let leaving = leaving.map_or(0, |run| run.arena.bytes() - run.gone);
        self.collecting.bytes() + leaving + self.tree.len() * ENTRY_BYTES
    }

    /// Returns whether the collected run should end with the current epoch. The reason is a full workspace, or the
    /// maximum number of epochs. The run can end only when the previous run has left the tree.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.workspace_bytes || self.epoch_max.0 - self.begin.0 >= EPOCHS_MAX - 1
    }

    /// Adds a record from a block of epoch `epoch` to the run that is being collected.
    ///
    /// # Errors
    /// [`Error::Usage`](perdura_base::Error::Usage) for an epoch below the run's first epoch, or at least 2^24 above
    /// the first epoch.
    ///
    /// # Panics
    /// If the records of one epoch take 32 GiB.
    #[inline]
    pub fn add(&mut self, epoch: Epoch, record: &PageRecord<'_>) -> Result<()> {
        let key = self.collecting.add(epoch, record)?;
        debug_assert!(
            self.tree
                .peek()
                .is_none_or(|Reverse((run, _))| *run <= self.run),
            "no run is ahead of the one that is being collected"
        );
        self.tree.push(Reverse((self.run, key)));
        self.collected += 1;
        self.epoch_max = self.epoch_max.max(epoch);
        Ok(())
    }

    /// Ends the collected run: its last epoch is the one before `end`. From then on the run's records leave the tree.
    ///
    /// # Errors
    /// [`Error::Usage`](perdura_base::Error::Usage) for an empty range of epochs, or if a record of `end` or a later
    /// epoch was added.
    ///
    /// # Panics
    /// If records of the previous run are still in the tree.
    pub fn cut(&mut self, end: Epoch) -> Result<EpochRange> {
        assert_eq!(self.left(), 0, "one run leaves after the other");
        let last = (self.collected > 0).then_some(self.epoch_max);
        let epochs = cut_range(self.begin, end, last)?;
        let next = Arena::new(end, self.chunks);
        self.leaving = Some(Leaving {
            arena: std::mem::replace(&mut self.collecting, next),
            gone: 0,
            left: std::mem::take(&mut self.collected),
        });
        self.run += 1;
        (self.begin, self.epoch_max) = (end, end);
        Ok(epochs)
    }

    /// Returns the number of records of the leaving run that are still in the tree.
    #[must_use]
    pub fn left(&self) -> usize {
        self.leaving.as_ref().map_or(0, |run| run.left)
    }
}

impl InOrder for Selecting {
    #[inline]
    fn next_record(&mut self) -> Option<RunRecord<'_>> {
        if self.left() == 0 {
            self.leaving = None;
            return None;
        }
        let Reverse((run, key)) = self.tree.pop()?;
        assert_eq!(run + 1, self.run, "the root is of the run that leaves");
        let leaving = self.leaving.as_mut()?;
        leaving.left -= 1;
        let record = leaving.arena.record(key);
        leaving.gone += Arena::bytes_of(record.fragment_bytes().len());
        debug_assert!(
            leaving.gone <= leaving.arena.bytes(),
            "what leaves was there"
        );
        Some(record)
    }
}
