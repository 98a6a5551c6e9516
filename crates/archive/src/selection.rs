//! Run generation by replacement selection. This is row `selection` of [`Generation`](crate::generation::Generation).
//!
//! The records are in one selection tree, ordered by the number of their run and then in the order of runs. While the
//! records of one run leave the tree in order and are written, arriving records join the next run. So one workspace
//! is enough to read the log while a run is written. An arriving record always gets the number of the run that is
//! being collected, whatever its place in the order, so each run holds a contiguous piece of the log.
//!
//! A run ends where an epoch ends. In the paper a run ends with the record at which the memory is full and the run
//! before it is written out. Our run continues to the end of the epoch that is being read. During that time the last
//! records of the run before may already have left the tree. New records still join the run that is being collected.
//!
//! # Source
//! "Single-pass restore after a media failure", 3.1: replacement selection, without letting a record join the run
//! that is being written.
//! # Deviations
//! * A run ends with an epoch, not with any record.
//! * The memory of a run's records is freed when all of them have left the tree, not record by record. So the run
//!   that is being written takes memory in addition to the workspace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use perdura_base::{Epoch, Result};
use perdura_page::{Chunks, PageRecord};

use crate::name::EpochRange;
use crate::record::RunRecord;
use crate::workspace::{Arena, EPOCHS_MAX, InOrder, Key, cut_range};

/// The size of an entry of the tree, bytes. An entry is a run's number and a key.
const ENTRY_BYTES: usize = size_of::<Reverse<(u64, Key)>>();

/// A run that was cut and whose records leave the tree.
struct Leaving {
    arena: Arena,
    /// The size of the records that have left the tree, bytes.
    gone: usize,
    left: usize,
}

/// The selection tree, the run that is being collected, and the run that leaves the tree.
pub struct Selecting {
    chunks: Chunks,
    workspace_bytes: usize,
    tree: BinaryHeap<Reverse<(u64, Key)>>,
    /// The number of the run that is being collected. The run that leaves the tree has the number before it.
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

    /// Returns the size of the records in the tree, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let leaving = self.leaving.as_ref();
        let leaving = leaving.map_or(0, |run| run.arena.bytes() - run.gone);
        self.collecting.bytes() + leaving + self.tree.len() * ENTRY_BYTES
    }

    /// Returns whether the workspace is full. If it is, the run that is being collected should end with the epoch
    /// that is being read, as soon as the run before it has left the tree.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.workspace_bytes || self.epoch_max.0 - self.begin.0 >= EPOCHS_MAX - 1
    }

    /// Adds a record from a block of epoch `epoch` to the run that is being collected.
    ///
    /// # Errors
    /// [`Error::Usage`](perdura_base::Error::Usage) for an epoch before the run's first one, or too far after it.
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

    /// Ends the run that is being collected just before epoch `end`. From now on its records leave the tree.
    ///
    /// # Errors
    /// [`Error::Usage`](perdura_base::Error::Usage) if a record of `end` or a later epoch was added, or if the run
    /// would have no epoch.
    ///
    /// # Panics
    /// If the run before it has records in the tree.
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

    /// Returns the number of records of the cut run that are still in the tree.
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
