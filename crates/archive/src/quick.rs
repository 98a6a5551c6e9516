//! Run generation by sorting in memory: the row `quick`.
//!
//! Records of whole epochs are collected in a workspace, sorted when it is full, and written as one run of level 0. The
//! workspace is an arena (`workspace`) and the list of its keys. Sorting moves numbers and never looks at a record.
//!
//! A run ends at an epoch's end. The streams of the log are read one after the other, so records of an epoch come at
//! several times. The caller names with [`Quick::cut`] the first epoch of which it has added no record, and no record
//! may be beyond it. When the workspace is full the caller finishes the epoch that it reads, and cuts. A single epoch
//! that is larger than the workspace makes the workspace larger.
//!
//! # Source
//! "Single-pass restore after a media failure", 3.1, which proposes replacement selection and calls quicksort equally
//! conceivable.
//! # Deviations
//! Sorting a workspace at a time is our default. The caller can continue to read the log while a run is written if it
//! has a second workspace for the new records.

use perdura_base::{Epoch, Pos, Result, Uuid};
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

    /// Returns the epoch with which the run begins.
    #[must_use]
    pub fn begin(&self) -> Epoch {
        self.begin
    }

    /// Returns the number of records in the workspace.
    #[must_use]
    pub fn records(&self) -> usize {
        self.keys.len()
    }

    /// Returns the size of the records, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arena.bytes() + self.keys.len() * KEY_BYTES
    }

    /// Returns whether the run should end with the epoch that is being read.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.workspace_bytes || self.epoch_max.0 - self.begin.0 >= EPOCHS_MAX - 1
    }

    /// Adds a record of a block of this epoch.
    ///
    /// # Errors
    /// [`Usage`](perdura_base::Error::Usage) for an epoch before the run's or too far behind it: the workspace was full long before.
    ///
    /// # Panics
    /// If an epoch fills 32 GiB.
    #[inline]
    pub fn add(&mut self, epoch: Epoch, record: &PageRecord<'_>) -> Result<()> {
        self.keys.push(self.arena.add(epoch, record)?);
        self.epoch_max = self.epoch_max.max(epoch);
        Ok(())
    }

    /// Sorts the records for a run of the epochs up to `end`, exclusive: all streams have been read up to there, and none
    /// further.
    ///
    /// # Errors
    /// [`Usage`](perdura_base::Error::Usage) if there is a record of `end` or a later epoch, of which the run would have a part, or if the run
    /// would have no epoch.
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

    /// Returns the number of records that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.keys.len() - self.next
    }

    /// Begins to write the run into a folder.
    ///
    /// # Errors
    /// The disk's.
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

/// A run that is being written: a machine of one I/O a step.
pub struct QuickRun {
    sorted: Sorted,
    writer: RunWriter,
}

impl QuickRun {
    /// Encodes records until one write has been made or none is left.
    ///
    /// # Errors
    /// The disk's; [`Usage`](perdura_base::Error::Usage) for a page that the geometry does not have.
    pub fn step(&mut self) -> Result<Progress<()>> {
        write_some(&mut self.sorted, &mut self.writer)
    }

    /// Ends the run when no record is left.
    ///
    /// # Errors
    /// [`Usage`](perdura_base::Error::Usage) for a page that the geometry does not have.
    ///
    /// # Panics
    /// If records are left.
    pub fn finish(self, moments: &Moments, ends: &[Pos]) -> Result<Tail> {
        assert_eq!(self.sorted.left(), 0, "records are left");
        self.writer.finish(moments, ends)
    }

    /// Takes all steps.
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
    /// The disk's.
    pub fn abandon(self) -> Result<()> {
        self.writer.abandon()
    }
}
