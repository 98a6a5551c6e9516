#![doc = include_str!("../../../docs/formats/unsorted.md")]
//!
//! # Purpose
//! This algorithm is the row `unsorted` of [`Generation`](crate::generation::Generation). It is the paper's scenario T:
//! traditional archiving, the baseline for measuring the cost of sorting. The algorithm selects the log's page records
//! and writes the records in blocks, with the codec and checksums of sorted runs. It does not sort the records, and
//! makes no digests and no index.
//!
//! # Source
//! "Single-pass restore after a media failure", 4.4, scenario T.

use std::sync::Arc;

use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer, varint_len};
use perdura_base::limits::FORMAT_VERSION;
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{CkptEpoch, Epoch, Error, PageId, Result, Useq, Uuid};
use perdura_device::{Access, AlignedBuf, Disk};
use perdura_page::{Chunks, PageRecord};

use crate::name::{EpochRange, RunId};
use crate::output::{Ending, Output, Progress};
use crate::record::PageAt;
use crate::run::block::{self, BlockHead, BlockPlace, Coder, Content, RAW_BYTES_MAX, Unpacker};
use crate::run::footer::file_len;
use crate::run::{BLOCK_BYTES_MAX, Codec, damage};
use crate::sealed::unseal;
use crate::workspace::cut_range;
use crate::writer::RunSummary;

const MAGIC: &[u8; 4] = b"PUNS";
const FOOTER_MAGIC: &[u8; 4] = b"PUNF";
const HEADER_BYTES: usize = 128;
const CRC_AT: usize = 124;
const BLOCK_HEAD_BYTES: usize = BLOCK_BYTES_MAX - RAW_BYTES_MAX;

/// A state machine that copies the page records of whole epochs, in the order of the log.
pub struct Copying {
    begin: Epoch,
    chunks: Chunks,
    workspace_bytes: usize,
    codec: Codec,
    coder: Option<Coder>,
    header_crc: u32,
    /// The bytes of the file before the block that is being filled.
    file: Vec<u8>,
    raw: Vec<u8>,
    first: Option<PageAt>,
    in_block: u32,
    blocks: u32,
    records: u64,
    epoch_max: Epoch,
}

impl Copying {
    /// Returns an empty copy. `begin` is the first epoch of the copy.
    #[must_use]
    pub fn new(
        begin: Epoch,
        uuid: Uuid,
        chunks: Chunks,
        codec: Codec,
        workspace_bytes: usize,
    ) -> Copying {
        let mut file = Vec::new();
        file.put(MAGIC);
        file.put_u16(FORMAT_VERSION);
        file.put_u16(0);
        file.put(&uuid.0);
        file.put_u64(begin.0);
        let header_crc = seal(&mut file, 0);
        Copying {
            begin,
            chunks,
            workspace_bytes,
            codec,
            coder: None,
            header_crc,
            file,
            raw: Vec::with_capacity(RAW_BYTES_MAX),
            first: None,
            in_block: 0,
            blocks: 0,
            records: 0,
            epoch_max: begin,
        }
    }

    /// Returns the first epoch of the copy.
    #[must_use]
    pub fn begin(&self) -> Epoch {
        self.begin
    }

    /// Returns whether the copy should end with the epoch that is being read.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.file.len() + self.raw.len() >= self.workspace_bytes
    }

    /// Adds a record from a block of epoch `epoch`.
    ///
    /// # Errors
    /// [`Error::Usage`] for an epoch before the copy's first one; [`Error::Io`] if the codec cannot be initialized.
    #[inline]
    pub fn add(&mut self, epoch: Epoch, record: &PageRecord<'_>) -> Result<()> {
        let Some(after) = epoch.0.checked_sub(self.begin.0) else {
            return Err(Error::Usage(format!(
                "a record of epoch {epoch} cannot be added to a copy that begins with epoch {}",
                self.begin
            )));
        };
        let (count, bytes) = record.encoded_fragments();
        let len = to_u64(bytes.len());
        let varints = [after, record.tag.0, count, len].map(varint_len);
        let takes = 8 + varints.iter().sum::<usize>() + bytes.len();
        assert!(
            takes <= RAW_BYTES_MAX,
            "each record fits a block: {takes} bytes"
        );
        if self.raw.len() + takes > RAW_BYTES_MAX {
            self.end_block()?;
        }
        self.first.get_or_insert_with(|| PageAt {
            partition: self.chunks.partition_of(record.page),
            local: self.chunks.local_index(record.page),
        });
        let raw = &mut self.raw;
        raw.put_u32(record.page.0);
        raw.put_varint(after);
        raw.put_varint(record.tag.0);
        raw.put_u32(record.useq.0);
        raw.put_varint(count);
        raw.put_varint(len);
        raw.put(bytes);
        debug_assert!(raw.len() <= RAW_BYTES_MAX, "the block has room");
        self.in_block += 1;
        self.records += 1;
        self.epoch_max = self.epoch_max.max(epoch);
        Ok(())
    }

    fn end_block(&mut self) -> Result<()> {
        let Some(first) = self.first.take() else {
            return Ok(());
        };
        let coder = match &mut self.coder {
            Some(coder) => coder,
            none => {
                let failed = |source| Error::io("compress", "an unsorted copy", source);
                none.insert(Coder::new(self.codec).map_err(failed)?)
            }
        };
        let head = BlockHead {
            first,
            records: std::mem::take(&mut self.in_block),
            tag_min: CkptEpoch(0),
            epoch_min: Epoch(0),
        };
        let place = BlockPlace {
            content: Content::Records,
            header_crc: self.header_crc,
            offset: to_u64(self.file.len()),
        };
        coder.append(&mut self.file, &head, &self.raw, place);
        self.raw.clear();
        self.blocks += 1;
        Ok(())
    }

    /// Ends the copy just before epoch `end`.
    ///
    /// # Errors
    /// [`Error::Usage`] for an empty range of epochs, or if a record of `end` or a later epoch was added.
    pub fn cut(mut self, end: Epoch) -> Result<Copied> {
        self.end_block()?;
        let epochs = cut_range(
            self.begin,
            end,
            (self.records > 0).then_some(self.epoch_max),
        )?;
        let len = to_usize(file_len(to_u64(self.file.len())));
        self.file.resize(len - HEADER_BYTES, 0);
        let from = self.file.len();
        self.file.put(FOOTER_MAGIC);
        self.file.put_u16(FORMAT_VERSION);
        self.file.put_u16(0);
        self.file.put_u32(self.header_crc);
        self.file.put_u32(self.blocks);
        self.file.put_u64(self.records);
        self.file.put_u64(end.0);
        seal(&mut self.file, from);
        assert_eq!(self.file.len(), len, "the file ends with its footer");
        Ok(Copied {
            epochs,
            file: self.file,
            records: self.records,
        })
    }
}

/// Completes the header or footer of 128 bytes that begins at `from`. Appends zeros, then the checksum of all bytes
/// from `from`. Returns the checksum.
fn seal(out: &mut Vec<u8>, from: usize) -> u32 {
    let zeros = from + CRC_AT - out.len();
    out.put_zeros(zeros);
    let crc = crc32c(&out[from..]);
    out.put_u32(crc);
    crc
}

/// A complete copy that is not yet written to disk.
pub struct Copied {
    epochs: EpochRange,
    file: Vec<u8>,
    records: u64,
}

impl Copied {
    /// Returns the epochs of the copy.
    #[must_use]
    pub fn epochs(&self) -> EpochRange {
        self.epochs
    }

    /// Begins to write the copy into folder `dir`.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn write(self, disk: Arc<dyn Disk>, dir: &str, generation: u32) -> Result<CopyTail> {
        let id = RunId {
            epochs: self.epochs,
            level: 0,
            generation,
        };
        let mut out = Output::create(disk, dir, path(dir, &id))?;
        out.pending = self.file;
        let summary = RunSummary {
            id,
            bytes: to_u64(out.pending.len()),
            crc: 0,
            records: self.records,
            updates: self.records,
            pages: 0,
            frames: 0,
        };
        Ok(CopyTail {
            summary,
            ending: Ending::new(out),
        })
    }
}

/// A state machine that writes a copy, one I/O a step.
pub struct CopyTail {
    summary: RunSummary,
    ending: Ending,
}

impl CopyTail {
    /// Makes the next I/O. After [`Progress::Done`] the copy is durable under its name.
    ///
    /// # Errors
    /// Errors of the disk. Every step after a failed one returns [`Error::Stopped`].
    pub fn step(&mut self) -> Result<Progress<RunSummary>> {
        let Progress::Done((bytes, crc)) = self.ending.step()? else {
            return Ok(Progress::More);
        };
        assert_eq!(bytes, self.summary.bytes, "all bytes are written");
        self.summary.crc = crc;
        Ok(Progress::Done(self.summary.clone()))
    }
}

/// Returns the path of a copy's file. `id` has the copy's epochs and generation.
#[must_use]
pub fn path(dir: &str, id: &RunId) -> String {
    let EpochRange { begin, end } = id.epochs;
    let name = format!(
        "unsorted-{:020}-{:020}-{:010}",
        begin.0, end.0, id.generation
    );
    match dir {
        "" => name,
        dir => format!("{dir}/{name}"),
    }
}

/// A record of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedRecord<'a> {
    /// The page.
    pub page: PageId,
    /// The commit epoch of the change.
    pub epoch: Epoch,
    /// The checkpoint epoch that the page had at the change.
    pub tag: CkptEpoch,
    /// The update number.
    pub useq: Useq,
    /// The number of fragments.
    pub count: u64,
    /// The encoded fragments.
    pub bytes: &'a [u8],
}

/// Reads a copy and passes its records to `each`, in the order of the log.
///
/// # Errors
/// Errors of the disk; [`Error::Corrupt`] for a file that [`Copying`] cannot have made; [`Error::Version`] for another
/// format version.
pub fn read(
    disk: &dyn Disk,
    dir: &str,
    id: &RunId,
    uuid: &Uuid,
    mut each: impl FnMut(CopiedRecord<'_>),
) -> Result<()> {
    let path = path(dir, id);
    let opened = disk.open(&path, Access::Direct)?;
    let len = to_usize(opened.len()?);
    let mut file = AlignedBuf::zeroed(len);
    let got = opened.read_at(0, &mut file)?;
    let broken =
        |offset: usize, expected: &str| damage(&path, to_u64(offset), expected, "other bytes");
    if got < len || len < 2 * HEADER_BYTES {
        return Err(broken(got, "a copy with header and footer"));
    }
    let (mut header, header_crc) = unseal(&path, &file[..HEADER_BYTES], *MAGIC, CRC_AT, damage)?;
    let begin = (header.zeros(2), header.array::<16>(), header.u64());
    let (Some(()), Some(owner), Some(begin)) = begin else {
        return Err(broken(6, "the header's fields"));
    };
    let foot = len - HEADER_BYTES;
    let (mut footer, _) = unseal(&path, &file[foot..], *FOOTER_MAGIC, CRC_AT, damage)?;
    let fields = (footer.zeros(2), footer.u32(), footer.u32());
    let (records, end) = (footer.u64(), footer.u64());
    let is_this = owner == uuid.0
        && begin == id.epochs.begin.0
        && end == Some(id.epochs.end.0)
        && fields.1 == Some(header_crc);
    let (Some(()), true, Some(blocks)) = (fields.0, is_this, fields.2) else {
        return Err(broken(foot, "a footer of this copy"));
    };
    let (mut at, mut seen) = (HEADER_BYTES, 0u64);
    let (mut unpacker, mut raw) = (Unpacker::default(), Vec::new());
    for _ in 0..blocks {
        // These four bytes of the block's head contain the length of the block's body.
        let body = file[at..foot]
            .get(20..24)
            .and_then(|b| Reader::new(b).u32());
        let end =
            body.and_then(|body| at.checked_add(BLOCK_HEAD_BYTES + to_usize(u64::from(body))));
        let bytes = end.and_then(|end| file[..foot].get(at..end));
        let bytes = bytes.ok_or_else(|| broken(at, "a whole block"))?;
        raw.clear();
        let place = BlockPlace {
            content: Content::Records,
            header_crc,
            offset: to_u64(at),
        };
        let head = block::open(&path, bytes, place, &mut unpacker, &mut raw)?;
        let mut r = Reader::new(&raw);
        for _ in 0..head.records {
            let record = record(&mut r, begin).ok_or_else(|| broken(at, "whole records"))?;
            each(record);
        }
        if r.remaining() > 0 {
            return Err(broken(at, "as many records as the head says"));
        }
        seen += u64::from(head.records);
        at += bytes.len();
    }
    if Some(seen) != records || file[at..foot].iter().any(|byte| *byte != 0) {
        return Err(broken(at, "as many records and blocks as the footer says"));
    }
    Ok(())
}

fn record<'a>(r: &mut Reader<'a>, begin: u64) -> Option<CopiedRecord<'a>> {
    let page = PageId(r.u32()?);
    let epoch = Epoch(begin.checked_add(r.varint()?)?);
    let tag = CkptEpoch(r.varint()?);
    let useq = Useq(r.u32()?);
    let count = r.varint()?;
    let len = r.varint_usize()?;
    let bytes = r.bytes(len)?;
    debug_assert!(!bytes.is_empty() || count == 0, "fragments have bytes");
    Some(CopiedRecord {
        page,
        epoch,
        tag,
        useq,
        count,
        bytes,
    })
}
