//! A cursor that returns the records of a run in order, block by block.

use std::sync::Arc;

use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::{round_up, to_u64, to_usize};
use perdura_base::{Epoch, Error, Result};
use perdura_device::{AlignedBuf, read_exact_at};

use super::{READ_BYTES, Run, Scope};
use crate::record::{PageAt, RunRecord};
use crate::run::block::{self, BlockHead, BlockPlace, Content, Unpacker};
use crate::run::body::Decoded;
use crate::run::{BlockEntry, damage};

/// A cursor over all records of a run, or over the records of some pages.
pub struct RunCursor {
    run: Arc<Run>,
    /// The first wanted page.
    from: PageAt,
    to: Option<PageAt>,
    /// The blocks that have not been opened, as a range of indexes in the run's index.
    blocks: std::ops::Range<usize>,
    /// The open block. `None`: no block is open.
    head: Option<(BlockHead, BlockEntry)>,
    raw: Vec<u8>,
    unpacker: Unpacker,
    left: u32,
    next: usize,
    current: Option<Decoded>,
    last: Option<(PageAt, Epoch, u32)>,
    buf: AlignedBuf,
    /// The file offset of the buffer's first byte, and the number of bytes in the buffer that were read.
    window: (u64, usize),
    reads: u64,
}

impl RunCursor {
    pub(super) fn new(run: Arc<Run>, scope: &Scope) -> RunCursor {
        let (from, to) = scope.bounds();
        let mut cursor = RunCursor {
            run,
            from,
            to,
            blocks: 0..0,
            head: None,
            raw: Vec::new(),
            unpacker: Unpacker::default(),
            left: 0,
            next: 0,
            current: None,
            last: None,
            buf: AlignedBuf::zeroed(0),
            window: (0, 0),
            reads: 0,
        };
        cursor.restart(scope);
        cursor
    }

    /// Starts again with the records of `scope`. Reuses the buffers.
    pub fn restart(&mut self, scope: &Scope) {
        let index = &self.run.index;
        (self.from, self.to) = scope.bounds();
        // The last block that begins before `from` may still contain records of `from`.
        let first = index.partition_point(|entry| entry.first < self.from);
        let end = self.to.map_or(index.len(), |to| {
            index.partition_point(|entry| entry.first < to)
        });
        let first = first.saturating_sub(1).min(end);
        assert!(end <= index.len(), "blocks of the run");
        let blocks = &index[first..end];
        let span = blocks.first().zip(blocks.last());
        let bytes = span.map_or(0, |(first, last)| last.end() - first.offset);
        let wanted = to_usize(round_up(bytes, to_u64(SECTOR_BYTES))).min(READ_BYTES);
        // A block may begin and end in the middle of a sector.
        if self.buf.len() < wanted + 2 * SECTOR_BYTES {
            let spare = (wanted + wanted / 4)
                .min(READ_BYTES)
                .next_multiple_of(SECTOR_BYTES);
            self.buf = AlignedBuf::zeroed(spare + 2 * SECTOR_BYTES);
            self.window = (0, 0);
        }
        self.blocks = first..end;
        (self.head, self.current, self.last) = (None, None, None);
        (self.left, self.next) = (0, 0);
    }

    /// Returns the number of reads made so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Moves to the next record. Returns `false` if no record is left. Makes at most one read, plus one for each block
    /// that has no page of the scope.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; errors of the disk. The cursor cannot be used after an error.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        loop {
            if self.left == 0 && !self.open_block()? {
                self.current = None;
                return Ok(false);
            }
            let decoded = self.decode()?;
            if decoded.at() < self.from {
                continue;
            }
            if self.to.is_some_and(|to| to <= decoded.at()) {
                self.left = 0;
                self.blocks = 0..0;
                self.current = None;
                return Ok(false);
            }
            self.current = Some(decoded);
            return Ok(true);
        }
    }

    /// Returns the current record. [`advance`](Self::advance) has moved there.
    ///
    /// # Panics
    /// If `advance` was not called or found no record.
    #[inline]
    #[must_use]
    pub fn record(&self) -> RunRecord<'_> {
        let decoded = self.current.as_ref().expect("the cursor is at a record");
        decoded.record(&self.raw)
    }

    /// Returns the sort key of the current record. `None`: the cursor is at the end.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<(PageAt, Epoch, u32)> {
        self.current.as_ref().map(Decoded::key)
    }

    /// Decodes the next record of the open block.
    #[inline]
    fn decode(&mut self) -> Result<Decoded> {
        let (head, entry) = self.head.as_ref().expect("a block is open");
        let before = self.page_before(head);
        let decoded = Decoded::read(&self.raw, self.next, head, before);
        let Some(decoded) = decoded else {
            return Err(self.misplaced("a record, as this build writes it"));
        };
        let key = decoded.key();
        let (tag, epochs) = decoded.bounds();
        let is_admitted = entry.tags.0 <= tag
            && tag <= entry.tags.1
            && entry.epochs.0 <= epochs.first
            && epochs.last <= entry.epochs.1;
        if !is_admitted || self.last.is_some_and(|last| key < last) {
            return Err(
                self.misplaced("a record at its place in the order, within the index's bounds")
            );
        }
        if decoded.is_net() && self.run.parts(epochs) {
            return Err(self.misplaced("records that are combined between two moments of the run"));
        }
        if before != decoded.at() || self.next == 0 {
            let chunks = self.run.header.chunks;
            let has_id = chunks.page_id(decoded.at().partition, decoded.at().local);
            if has_id.is_none() {
                return Err(self.misplaced("a record of a page that has an id"));
            }
        }
        self.last = Some(key);
        self.next = decoded.end;
        self.left -= 1;
        if self.left == 0 && self.next != self.raw.len() {
            return Err(self.misplaced("the end of the block behind its last record"));
        }
        Ok(decoded)
    }

    /// Returns the page of the block's last decoded record. Before the first record, returns the block's first page.
    #[inline]
    fn page_before(&self, head: &BlockHead) -> PageAt {
        if self.next == 0 {
            return head.first;
        }
        self.last.map_or(head.first, |(at, ..)| at)
    }

    #[cold]
    fn misplaced(&self, expected: &str) -> Error {
        let offset = self.head.as_ref().map_or(0, |(_, entry)| entry.offset);
        let found = format!("other bytes at byte {} of the block's records", self.next);
        damage(self.run.file.path(), offset, expected, found)
    }

    /// Reads, checks and opens the next block. Returns `false` if no block is left.
    fn open_block(&mut self) -> Result<bool> {
        let Some(i) = self.blocks.next() else {
            return Ok(false);
        };
        let run = Arc::clone(&self.run);
        let entry = run.index[i];
        self.fill(&entry)?;
        let from = to_usize(entry.offset - self.window.0);
        let bytes = &self.buf[from..from + to_usize(u64::from(entry.bytes))];
        self.raw.clear();
        let place = BlockPlace {
            content: Content::Records,
            header_crc: run.header_crc,
            offset: entry.offset,
        };
        let head = block::open(
            run.file.path(),
            bytes,
            place,
            &mut self.unpacker,
            &mut self.raw,
        )?;
        let says = (entry.first, entry.records, entry.tags.0, entry.epochs.0);
        if says != (head.first, head.records, head.tag_min, head.epoch_min) {
            let expected = "the block that the index describes";
            let found = format!("another head, {head:?}");
            return Err(damage(run.file.path(), entry.offset, expected, found));
        }
        self.head = Some((head, entry));
        (self.left, self.next) = (head.records, 0);
        Ok(true)
    }

    /// Ensures that the block is in the buffer. If a read is needed, the same read fetches the following blocks. It
    /// ends after [`READ_BYTES`], or earlier, after the last wanted block.
    fn fill(&mut self, entry: &BlockEntry) -> Result<()> {
        let (start, len) = self.window;
        if start <= entry.offset && entry.end() <= start + to_u64(len) {
            return Ok(());
        }
        let sector = to_u64(SECTOR_BYTES);
        let start = entry.offset / sector * sector;
        let last = self
            .blocks
            .end
            .checked_sub(1)
            .map(|i| self.run.index[i].end());
        let end = last.unwrap_or(0).min(entry.offset + to_u64(READ_BYTES));
        let len = to_usize(round_up(end.max(entry.end()) - start, sector));
        assert!(len <= self.buf.len(), "{len} bytes fit the buffer");
        self.window = (start, 0);
        read_exact_at(self.run.file.as_ref(), start, &mut self.buf[..len])?;
        self.window = (start, len);
        self.reads += 1;
        Ok(())
    }
}
