//! The frames of one owner, merged from all streams of a log into one order.
//!
//! In each stream, the frames lie in the order that their owner defines. So the next frame of the merged order is the
//! lowest of the streams' first unread frames. A stream is read in *units* of one or more blocks. Units without a frame
//! of the owner are skipped. The other units are announced to the disk before they are read.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use perdura_base::Result;
use perdura_base::num::to_u64;
use perdura_wal::{Direction, Frame, Holds, Origin, StreamScan, Unit};

/// The number of units between two announcements to the disk. Each announcement names the next `2 * AHEAD_UNITS` units.
const AHEAD_UNITS: usize = 4;

/// The bytes of a frame that was read.
pub(crate) struct FrameBytes {
    unit: Arc<Unit>,
    payload: Range<usize>,
    /// Bytes of memory that this value keeps allocated: its share of the unit.
    pub weight: u64,
}

impl FrameBytes {
    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        &self.unit.joined()[self.payload.clone()]
    }

    /// Returns the length of the payload.
    pub fn len(&self) -> u64 {
        to_u64(self.payload.len())
    }
}

/// An owner's part of a cursor. It selects the frames and defines their order.
pub(crate) trait Reads {
    /// The decoded part of a frame. It is kept together with the frame's bytes.
    type Entry;

    /// Returns whether a unit with these contents has a frame of the owner.
    fn wants(&self, holds: Holds) -> bool;

    /// Reads a frame. `None`: it does not belong to the owner.
    ///
    /// # Errors
    /// An error for a frame that cannot be read or is not declared.
    fn read(&self, frame: Frame<'_>, origin: &Origin) -> Result<Option<Self::Entry>>;

    /// Returns the frame's place in the order. Within a stream it never decreases.
    fn order(entry: &Self::Entry) -> u64;

    /// Fails if a frame cannot follow the previous frame of the stream. The previous frame ended at `before`.
    ///
    /// # Errors
    /// An error that describes the mistake of the log's writer.
    fn follows(&self, entry: &Self::Entry, before: u64, origin: &Origin) -> Result<()>;

    /// Returns the end of the frame. The next frame of the stream must not begin below it.
    fn end(entry: &Self::Entry) -> u64;

    /// Notes the bytes of a unit that was read.
    fn note_read(&self, _bytes: u64) {}
}

struct Stream<'a, E> {
    scan: &'a StreamScan,
    units: Vec<Range<usize>>,
    /// The next unit to read.
    next: usize,
    /// The frames of the last read unit.
    entries: VecDeque<(E, FrameBytes)>,
    /// The end of the last frame that was read.
    end: u64,
}

/// A cursor over the frames of one owner.
pub(crate) struct Cursor<'a, R: Reads> {
    reads: R,
    streams: Vec<Stream<'a, R::Entry>>,
}

impl<'a, R: Reads> Cursor<'a, R> {
    /// Makes a cursor that reads each stream up to the stream's cut, in units of about `unit_bytes`. A unit is read
    /// together with later units that begin less than `join_bytes` bytes after the unit's begin.
    pub fn new(
        scans: &'a [StreamScan],
        reads: R,
        unit_bytes: u64,
        join_bytes: Option<u64>,
    ) -> Cursor<'a, R> {
        assert!(!scans.is_empty(), "a log has a stream");
        let stream = |scan: &'a StreamScan| {
            let mut units = scan.units(unit_bytes);
            units.retain(|unit| reads.wants(scan.holds(unit)));
            if let Some(bytes) = join_bytes {
                units = joined(scan, &units, bytes);
            }
            Stream {
                scan,
                units,
                next: 0,
                entries: VecDeque::new(),
                end: 0,
            }
        };
        let streams = scans.iter().map(stream).collect();
        Cursor { reads, streams }
    }

    /// Returns the total number of bytes in the bodies of the blocks that the cursor reads.
    pub fn body_bytes(&self) -> u64 {
        let of = |stream: &Stream<'_, R::Entry>| -> u64 {
            let blocks = stream.units.iter().cloned();
            let blocks = blocks.flat_map(|unit| &stream.scan.blocks[unit]);
            blocks.map(|block| u64::from(block.body_len)).sum()
        };
        self.streams.iter().map(of).sum()
    }

    /// Returns the next frame's place in the order, and the index of its stream. `None`: no frame is left.
    ///
    /// # Errors
    /// Errors of the disk; damage of the log; errors of [`Reads`].
    pub fn head(&mut self) -> Result<Option<(u64, usize)>> {
        for at in 0..self.streams.len() {
            self.fill(at)?;
        }
        let heads = self.streams.iter().enumerate().filter_map(|(at, stream)| {
            let (entry, _) = stream.entries.front()?;
            Some((R::order(entry), at))
        });
        Ok(heads.min())
    }

    /// Takes the next frame. `None`: no frame is left.
    ///
    /// # Errors
    /// As [`head`](Self::head).
    pub fn next(&mut self) -> Result<Option<(R::Entry, FrameBytes)>> {
        let head = self.head()?;
        Ok(head.and_then(|(_, at)| self.streams[at].entries.pop_front()))
    }

    /// Takes all frames of stream `at` whose place in the order is `order`.
    ///
    /// # Errors
    /// As [`head`](Self::head).
    pub fn take(
        &mut self,
        order: u64,
        at: usize,
        each: &mut dyn FnMut(R::Entry, FrameBytes),
    ) -> Result<()> {
        loop {
            self.fill(at)?;
            let entries = &mut self.streams[at].entries;
            let Some((front, _)) = entries.front() else {
                return Ok(());
            };
            assert!(
                R::order(front) >= order,
                "the order goes back in stream {at}"
            );
            if R::order(front) != order {
                return Ok(());
            }
            if let Some((entry, bytes)) = entries.pop_front() {
                each(entry, bytes);
            }
        }
    }

    /// Returns the number of streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Reads units of a stream until at least one frame is read or the stream ends.
    fn fill(&mut self, at: usize) -> Result<()> {
        let stream = &mut self.streams[at];
        while stream.entries.is_empty() && stream.next < stream.units.len() {
            let bytes = stream.read(&self.reads)?;
            self.reads.note_read(bytes);
        }
        Ok(())
    }
}

impl<E> Stream<'_, E> {
    /// Reads the next unit. Returns the number of bytes read.
    fn read<R: Reads<Entry = E>>(&mut self, reads: &R) -> Result<u64> {
        assert!(self.entries.is_empty(), "one unit of a stream at a time");
        let blocks = self.units[self.next].clone();
        if self.next.is_multiple_of(AHEAD_UNITS) {
            let told = self.units.iter().skip(self.next).take(2 * AHEAD_UNITS);
            told.for_each(|unit| self.scan.will_read(unit.clone()));
        }
        self.next += 1;
        let unit = Arc::new(self.scan.read_raw(blocks)?.open()?);
        let joined = unit.joined();
        unit.for_each(Direction::Forward, |frame, origin| {
            let Some(entry) = reads.read(frame, origin)? else {
                return Ok(());
            };
            reads.follows(&entry, self.end, origin)?;
            self.end = R::end(&entry);
            let bytes = FrameBytes {
                unit: Arc::clone(&unit),
                payload: range_in(joined, frame.payload),
                weight: 0,
            };
            self.entries.push_back((entry, bytes));
            Ok(())
        })?;
        let share = unit.bytes() / to_u64(self.entries.len()).max(1) + 1;
        for (_, bytes) in &mut self.entries {
            bytes.weight = share;
        }
        Ok(unit.bytes())
    }
}

/// Returns the units, with neighbours joined. A unit is joined with later units of the same incarnation if they begin
/// less than `bytes` bytes after the unit's begin. For a disk, one read that includes small gaps takes less time than
/// several reads.
fn joined(scan: &StreamScan, units: &[Range<usize>], bytes: u64) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::new();
    for unit in units {
        let block = &scan.blocks[unit.start];
        let continues = |last: &&mut Range<usize>| {
            let first = &scan.blocks[last.start];
            first.incarnation == block.incarnation && block.pos.0 - first.pos.0 < bytes
        };
        match joined.last_mut().filter(continues) {
            Some(last) => last.end = unit.end,
            None => joined.push(unit.clone()),
        }
    }
    joined
}

/// Returns the range of a payload within the bytes of its unit.
pub(crate) fn range_in(joined: &[u8], payload: &[u8]) -> Range<usize> {
    let offset = payload.as_ptr().addr() - joined.as_ptr().addr();
    let range = offset..offset + payload.len();
    assert!(range.end <= joined.len(), "the payload is in its unit");
    range
}
