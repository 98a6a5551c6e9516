//! Run generation by sorting in memory. This is row `quick` of [`Generation`](crate::generation::Generation).
//!
//! Records of whole epochs are collected in a workspace. When the workspace is full, the records are sorted and written
//! as one run of level 0. The workspace has an arena with the records (see `workspace`) and a list of their keys.
//! Sorting compares and moves only the keys.
//!
//! A run ends where an epoch ends. The caller reads the log's streams one by one, so the records of an epoch arrive in
//! several batches. When the workspace is full, the caller reads the rest of the current epoch and then calls
//! [`Quick::cut`] with the next epoch. Before that call, the caller must have added all records up to the end of the
//! current epoch, and no later record. If one epoch does not fit, the workspace grows.
//!
//! # Source
//! "Single-pass restore after a media failure", 3.1, which proposes replacement selection and mentions quicksort as
//! an alternative.
//! # Deviations
//! Our default is to sort one workspace at a time. A caller with a second workspace for new records can read the log
//! while a run is being written.

use perdura_base::{Epoch, LifeId, Pos, Result, Uuid};
use perdura_page::{Chunks, PageRecord};

use crate::name::{EpochRange, RunId};
use crate::record::RunRecord;
use crate::run::{Codec, Moments, RunHeader};
use crate::workspace::{Arena, EPOCHS_MAX, InOrder, KEY_BYTES, Key, cut_range, write_some};
use crate::writer::{Progress, RunSummary, RunTarget, RunWriter, Tail};

/// The size of a workspace, bytes.
pub const WORKSPACE_BYTES: usize = 16 * 1024 * 1024;

/// A collector of the page records of whole epochs.
pub struct Quick {
    begin: Epoch,
    chunks: Chunks,
    workspace_bytes: usize,
    keys: Vec<Key>,
    arena: Arena,
    epoch_max: Epoch,
}

impl Quick {
    /// Returns an empty workspace for a run that begins with epoch `begin`.
    #[must_use]
    pub fn new(begin: Epoch, chunks: Chunks, workspace_bytes: usize) -> Quick {
        Quick {
            begin,
            chunks,
            workspace_bytes,
            keys: Vec::new(),
            arena: Arena::new(begin, chunks),
            epoch_max: begin,
        }
    }

    /// Returns the first epoch of the run.
    #[must_use]
    pub fn begin(&self) -> Epoch {
        self.begin
    }

    /// Returns the number of records in the workspace.
    #[must_use]
    pub fn records(&self) -> usize {
        self.keys.len()
    }

    /// Returns the memory that the records and their keys take, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arena.bytes() + self.keys.len() * KEY_BYTES
    }

    /// Returns whether the run should end with the epoch that is being read.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.workspace_bytes || self.epoch_max.0 - self.begin.0 >= EPOCHS_MAX - 1
    }

    /// Adds a record from a block of epoch `epoch`.
    ///
    /// # Errors
    /// [`Usage`](perdura_base::Error::Usage) for an epoch below the run's first epoch, or at least 2^24 above the first
    /// epoch. In the second case the caller has ignored [`is_full`](Self::is_full).
    ///
    /// # Panics
    /// If the records of one epoch take 32 GiB.
    #[inline]
    pub fn add(&mut self, epoch: Epoch, record: &PageRecord<'_>) -> Result<()> {
        self.keys.push(self.arena.add(epoch, record)?);
        self.epoch_max = self.epoch_max.max(epoch);
        Ok(())
    }

    /// Sorts the records for a run of the epochs before `end`. The caller must have read every stream exactly up to the
    /// beginning of epoch `end`.
    ///
    /// # Errors
    /// [`Usage`](perdura_base::Error::Usage) if a record of `end` or a later epoch was added: the run would have only
    /// some records of that epoch. [`Usage`](perdura_base::Error::Usage) if the run would have no epoch.
    pub fn cut(mut self, end: Epoch) -> Result<Sorted> {
        let last = (!self.keys.is_empty()).then_some(self.epoch_max);
        let epochs = cut_range(self.begin, end, last)?;
        self.keys.sort_unstable();
        Ok(Sorted {
            epochs,
            chunks: self.chunks,
            keys: self.keys,
            arena: self.arena,
            next: 0,
        })
    }
}

/// The sorted records of a run.
pub struct Sorted {
    epochs: EpochRange,
    chunks: Chunks,
    keys: Vec<Key>,
    arena: Arena,
    next: usize,
}

impl Sorted {
    /// Returns the run's epochs.
    #[must_use]
    pub fn epochs(&self) -> EpochRange {
        self.epochs
    }

    /// Returns the number of records that have not been encoded.
    #[must_use]
    pub fn left(&self) -> usize {
        self.keys.len() - self.next
    }

    /// Begins to write the run.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn write(
        self,
        target: RunTarget,
        uuid: Uuid,
        generation: u32,
        codec: Codec,
    ) -> Result<QuickRun> {
        let RunTarget { disk, dir, digest } = target;
        let header = RunHeader {
            uuid,
            id: RunId {
                epochs: self.epochs,
                level: 0,
                generation,
            },
            chunks: self.chunks,
            only_listed_moments: false,
            carries_frames: false,
            life: LifeId(0),
        };
        Ok(QuickRun {
            writer: RunWriter::create(disk, &dir, header, codec, digest)?,
            sorted: self,
        })
    }
}

impl InOrder for Sorted {
    #[inline]
    fn next_record(&mut self) -> Option<RunRecord<'_>> {
        let key = *self.keys.get(self.next)?;
        self.next += 1;
        Some(self.arena.record(key))
    }
}

/// A state machine that writes a run, one I/O a step.
pub struct QuickRun {
    sorted: Sorted,
    writer: RunWriter,
}

impl QuickRun {
    /// Encodes records until one write has been made or no record is left.
    ///
    /// # Errors
    /// Errors of the disk; [`Usage`](perdura_base::Error::Usage) for a page outside the geometry.
    pub fn step(&mut self) -> Result<Progress<()>> {
        write_some(&mut self.sorted, &mut self.writer)
    }

    /// Ends the run after all its records have been encoded.
    ///
    /// # Errors
    /// [`Usage`](perdura_base::Error::Usage) for a page outside the geometry.
    ///
    /// # Panics
    /// If not all records have been encoded.
    pub fn finish(self, moments: &Moments, ends: &[Pos]) -> Result<Tail> {
        assert_eq!(self.sorted.left(), 0, "records are left");
        self.writer.finish(moments, ends)
    }

    /// Takes all steps to the end.
    ///
    /// # Errors
    /// Those of [`step`](Self::step) and [`Tail::step`].
    pub fn run(mut self, moments: &Moments, ends: &[Pos]) -> Result<RunSummary> {
        while self.step()? == Progress::More {}
        self.finish(moments, ends)?.run()
    }

    /// Discards the run and removes its file.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn abandon(self) -> Result<()> {
        self.writer.abandon()
    }
}
