//! A cursor over the durable blocks of a stream, usable while the log is being appended.
//!
//! A restart scans a log that has ended, and determines its end. A cursor reads a log that is still being written. The
//! caller passes the durable epoch with the epoch's end positions ([`Wal::durable_end`](crate::Wal::durable_end)). The
//! cursor returns the blocks up to these ends in order, across segments and lives of the database. It takes no lock of
//! the log and does not prevent truncation. An archiver and replicas use it.
//!
//! # Invariants
//! * No block beyond the durable epoch that the caller passes is returned or even read.
//! * Blocks are returned without a gap. A position that the cursor has returned may be saved, and a cursor in a later
//!   life can continue from it, because durable data is never void.
//! * The file of a truncated segment may be used again under a new name. New blocks in the file have new positions in
//!   their headers, so the cursor never returns a new block for an old one.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Epoch, Error, Incarnation, Pos, Result, StreamId, Uuid};
use perdura_device::{AlignedBuf, Disk, File};

use crate::anchor::{History, Vouched};
use crate::block::{self, BLOCK_BYTES_MAX, BlockHeader, HEADER_BYTES};
use crate::segment::{LOG_DIR, SEGMENT_HEADER_BYTES, SegmentId};
use crate::sizes::{SegmentSizes, Span};

/// The number of bytes that one read covers. A longer block is read whole.
const READ_BYTES: u64 = 256 << 10;

/// The part of the stream that one life of the database has written.
struct Life {
    incarnation: Incarnation,
    start: Pos,
    /// The life's cut position and last durable epoch. `None` for the newest life.
    ended: Option<(Pos, Epoch)>,
}

/// The segment that the cursor is reading.
struct OpenSegment {
    id: SegmentId,
    span: Span,
    file: Arc<dyn File>,
}

/// A reader of the durable blocks of one stream, in order.
pub struct LogCursor {
    disk: Arc<dyn Disk>,
    uuid: Uuid,
    sizes: SegmentSizes,
    stream: StreamId,
    /// The lives of the database, oldest first.
    lives: Vec<Life>,
    at: Pos,
    segment: Option<OpenSegment>,
    buf: AlignedBuf,
    /// The position of the buffer's first byte.
    buf_pos: Pos,
    /// The number of valid bytes in the buffer.
    buf_len: usize,
    /// The header of the block at the cursor. The buffer has the whole block. `None`: the block has not been read yet.
    ahead: Option<BlockHeader>,
}

/// A durable block.
pub struct DurableBlock<'a> {
    /// The block's decoded header.
    pub header: BlockHeader,
    /// The block's header, body and padding.
    pub bytes: &'a [u8],
}

impl DurableBlock<'_> {
    /// Returns the frames that begin or continue in the block.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        let len = to_usize(u64::from(self.header.body_len));
        &self.bytes[HEADER_BYTES..HEADER_BYTES + len]
    }
}

impl LogCursor {
    /// Opens a cursor over a stream of the database with this `history`. The first block that it returns is at `at`.
    /// `at` is a position that a cursor returned in this life or an earlier one, or the beginning of a stream or of a
    /// checkpoint.
    ///
    /// # Errors
    /// [`Error::Usage`] if no block can be at `at`.
    pub fn open(
        disk: Arc<dyn Disk>,
        history: &History,
        stream: StreamId,
        at: Pos,
    ) -> Result<LogCursor> {
        if !at.0.is_multiple_of(to_u64(SECTOR_BYTES)) || stream.0 >= history.streams {
            return Err(Error::Usage(format!(
                "no block begins at position {at} of stream {stream}: positions are multiples of \
                 {SECTOR_BYTES}, and the log has {} streams",
                history.streams
            )));
        }
        let s = usize::from(stream.0);
        let mut lives: Vec<Life> = Vec::new();
        for link in &history.chain {
            lives.push(Life {
                incarnation: link.incarnation,
                start: link.start[s],
                ended: Some((link.cut[s], link.durable)),
            });
        }
        lives.push(Life {
            incarnation: history.incarnation,
            start: history.open_start()[s],
            ended: None,
        });
        Ok(LogCursor {
            disk,
            uuid: history.uuid,
            sizes: history.segments,
            stream,
            lives,
            at,
            segment: None,
            buf: AlignedBuf::zeroed(to_usize(READ_BYTES)),
            buf_pos: at,
            buf_len: 0,
            ahead: None,
        })
    }

    /// Returns the stream that the cursor reads.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Returns the position of the next block, which need not exist yet. A caller may save it and continue there later.
    #[must_use]
    pub fn at(&self) -> Pos {
        self.at
    }

    /// Reads the next block. The stream's end in `durable` limits the cursor. Returns `None` if all blocks before this
    /// end have been returned.
    ///
    /// # Errors
    /// [`Error::Truncated`] if no segment has the block any more. The disk's error. [`Error::Corrupt`] if the durable
    /// block is damaged or missing, or the cursor is already beyond `durable`. After an error the cursor stays at its
    /// position.
    pub fn read(&mut self, durable: &Vouched) -> Result<Option<DurableBlock<'_>>> {
        self.peek(durable)?;
        let Some(header) = self.ahead.take() else {
            return Ok(None);
        };
        assert_eq!(header.pos, self.at, "the block at the cursor is returned");
        let from = to_usize(self.at.0 - self.buf_pos.0);
        let len = to_usize(header.block_len());
        self.at = header.end();
        Ok(Some(DurableBlock {
            bytes: &self.buf[from..from + len],
            header,
        }))
    }

    /// Returns the header of the block that the next [`read`](Self::read) will return. `read` does not read or check
    /// the block again.
    ///
    /// # Errors
    /// Fails like `read`.
    pub fn peek(&mut self, durable: &Vouched) -> Result<Option<&BlockHeader>> {
        if self.ahead.is_none() {
            self.ahead = self.look(durable)?;
        }
        Ok(self.ahead.as_ref())
    }

    fn look(&mut self, durable: &Vouched) -> Result<Option<BlockHeader>> {
        let end = durable.ends[usize::from(self.stream.0)];
        if self.at == end {
            return Ok(None);
        }
        if self.at > end {
            return Err(Error::corrupt(
                format!("log stream {}", self.stream),
                end.0,
                format!(
                    "durable blocks up to position {}, which was read before",
                    self.at
                ),
                format!("the end of what is durable, epoch {}", durable.epoch),
                "This is another log, or it has lost durable blocks. Begin again from an image.",
            ));
        }
        let (end, epoch_max) = self.enter_segment(durable, end)?;
        let header = match self.block(end, epoch_max)? {
            Ok(header) => header,
            Err(found) => return Err(self.missing(&found)?),
        };
        Ok(Some(header))
    }

    /// Opens the segment that contains the next block. Returns the position up to which the segment is durable, and the
    /// last durable epoch of the life that wrote the segment.
    fn enter_segment(&mut self, durable: &Vouched, end: Pos) -> Result<(Pos, Epoch)> {
        let at = self.at;
        let holds = |life: &&Life| life.start <= at && life.ended.is_none_or(|(cut, _)| at < cut);
        let void = self.void_life();
        let life = void.or(self.lives.iter().rev().find(holds));
        let Some(life) = life else {
            return Err(self.truncated()?);
        };
        let span = self.sizes.span_at(life.start, at);
        let cut = life.ended.filter(|_| void.is_none());
        let (cut, ended_with) = cut.unwrap_or((end, durable.epoch));
        let (end, epoch_max) = (end.min(cut), durable.epoch.min(ended_with));
        let id = SegmentId {
            stream: self.stream,
            start: span.start,
            incarnation: life.incarnation,
        };
        if self.segment.as_ref().is_none_or(|open| open.id != id) {
            let file = match self.disk.open(&id.path(), perdura_device::Access::Direct) {
                Err(error) if error.is_not_found() => return Err(self.truncated()?),
                opened => opened?,
            };
            self.segment = Some(OpenSegment { id, span, file });
            self.buf_pos = at;
            self.buf_len = 0;
        }
        Ok((end.min(span.end()), epoch_max))
    }

    /// Seeded bug: returns the life of the open segment even beyond the life's cut. The bytes beyond the cut are void.
    fn void_life(&self) -> Option<&Life> {
        let open = self.segment.as_ref();
        let open = open.filter(|_| armed(Flaw::VoidEpochArchived))?;
        let mut lives = self.lives.iter();
        lives.find(|life| life.incarnation == open.id.incarnation && self.at < open.span.end())
    }

    /// Returns the header of the block at the cursor, or a description of the bytes found instead. On success the
    /// buffer has the whole block, which ends at or before `end`.
    fn block(&mut self, end: Pos, epoch_max: Epoch) -> Result<Result<BlockHeader, String>> {
        let sector = to_u64(SECTOR_BYTES);
        if end.0 - self.at.0 < sector {
            return Ok(Err(format!(
                "an end of the log at {end}, where no block can end"
            )));
        }
        let decoded = block::decode_header(self.fill(sector, end)?);
        let Some((header, body_crc)) = decoded else {
            return Ok(Err("no whole block header that this build knows".into()));
        };
        let found = (
            header.database,
            header.stream,
            header.incarnation,
            header.pos,
        );
        let id = self.segment.as_ref().map(|open| open.id);
        if Some(found) != id.map(|id| (self.uuid.short(), id.stream, id.incarnation, self.at)) {
            return Ok(Err(format!(
                "the block of position {}, incarnation {}",
                header.pos, header.incarnation
            )));
        }
        if header.end() > end || header.epoch > epoch_max {
            return Ok(Err(format!(
                "a block of epoch {} that ends at {}, where epoch {epoch_max} ends at {end}",
                header.epoch,
                header.end()
            )));
        }
        let bytes = self.fill(header.block_len(), end)?;
        if !block::body_is_whole(&bytes[HEADER_BYTES..], body_crc) {
            return Ok(Err("a body whose checksum does not match".into()));
        }
        Ok(Ok(header))
    }

    /// Returns the `len` bytes at the cursor. Reads ahead, but never beyond `end`.
    fn fill(&mut self, len: u64, end: Pos) -> Result<&[u8]> {
        assert!(
            self.at.0 + len <= end.0 && len <= to_u64(BLOCK_BYTES_MAX),
            "{len} bytes from {} reach beyond {end}",
            self.at
        );
        let (from, got) = (self.buf_pos, self.buf_len);
        assert!(from <= self.at, "the cursor has gone back behind {from}");
        if self.at.0 + len > from.0 + to_u64(got) {
            let segment = self.segment.as_ref().expect("it was entered before");
            let want = to_usize((end.0 - self.at.0).min(READ_BYTES.max(len)));
            if self.buf.len() < want {
                self.buf = AlignedBuf::zeroed(want);
            }
            let offset = SEGMENT_HEADER_BYTES + (self.at.0 - segment.span.start.0);
            self.buf_pos = self.at;
            self.buf_len = 0;
            perdura_device::read_exact_at(segment.file.as_ref(), offset, &mut self.buf[..want])?;
            self.buf_len = want;
        }
        let at = to_usize(self.at.0 - self.buf_pos.0);
        Ok(&self.buf[at..at + to_usize(len)])
    }

    /// Returns the error for a block that is missing at the cursor. Either the block's segment was truncated while the
    /// cursor had the segment open, or the block is damaged.
    fn missing(&mut self, found: &str) -> Result<Error> {
        let open = self.segment.take().expect("a block was looked for in it");
        match self
            .disk
            .open(&open.id.path(), perdura_device::Access::Direct)
        {
            Err(error) if error.is_not_found() => self.truncated(),
            Err(error) => Err(error),
            Ok(_) => Ok(Error::corrupt(
                open.id.path(),
                SEGMENT_HEADER_BYTES + (self.at.0 - open.span.start.0),
                format!("the durable block at position {}", self.at),
                found,
                "Acknowledged transactions in it are damaged or missing. Restore the file from a backup.",
            )),
        }
    }

    fn truncated(&self) -> Result<Error> {
        let names = self.disk.list(LOG_DIR)?;
        let ids = names.iter().filter_map(|name| SegmentId::parse(name));
        let starts = ids.filter(|id| id.stream == self.stream).map(|id| id.start);
        Ok(Error::Truncated {
            stream: self.stream,
            wanted: self.at,
            oldest: starts.min(),
        })
    }
}
