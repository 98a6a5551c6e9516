//! Scanning a stream. A scan finds the valid blocks of each life up to the life's cut. It also finds the end of the
//! log, and the evidence that the blocks give for the durable epoch.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::{IN_FLIGHT_BYTES_MAX, SECTOR_BYTES};
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{
    CkptEpoch, Epoch, Error, Gsn, Incarnation, PartitionSet, Pos, Result, StreamId, Uuid,
};
use perdura_device::{Access, Disk, File};

use crate::block::{self, BlockHeader, HEADER_BYTES, Holds};
use crate::evidence::Evidence;
use crate::lives::Lives;
use crate::lookup::newer_block;
use crate::reads::CountedReads;
use crate::segment::{LOG_DIR, SEGMENT_HEADER_BYTES, SegmentId, check_header, lives_in};
use crate::sizes::{SegmentSizes, Span};

/// A possible cause of damage if no disk is at fault: the database was copied while it was running.
pub const COPIED: &str = "If this is a copy of a running database, the database changed while it \
                          was copied. Copy it again as docs/operate/back-up.md describes.";

/// The bytes that one read covers.
const READ_BYTES: usize = 1 << 20;
/// The minimum length of a long block. A scan that hops from header to header reads only the header of a long block.
const LONG_BLOCK_BYTES: u64 = 32 << 10;
/// The number of bytes that the scan reads after a short block. The bytes begin with the next block's header. If that
/// block is long, a replay reads these bytes again, which takes time on a slow disk.
const SHORT_READ_BYTES: usize = 32 << 10;
/// The number of bytes after the current header that the scan advises the disk to read ahead. The disk then reads the
/// log sequentially and at its full rate. Without the advice the scan would wait for the disk at each header. The
/// replay later needs the skipped bytes, too.
const ADVICE_BYTES: u64 = 4 << 20;

/// The bodies to check in a scan, and the faults to report as errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// All bodies.
    All,
    /// All bodies, for a caller that salvages whole blocks. A segment known to be missing is not an error.
    Salvage,
    /// Only the bodies of blocks in doubt. A block is in doubt if its epoch is above every durable epoch named in the
    /// stream. The scan skips the bodies of older blocks and hops from header to header. The skipped bodies must be
    /// whole. A later read checks a skipped body, and damage is then an error, not an end of the log.
    InDoubt,
}

/// A block that counts.
#[derive(Debug, Clone)]
pub struct BlockRef {
    /// The block's position in the stream.
    pub pos: Pos,
    /// The length of the frames in its body, bytes.
    pub body_len: u32,
    /// The offset of the first frame that starts in this block, in bytes from the start of the block's body.
    pub first_frame: u32,
    /// The commit epoch of the block.
    pub epoch: Epoch,
    /// A checkpoint epoch that no tag of its records exceeds.
    pub ckpt_epoch: CkptEpoch,
    /// The wall-clock time at which the block was written, in microseconds since 1970.
    pub wall_us: u64,
    /// The partitions that its frames touch, and perhaps others.
    pub partitions: PartitionSet,
    /// The kinds of frames in the block.
    pub holds: Holds,
    /// For an epoch's last block: all operations up to this number belong to this epoch or an older epoch. Otherwise 0.
    pub eosl: Gsn,
    /// The life of the database that wrote the block.
    pub incarnation: Incarnation,
    pub(crate) segment: usize,
}

impl BlockRef {
    /// Returns the block's end.
    #[must_use]
    pub fn end(&self) -> Pos {
        Pos(self.pos.0 + block::block_len(to_usize(u64::from(self.body_len))))
    }
}

pub(crate) struct OpenSegment {
    pub(crate) id: SegmentId,
    pub(crate) file: Arc<dyn File>,
    pub(crate) header_fault: Option<String>,
    /// The error for a file of the wrong size. It is reported only if the log reached this segment.
    pub(crate) size_fault: Option<Error>,
    /// True if the segment has a block beyond the log's end.
    has_late_block: bool,
    /// True if the segment's header says that the stream continues in a next segment.
    pub(crate) followed: bool,
    /// The lives that the header names, if it is not faulty.
    pub(crate) lives: crate::Lineage,
    pub(crate) span: Span,
}

/// The result of scanning one stream from some position.
pub struct StreamScan {
    /// The stream.
    pub stream: StreamId,
    /// The blocks that count, oldest first, without a gap.
    pub blocks: Vec<BlockRef>,
    /// The end of the contiguous valid blocks.
    pub valid_end: Pos,
    /// The facts that the blocks prove, including blocks beyond a gap.
    pub evidence: Evidence,
    /// The reason that the block at `valid_end` does not count. `None` if that position has only zeros or old bytes, or
    /// is in no segment.
    pub torn: Option<String>,
    /// Notes for the operator about damage that loses nothing.
    pub notes: Vec<String>,
    /// The bytes read.
    pub bytes_read: u64,
    pub(crate) segments: Vec<OpenSegment>,
    pub(crate) unit_reads: CountedReads,
}

struct Scanner<'a> {
    uuid: Uuid,
    stream: StreamId,
    out: &'a mut StreamScan,
    check: Check,
    /// The minimum number of bytes that a read fetches, except at the end of a file.
    ahead: usize,
    buf: Vec<u8>,
    /// The segment and the offset of the bytes in the buffer.
    held: Option<Held>,
    /// The last advice to the disk: a segment, and the offset in its file up to which the disk should read ahead.
    advised: (usize, u64),
}

struct Held {
    segment: usize,
    from: u64,
    len: usize,
}

/// Scans a stream from `from`: the closed lives up to their cuts, then the valid blocks of the newest life. After that
/// it searches a limited distance beyond the end for evidence.
///
/// # Errors
/// [`Error::Corrupt`] if a block below a closed life's cut is damaged or missing (with [`Check::InDoubt`] only its
/// header is checked). [`Error::Corrupt`] also if a segment has a wrong position or size.
pub fn scan_stream(
    disk: &dyn Disk,
    lives: &Lives<'_>,
    stream: StreamId,
    from: Pos,
    check: Check,
) -> Result<StreamScan> {
    let mut out = StreamScan {
        stream,
        blocks: Vec::new(),
        valid_end: from,
        evidence: Evidence::default(),
        torn: None,
        notes: Vec::new(),
        bytes_read: 0,
        unit_reads: CountedReads::default(),
        segments: open_segments(disk, lives, stream)?,
    };
    let mut scanner = Scanner {
        uuid: lives.uuid,
        stream,
        out: &mut out,
        check,
        ahead: match check {
            Check::All | Check::Salvage => READ_BYTES,
            Check::InDoubt => SHORT_READ_BYTES,
        },
        buf: Vec::new(),
        held: None,
        advised: (usize::MAX, 0),
    };
    let s = usize::from(stream.0);
    let mut pos = from;
    for link in lives.closed {
        let cut = link.cut[s];
        if cut <= pos {
            continue;
        }
        let limit = (!armed(Flaw::VoidTailRevived)).then_some(cut);
        pos = scanner.contiguous(link.incarnation, pos, limit)?;
        if pos < cut {
            let found = scanner.out.torn.take().unwrap_or_else(|| "no block".into());
            return Err(damaged(stream, link.incarnation, pos, cut, &found));
        }
    }
    let start = lives.open_start[s].max(pos);
    pos = scanner.contiguous(lives.open, start, None)?;
    if check == Check::InDoubt {
        pos = scanner.check_doubtful(lives.open, pos, lives.vouched)?;
    }
    scanner.ahead = READ_BYTES;
    scanner.check = Check::All;
    if check != Check::Salvage {
        scanner.check_end(lives.open, pos)?;
    }
    scanner.out.valid_end = pos;
    scanner.beyond(lives.open, pos)?;
    scanner.check_sizes(lives.open, pos)?;
    Ok(out)
}

fn damaged(stream: StreamId, inc: Incarnation, pos: Pos, cut: Pos, found: &str) -> Error {
    Error::corrupt(
        format!("log stream {stream}, incarnation {inc}"),
        pos.0,
        format!("a valid block; the anchor says that this log was durable up to {cut}"),
        found,
        format!(
            "Acknowledged transactions from here on are lost unless an older image or a backup has \
             them. {COPIED}"
        ),
    )
}

/// Opens the existing segments of a stream that belong to these lives. Returns them in the order of their names.
pub(crate) fn open_segments(
    disk: &dyn Disk,
    lives: &Lives<'_>,
    stream: StreamId,
) -> Result<Vec<OpenSegment>> {
    let mut segments = Vec::new();
    let names = disk.list(LOG_DIR)?;
    let prefix = SegmentId::prefix(stream);
    let mut ids: Vec<SegmentId> = names
        .iter()
        .filter(|name| name.starts_with(&prefix))
        .filter_map(|name| SegmentId::parse(name))
        .collect();
    ids.sort_unstable();
    let mut header = vec![0; SECTOR_BYTES];
    for id in ids {
        let Some(life) = lives.start_of(id.incarnation, stream) else {
            continue;
        };
        let file = match disk.open(&id.path(), Access::Buffered) {
            Err(error) if error.is_of_another_kind() => {
                return Err(Error::corrupt(
                    id.path(),
                    0,
                    "a log segment",
                    "something that is not a regular file",
                    "Acknowledged transactions in it are missing. Restore the file from a backup.",
                ));
            }
            opened => opened?,
        };
        let span = span_of(lives.segments, id, life)?;
        let size_fault = check_size(id, &span, file.len()?).err();
        let got = file.read_at(0, &mut header)?;
        let checked = check_header(id, &lives.uuid, &header[..got]);
        let followed = *checked.as_ref().unwrap_or(&false);
        let header_fault = checked.err();
        segments.push(OpenSegment {
            id,
            file,
            lives: lives_in(&header),
            header_fault,
            size_fault,
            has_late_block: false,
            followed,
            span,
        });
    }
    Ok(segments)
}

/// Returns the position and the file size of a segment. Both follow from the sizes of the life's segments.
fn span_of(sizes: SegmentSizes, id: SegmentId, life: Pos) -> Result<Span> {
    let span = (life <= id.start).then(|| sizes.span_at(life, id.start));
    span.filter(|span| span.start == id.start).ok_or_else(|| {
        Error::corrupt(
            id.path(),
            0,
            format!("the start of a segment of the life that began at {life}"),
            format!("position {}", id.start),
            "Perdura did not put this file here. Move it away, or restore the file that was here \
             from a backup.",
        )
    })
}

/// Fails if a file does not have the length of its segment. A file gets that length before it gets the segment's name.
fn check_size(id: SegmentId, span: &Span, len: u64) -> Result<()> {
    if len == span.bytes {
        return Ok(());
    }
    Err(Error::corrupt(
        id.path(),
        len.min(span.bytes),
        format!("{} bytes, the exact size of this segment", span.bytes),
        format!("{len} bytes"),
        "The file was cut or replaced. Acknowledged transactions in it may be missing. Restore \
         the file from a backup.",
    ))
}

impl Scanner<'_> {
    /// Follows valid blocks of one incarnation from `from`. Returns the blocks' end, which is not beyond `limit`.
    fn contiguous(&mut self, inc: Incarnation, from: Pos, limit: Option<Pos>) -> Result<Pos> {
        let mut pos = from;
        while limit.is_none_or(|limit| pos < limit) {
            match self.block_at(inc, pos)? {
                Ok((header, segment)) => {
                    self.doubt_header(segment);
                    self.doubt_mark(segment);
                    self.out.evidence.note(&header);
                    self.out.blocks.push(BlockRef {
                        pos,
                        body_len: header.body_len,
                        first_frame: header.first_frame,
                        epoch: header.epoch,
                        ckpt_epoch: header.ckpt_epoch,
                        wall_us: header.wall_us,
                        partitions: header.partitions,
                        holds: header.holds,
                        eosl: header.eosl,
                        incarnation: inc,
                        segment,
                    });
                    pos = Pos(pos.0 + header.block_len());
                    self.ahead = match self.check {
                        Check::All | Check::Salvage => READ_BYTES,
                        Check::InDoubt if header.block_len() >= LONG_BLOCK_BYTES => HEADER_BYTES,
                        // A short block ends an epoch, so a long block may follow it.
                        Check::InDoubt => SHORT_READ_BYTES,
                    };
                }
                Err(why) => {
                    self.out.torn = why;
                    break;
                }
            }
        }
        Ok(pos)
    }

    /// Checks the bodies of the blocks in doubt, oldest first. Only blocks of the newest incarnation can be in doubt.
    /// Returns the end of the stream. The first damaged block ends the stream.
    fn check_doubtful(&mut self, inc: Incarnation, end: Pos, vouched: Epoch) -> Result<Pos> {
        let named = self.out.evidence.durable;
        let vouched = named.map_or(vouched, |(epoch, _)| vouched.max(epoch));
        (self.check, self.ahead) = (Check::All, READ_BYTES);
        for at in 0..self.out.blocks.len() {
            let block = &self.out.blocks[at];
            let (pos, doubtful) = (block.pos, block.incarnation == inc && block.epoch > vouched);
            if !doubtful {
                continue;
            }
            if let Err(why) = self.block_at(inc, pos)? {
                self.out.torn = why;
                self.out.blocks.truncate(at);
                return Ok(pos);
            }
        }
        Ok(end)
    }

    /// Fails if the next segment was lost: the stream ends exactly with a segment marked as followed, and the next
    /// segment does not exist.
    fn check_end(&self, inc: Incarnation, end: Pos) -> Result<()> {
        let lost = self.out.segments.iter().any(|segment| {
            let of_inc = segment.id.incarnation == inc;
            of_inc && segment.followed && segment.span.end() == end
        });
        if !lost || self.segment_of(inc, end).is_some() {
            return Ok(());
        }
        let next = SegmentId {
            stream: self.stream,
            start: end,
            incarnation: inc,
        };
        Err(Error::corrupt(
            next.path(),
            0,
            "the segment that the one before it names",
            "no such file",
            format!(
                "Acknowledged transactions in it are missing. Restore the file from a backup. {COPIED}"
            ),
        ))
    }

    /// Searches for valid blocks beyond the end of the stream. Such blocks are evidence of what the stream should
    /// contain. After a crash, blocks that were in flight may be there, within the limit for bytes in flight.
    fn beyond(&mut self, inc: Incarnation, end: Pos) -> Result<()> {
        let sector = to_u64(SECTOR_BYTES);
        let mut pos = Pos(end.0 + sector);
        let mut reach = end;
        while pos.0 - reach.0 <= IN_FLIGHT_BYTES_MAX && self.segment_of(inc, pos).is_some() {
            match self.block_at(inc, pos)? {
                Ok((header, segment)) => {
                    self.doubt_header(segment);
                    self.note_beyond(end, &header, segment);
                    pos = header.end();
                    reach = pos;
                }
                Err(_) => pos = Pos(pos.0 + sector),
            }
        }
        // If a segment is missing, the walk above does not reach the later ones. So their first blocks are checked
        // here.
        let later: Vec<Pos> = self
            .out
            .segments
            .iter()
            .filter(|segment| segment.id.incarnation == inc && segment.id.start > end)
            .map(|segment| segment.id.start)
            .collect();
        for start in later {
            if let Ok((header, segment)) = self.block_at(inc, start)? {
                self.note_beyond(end, &header, segment);
            }
        }
        Ok(())
    }

    /// Fails if a segment of the wrong size may have had blocks. Segments of the newest life are made before the log
    /// reaches them. Such a segment is empty until then, so its damage loses nothing.
    fn check_sizes(&mut self, open: Incarnation, end: Pos) -> Result<()> {
        for segment in &mut self.out.segments {
            let Some(fault) = segment.size_fault.take() else {
                continue;
            };
            let is_ahead = segment.id.incarnation == open && segment.id.start > end;
            if !is_ahead || segment.has_late_block {
                return Err(fault);
            }
            assert!(end < segment.span.start, "the log ends before the segment");
            self.out.notes.push(format!(
                "{} has the wrong size. The log ends before it, at {end}, so nothing is lost",
                segment.id.path()
            ));
        }
        Ok(())
    }

    fn note_beyond(&mut self, end: Pos, header: &BlockHeader, segment: usize) {
        self.out.segments[segment].has_late_block = true;
        self.out.evidence.note(header);
        let reach = match armed(Flaw::HoleForDamage) {
            true => 0,
            false => IN_FLIGHT_BYTES_MAX,
        };
        if header.end().0 - end.0 > reach {
            self.out.evidence.out_of_reach = Some(header.pos);
        }
    }

    /// Adds a note for the operator about a segment with a damaged header but valid blocks. Nothing is lost, because
    /// each block names its database, stream, incarnation and position. But a crash cannot damage a header: the header
    /// is durable before the first block, and a torn mark does not count as damage.
    fn doubt_header(&mut self, segment: usize) {
        let segment = &mut self.out.segments[segment];
        if let Some(fault) = segment.header_fault.take() {
            self.out.notes.push(format!(
                "{}: {fault}; its blocks are valid",
                segment.id.path()
            ));
        }
    }

    /// Adds a note for the operator if a segment lacks the mark *followed* but the segment after it, `next`, has valid
    /// blocks. Nothing is lost. But without the mark, a restart would not have detected a loss of `next`.
    fn doubt_mark(&mut self, next: usize) {
        let Some(block) = self.out.blocks.last() else {
            return;
        };
        let [last, next] = [block.segment, next].map(|at| &self.out.segments[at]);
        let goes_on = last.id.incarnation == next.id.incarnation && last.id != next.id;
        if goes_on && !last.followed {
            self.out.notes.push(format!(
                "{} does not say that another file follows it, but the blocks of {} are valid",
                last.id.path(),
                next.id.path()
            ));
        }
    }

    fn segment_of(&self, inc: Incarnation, pos: Pos) -> Option<usize> {
        self.out.segments.iter().position(|segment| {
            segment.id.incarnation == inc && segment.id.start <= pos && pos < segment.span.end()
        })
    }

    /// Returns the block at a position, or the reason why no block counts there. The reason is `None` if the position
    /// has only zeros or old bytes, or is in no segment.
    fn block_at(
        &mut self,
        inc: Incarnation,
        pos: Pos,
    ) -> Result<std::result::Result<(BlockHeader, usize), Option<String>>> {
        let Some(segment) = self.segment_of(inc, pos) else {
            return Ok(Err(None));
        };
        let offset = SEGMENT_HEADER_BYTES + (pos.0 - self.out.segments[segment].id.start.0);
        let (uuid, stream) = (self.uuid, self.stream);
        let is_ours = |header: &BlockHeader| {
            header.database == uuid.short()
                && header.stream == stream
                && header.incarnation == inc
                && (header.pos == pos || armed(Flaw::PositionUnchecked))
        };
        let head = self.read(segment, offset, HEADER_BYTES)?;
        let Some((header, body_crc)) = block::decode_header(head) else {
            if block::decode_newer(head).is_some_and(|header| is_ours(&header)) {
                return Err(newer_block(self.out.segments[segment].id.path(), offset));
            }
            let blank = *head == [0; HEADER_BYTES][..head.len()];
            return Ok(Err(
                (!blank).then(|| "a header whose checksum does not match".into())
            ));
        };
        if !is_ours(&header) {
            return Ok(Err(None));
        }
        if self.check == Check::InDoubt {
            return Ok(Ok((header, segment)));
        }
        let len = to_usize(header.block_len());
        let body = self.read(segment, offset + to_u64(HEADER_BYTES), len - HEADER_BYTES)?;
        if body.len() == len - HEADER_BYTES && block::body_is_whole(body, body_crc) {
            return Ok(Ok((header, segment)));
        }
        // The header is whole, so its durable epoch and clock were correct when it was written.
        self.out.evidence.note(&header);
        Ok(Err(Some("a body whose checksum does not match".into())))
    }

    /// Advises the disk to read ahead from `offset` on. Does nothing if earlier advice covers at least half of
    /// [`ADVICE_BYTES`] after `offset`, or the rest of the segment.
    fn advise(&mut self, segment: usize, offset: u64) {
        let told = match self.advised {
            (of, to) if of == segment && offset <= to => to,
            _ => offset,
        };
        let end = self.out.segments[segment].span.bytes;
        if told >= end || told - offset >= ADVICE_BYTES / 2 {
            return;
        }
        let to = end.min(told + ADVICE_BYTES);
        self.out.segments[segment].file.will_read(told, to - told);
        self.advised = (segment, to);
    }

    /// Reads bytes of a segment through a read-ahead buffer. Returns fewer bytes at the end of the file.
    fn read(&mut self, segment: usize, offset: u64, len: usize) -> Result<&[u8]> {
        let held = self.held.as_ref().is_some_and(|held| {
            held.segment == segment
                && held.from <= offset
                && offset + to_u64(len) <= held.from + to_u64(held.len)
        });
        if !held {
            let rest = self.out.segments[segment].span.bytes.saturating_sub(offset);
            let want = len.max(self.ahead.min(to_usize(rest)));
            if self.buf.len() < want {
                self.buf.resize(want, 0);
            }
            self.advise(segment, offset);
            let file = &self.out.segments[segment].file;
            let got = file.read_at(offset, &mut self.buf[..want])?;
            self.out.bytes_read += to_u64(got);
            self.held = Some(Held {
                segment,
                from: offset,
                len: got,
            });
        }
        let (from, got) = self
            .held
            .as_ref()
            .map_or((offset, 0), |held| (held.from, held.len));
        let at = to_usize(offset - from);
        let end = (at + len).min(got);
        Ok(&self.buf[at.min(end)..end])
    }
}

impl StreamScan {
    /// Drops the blocks at or beyond `cut`, which are void.
    ///
    /// # Panics
    /// Panics if the scan ends before `cut`. A restart never decides a cut beyond the scan's end.
    pub fn cut_at(&mut self, cut: Pos) {
        assert!(
            cut <= self.valid_end,
            "stream {} is cut at {cut}, behind its end {}",
            self.stream,
            self.valid_end
        );
        self.blocks.retain(|block| block.pos < cut);
    }
}
