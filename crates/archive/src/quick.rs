//! Run generation by sorting in memory: the row `quick`.
//!
//! Records of whole epochs are collected in a workspace, sorted when it is full, and written as one run of level 0. The
//! workspace is one arena, in which a record's fragments lie behind its tag, and a list of *keys*: one number of 128
//! bits a record, which has partition, local page, epoch and update number from the top down and the record's place in the
//! arena below. Sorting moves numbers and never looks at a record.
//!
//! A run ends at an epoch's end. The streams of the log are read one after the other, so records of an epoch come at several
//! times; the caller says with [`Quick::cut`] from which epoch on there are none yet, and no record may be beyond it. When
//! the workspace is full the caller finishes the epoch that it reads, and cuts: a single epoch that is larger than the
//! workspace makes the workspace larger.
//!
//! # Source
//! "Single-pass restore after a media failure", 3.1, which proposes replacement selection and calls quicksort equally
//! conceivable.
//! # Deviations
//! Sorting a workspace at a time is our default. Reading the log goes on while a run is written if the caller has a second
//! workspace for the records that come meanwhile.

use std::sync::Arc;

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_usize};
use perdura_base::{CkptEpoch, Epoch, Error, PartitionId, Pos, Result, Useq, Uuid};
use perdura_device::Disk;
use perdura_page::{Chunks, PageRecord, RegionDigest};

use crate::name::{EpochRange, RunId};
use crate::record::{EpochSpan, PageAt, RunRecord, Updates};
use crate::run::{Codec, Moments, RunHeader};
use crate::writer::{Progress, RunSummary, RunWriter, Tail};

/// Bytes of a workspace.
pub const WORKSPACE_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of a key.
const KEY_BYTES: usize = 16;
/// Records begin at multiples of this many bytes of the arena, so that 32 bits name 32 GiB of places.
const ALIGN: usize = 8;
/// Epochs beyond this many after the first do not fit the key.
const EPOCHS_MAX: u64 = 1 << 24;
/// Bytes before a record's fragments: its tag, their number and their length.
const HEAD_BYTES: usize = 8 + 4 + 4;

/// Collects the page records of whole epochs.
pub struct Quick {
    begin: Epoch,
    chunks: Chunks,
    workspace_bytes: usize,
    keys: Vec<u128>,
    arena: Vec<u8>,
    epoch_max: Epoch,
}

impl Quick {
    /// An empty workspace for a run that begins with epoch `begin`.
    #[must_use]
    pub fn new(begin: Epoch, chunks: Chunks, workspace_bytes: usize) -> Quick {
        Quick {
            begin,
            chunks,
            workspace_bytes,
            keys: Vec::new(),
            arena: Vec::new(),
            epoch_max: begin,
        }
    }

    /// The epoch with which the run begins.
    #[must_use]
    pub fn begin(&self) -> Epoch {
        self.begin
    }

    /// Records in the workspace.
    #[must_use]
    pub fn records(&self) -> usize {
        self.keys.len()
    }

    /// Bytes that the records take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arena.len() + self.keys.len() * KEY_BYTES
    }

    /// Whether the run should end with the epoch that is being read.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.workspace_bytes || self.epoch_max.0 - self.begin.0 >= EPOCHS_MAX - 1
    }

    /// Adds a record of a block of this epoch.
    ///
    /// # Errors
    /// [`Error::Usage`] for an epoch before the run's or too far behind it: the workspace was full long before.
    ///
    /// # Panics
    /// If an epoch fills 32 GiB.
    #[inline]
    pub fn add(&mut self, epoch: Epoch, record: &PageRecord<'_>) -> Result<()> {
        let after = epoch.0.checked_sub(self.begin.0);
        let Some(after) = after.filter(|after| *after < EPOCHS_MAX) else {
            return Err(Error::Usage(format!(
                "a run that begins with epoch {} takes no record of epoch {epoch}",
                self.begin
            )));
        };
        let place = to_u32(self.arena.len() / ALIGN);
        let partition = self.chunks.partition_of(record.page);
        let at = PageAt {
            partition,
            local: self.chunks.local_index(record.page),
        };
        self.keys.push(pack(at, after, record.useq, place));
        let (count, bytes) = record.encoded_fragments();
        self.arena.put_u64(record.tag.0);
        self.arena.put_u32(u32::try_from(count).unwrap_or(u32::MAX));
        self.arena.put_u32(to_u32(bytes.len()));
        self.arena.put(bytes);
        let len = self.arena.len();
        self.arena.resize(len.next_multiple_of(ALIGN), 0);
        debug_assert!(
            self.arena.len() - len < ALIGN,
            "records begin at whole words"
        );
        self.epoch_max = self.epoch_max.max(epoch);
        Ok(())
    }

    /// Sorts the records for a run of the epochs up to `end`, exclusive: all streams have been read up to there, and none
    /// further.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is a record of `end` or a later epoch, of which the run would have a part, or if the run
    /// would have no epoch.
    pub fn cut(mut self, end: Epoch) -> Result<Sorted> {
        if !self.keys.is_empty() && self.epoch_max >= end {
            return Err(Error::Usage(format!(
                "a run cannot end before epoch {end}: it has records of epoch {}",
                self.epoch_max
            )));
        }
        let epochs = EpochRange::new(self.begin, end).ok_or_else(|| {
            Error::Usage(format!("a run of epochs {} to {end} has none", self.begin))
        })?;
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

/// The key of a record: 8 bits of partition, 32 of local page, 24 of epoch, 32 of update number, 32 of place.
#[inline]
fn pack(at: PageAt, epoch: u64, useq: Useq, place: u32) -> u128 {
    debug_assert!(
        at.partition.0 < 256 && epoch < EPOCHS_MAX,
        "the fields have their bits"
    );
    let page = u64::from(at.partition.0) << 56 | u64::from(at.local) << 24 | epoch;
    u128::from(page) << 64 | u128::from(u64::from(useq.0) << 32 | u64::from(place))
}

/// The inverse of [`pack`].
#[inline]
fn unpack(key: u128) -> (PageAt, u64, Useq, u32) {
    let bytes = key.to_be_bytes();
    let word = |from: usize| {
        let four = [
            bytes[from],
            bytes[from + 1],
            bytes[from + 2],
            bytes[from + 3],
        ];
        u32::from_be_bytes(four)
    };
    let at = PageAt {
        partition: PartitionId(u16::from(bytes[0])),
        local: word(1),
    };
    (at, u64::from(word(4) & 0xff_ffff), Useq(word(8)), word(12))
}

/// The sorted records of a run.
pub struct Sorted {
    epochs: EpochRange,
    chunks: Chunks,
    keys: Vec<u128>,
    arena: Vec<u8>,
    next: usize,
}

impl Sorted {
    /// The run's epochs.
    #[must_use]
    pub fn epochs(&self) -> EpochRange {
        self.epochs
    }

    /// How many records are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.keys.len() - self.next
    }

    /// The next record.
    #[inline]
    pub fn next_record(&mut self) -> Option<RunRecord<'_>> {
        let key = *self.keys.get(self.next)?;
        self.next += 1;
        let (at, after, useq, place) = unpack(key);
        let from = to_usize(u64::from(place)) * ALIGN;
        let (head, rest) = self.arena[from..].split_at(HEAD_BYTES);
        let mut r = Reader::new(head);
        let (tag, count, len) = (r.u64()?, r.u32()?, r.u32()?);
        let bytes = &rest[..to_usize(u64::from(len))];
        debug_assert!(count > 0 && len > 0, "a record of the log has a fragment");
        Some(RunRecord::checked(
            at,
            EpochSpan::one(Epoch(self.epochs.begin.0 + after)),
            CkptEpoch(tag),
            Updates::one(useq),
            (count, bytes),
        ))
    }

    /// Begins to write the run into a folder.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(
        self,
        disk: Arc<dyn Disk>,
        dir: &str,
        (uuid, generation): (Uuid, u32),
        codec: Codec,
        digest: Arc<RegionDigest>,
    ) -> Result<QuickRun> {
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
            writer: RunWriter::create(disk, dir, header, codec, digest)?,
            sorted: self,
        })
    }
}

/// A run that is being written: one I/O a step.
pub struct QuickRun {
    sorted: Sorted,
    writer: RunWriter,
}

impl QuickRun {
    /// Encodes records until one write has been made or none is left.
    ///
    /// # Errors
    /// The disk's; [`Error::Usage`] for a page that the geometry does not have.
    pub fn step(&mut self) -> Result<Progress<()>> {
        let writes = self.writer.writes();
        while let Some(record) = self.sorted.next_record() {
            self.writer.push(&record)?;
            if self.writer.writes() > writes {
                return Ok(Progress::More);
            }
        }
        debug_assert_eq!(self.sorted.left(), 0, "each record was written");
        Ok(Progress::Done(()))
    }

    /// Ends the run when no record is left.
    ///
    /// # Errors
    /// [`Error::Usage`] for a page that the geometry does not have.
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
    /// As [`step`](Self::step) and [`Tail::step`].
    pub fn run(mut self, moments: &Moments, ends: &[Pos]) -> Result<RunSummary> {
        while self.step()? == Progress::More {}
        self.finish(moments, ends)?.run()
    }

    /// Gives the run up and removes its file.
    ///
    /// # Errors
    /// The disk's.
    pub fn abandon(self) -> Result<()> {
        self.writer.abandon()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_and_sort_as_records_do() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut keys = Vec::new();
        for _ in 0..1000 {
            let at = PageAt {
                partition: PartitionId(rng.u16(0..256)),
                local: rng.u32(..),
            };
            let (epoch, useq, place) = (rng.u64(0..EPOCHS_MAX), Useq(rng.u32(..)), rng.u32(..));
            assert_eq!(
                unpack(pack(at, epoch, useq, place)),
                (at, epoch, useq, place)
            );
            keys.push((pack(at, epoch, useq, place), (at, epoch, useq.0)));
        }
        keys.sort_unstable_by_key(|(key, _)| *key);
        assert!(keys.is_sorted_by_key(|(_, fields)| *fields));
    }
}
