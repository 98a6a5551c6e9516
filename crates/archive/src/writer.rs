//! The writing of sorted records into the file of a run.
//!
//! The records of a block are encoded when the block is full. Finished blocks are collected in a buffer. The buffer is
//! written when it holds [`WRITE_BYTES`]. So pushing a record makes at most one write, and a caller can count I/Os. A
//! separate state machine, [`Tail`], writes the end of the run. It takes one step for each I/O: the rest of the file,
//! the sync, the publication, the sync of the folder.
//!
//! # Invariants
//! * A file is written under a temporary name and synced. Only then does the file get the run's name. So a crash at any
//!   I/O leaves no file, a temporary file, or a complete run.
//! * After a failed I/O at the end, the run is discarded, because the contents on the disk are unknown. A sync counts
//!   as an I/O.

mod digests;
mod frames;
mod tail;

use std::sync::Arc;

use perdura_base::checksum::crc32c;
use perdura_base::num::{to_u32, to_u64};
use perdura_base::{Epoch, Error, Pos, Result};
use perdura_device::Disk;
use perdura_page::RegionDigest;

use crate::name::RunId;
use crate::output::{Ending, Output};
use crate::record::{PageAt, RunRecord};
use crate::run::block::{BlockPlace, Coder, Content, RAW_BYTES_MAX};
use crate::run::body::BodyBuilder;
use crate::run::footer::{self, FOOTER_BYTES, Footer, PARTS, Part};
use crate::run::header::HEADER_BYTES;
use crate::run::{BLOCK_BYTES_MAX, BlockEntry, Codec, Moments, PageSet, RunHeader};
use crate::run::{index, summary};

pub(crate) use digests::DigestSum;
use frames::FrameWriting;
pub(crate) use frames::gap;
pub use tail::Tail;

pub use crate::output::{Progress, WRITE_BYTES};

/// The facts about a finished run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// The identity of the run.
    pub id: RunId,
    /// The size of the run's file, bytes.
    pub bytes: u64,
    /// CRC-32C of the file.
    pub crc: u32,
    /// The number of records in the run.
    pub records: u64,
    /// The number of updates in the records. A net record has several.
    pub updates: u64,
    /// The number of pages that have a record.
    pub pages: u64,
    /// The number of ordered frames that the run carries.
    pub frames: u64,
}

/// The disk and folder of new runs.
#[derive(Clone)]
pub struct RunTarget {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The name of the folder, which exists.
    pub dir: String,
    /// The object that computes the digests of records.
    pub digest: Arc<RegionDigest>,
}

/// A state machine that writes a run. The records arrive sorted.
pub struct RunWriter {
    header: RunHeader,
    header_crc: u32,
    out: Output,
    coder: Coder,
    body: BodyBuilder,
    raw: Vec<u8>,
    entries: Vec<BlockEntry>,
    pages: PageSet,
    digests: DigestSum,
    frames: FrameWriting,
    last: Option<(PageAt, Epoch, u32)>,
    records: u64,
    updates: u64,
}

impl RunWriter {
    /// Begins a run in folder `dir`, which exists. If a crash left a file with the run's temporary name, that file is
    /// removed first.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn create(
        disk: Arc<dyn Disk>,
        dir: &str,
        header: RunHeader,
        codec: Codec,
        digest: Arc<RegionDigest>,
    ) -> Result<RunWriter> {
        let out = Output::create(disk, dir, header.id.path(dir))?;
        let coder = Coder::new(codec)
            .map_err(|source| Error::io("compress", out.temporary().to_owned(), source))?;
        let mut run = RunWriter {
            header,
            header_crc: 0,
            out,
            coder,
            body: BodyBuilder::default(),
            raw: Vec::with_capacity(RAW_BYTES_MAX),
            entries: Vec::new(),
            pages: PageSet::default(),
            digests: DigestSum::new(digest),
            frames: FrameWriting::default(),
            last: None,
            records: 0,
            updates: 0,
        };
        run.out.pending = header.encode();
        assert_eq!(
            run.out.pending.len(),
            HEADER_BYTES,
            "the first block follows the header"
        );
        run.header_crc = crc32c(&run.out.pending[..HEADER_BYTES - 4]);
        Ok(run)
    }

    /// Returns the identity of the run.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.header.id
    }

    /// Returns the number of writes made so far.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.out.writes
    }

    /// Adds a record. Makes at most one write.
    ///
    /// # Errors
    /// [`Error::Usage`] for a page outside the geometry; errors of the disk.
    ///
    /// # Panics
    /// If the record sorts before the last added record, or has an epoch outside the run. Also if the record is net but
    /// the header says that each epoch of the run is a moment.
    pub fn push(&mut self, record: &RunRecord<'_>) -> Result<()> {
        let key = record.key();
        assert!(
            self.last.is_none_or(|last| last <= key),
            "a record at {key:?} follows one at {:?}",
            self.last
        );
        let epochs = self.header.id.epochs;
        assert_eq!(self.frames.frames.count, 0, "the frames follow the records");
        assert!(
            epochs.contains(record.epochs.first) && epochs.contains(record.epochs.last),
            "epochs {:?} are those of {epochs:?}",
            record.epochs
        );
        assert!(
            self.header.only_listed_moments || !record.is_net(),
            "where each epoch is a moment, each record keeps its own"
        );
        self.digests.add(record, &self.header)?;
        if self.last.is_none_or(|(at, ..)| at != record.at) {
            self.pages.push(record.at);
        }
        self.last = Some(key);
        self.records += 1;
        self.updates = self.updates.saturating_add(record.updates.count);
        if !self.body.add(record, epochs.begin) {
            self.end_block();
            let is_added = self.body.add(record, epochs.begin);
            assert!(is_added, "an empty block has room for a record");
        }
        if self.out.pending.len() < WRITE_BYTES {
            return Ok(());
        }
        self.out.write()
    }

    /// Encodes the block that is being filled.
    fn end_block(&mut self) {
        let held = self.body.finish(&mut self.raw);
        let offset = self.out.offset();
        let place = BlockPlace {
            content: Content::Records,
            header_crc: self.header_crc,
            offset,
        };
        let bytes = self
            .coder
            .append(&mut self.out.pending, &held.head, &self.raw, place);
        self.entries.push(BlockEntry {
            first: held.head.first,
            offset,
            bytes,
            records: held.head.records,
            tags: (held.head.tag_min, held.tag_max),
            epochs: (held.head.epoch_min, held.epoch_max),
        });
        debug_assert!(
            self.out.pending.len() < WRITE_BYTES + BLOCK_BYTES_MAX + HEADER_BYTES,
            "what is pending is written as it comes"
        );
    }

    /// Ends the run. `ends` are the run's end positions in the log's streams. Makes no write. The returned state
    /// machine makes the last writes.
    ///
    /// # Errors
    /// [`Error::Usage`] for a page outside the geometry.
    pub fn finish(mut self, moments: &Moments, ends: &[Pos]) -> Result<Tail> {
        if !self.body.is_empty() {
            self.end_block();
        }
        let frames = self.end_frames();
        let digests = self.digests.finish(&self.header)?;
        let epochs = self.header.id.epochs;
        assert!(
            moments.list().iter().all(|m| epochs.contains(m.epoch)),
            "moments are epochs of the run"
        );
        let out = &mut self.out;
        let mut parts = [Part::default(); PARTS];
        for (i, part) in parts.iter_mut().enumerate() {
            let (offset, from) = (out.offset(), out.pending.len());
            match i {
                0 => index::encode(&mut out.pending, &self.entries),
                1 => self.pages.encode(&mut out.pending),
                2 => digests.encode(&mut out.pending),
                3 => moments.encode(&mut out.pending, epochs.begin),
                _ => summary::encode_ends(&mut out.pending, ends),
            }
            *part = Part {
                offset,
                bytes: to_u32(out.pending.len() - from),
                crc: crc32c(&out.pending[from..]),
            };
        }
        let offset = out.offset();
        let frames_part = self.header.carries_frames.then(|| {
            let from = out.pending.len();
            frames.encode(&mut out.pending);
            Part {
                offset,
                bytes: to_u32(out.pending.len() - from),
                crc: crc32c(&out.pending[from..]),
            }
        });
        let len = footer::file_len(out.offset());
        let zeros = len - to_u64(FOOTER_BYTES) - out.offset();
        out.pending
            .resize(out.pending.len() + usize::try_from(zeros).unwrap_or(0), 0);
        let footer = Footer {
            header_crc: self.header_crc,
            blocks: to_u32(self.entries.len()),
            records: self.records,
            updates: self.updates,
            parts,
            frames: frames_part,
        };
        out.pending.extend_from_slice(&footer.encode());
        assert_eq!(out.offset(), len, "the file ends with its footer");
        Ok(Tail {
            summary: RunSummary {
                id: self.header.id,
                bytes: len,
                crc: 0,
                records: self.records,
                updates: self.updates,
                pages: self.pages.count(),
                frames: frames.count,
            },
            digests,
            frames,
            ending: Ending::new(self.out),
        })
    }

    /// Discards the run and removes its file.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn abandon(self) -> Result<()> {
        self.out.abandon()
    }
}
