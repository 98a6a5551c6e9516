//! The frames of one owner, merged from all streams of a log into one order.
//!
//! Within each stream the frames ascend in their owner's order, so the next frame of all is at the head of one of the
//! streams. A stream is read unit by unit. Units without a frame of the owner are skipped. The other units are
//! announced to the disk before they are read.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use perdura_base::Result;
use perdura_base::num::to_u64;
use perdura_wal::{Direction, Frame, Holds, Origin, StreamScan, Unit};

/// Before each group of this many units is read, twice as many units from there on are announced to the disk.
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

/// An owner's part of a cursor: which frames it reads, and in which order.
pub(crate) trait Reads {
    /// The decoded part of a frame, which is kept beside its bytes.
    type Entry;

    /// Returns whether a unit with these contents has a frame of the owner.
    fn wants(&self, holds: Holds) -> bool;

    /// Reads a frame. `None`: it does not belong to the owner.
    ///
    /// # Errors
    /// A frame that cannot be read, or that is not declared.
    fn read(&self, frame: Frame<'_>, origin: &Origin) -> Result<Option<Self::Entry>>;

    /// Returns the frame's place in the order. From frame to frame of a stream it never decreases.
    fn order(entry: &Self::Entry) -> u64;

    /// Fails if a frame must not follow its predecessor in the stream, which ended at `before`.
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
    /// The frames of the unit that was read last.
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
    /// Makes a cursor over streams, each up to its cut, read in units of about `unit_bytes`. Units that lie less than
    /// `join_bytes` apart are read as one.
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

    /// Returns the next frame's place in the order, and the number of its stream. `None`: no frame is left.
    ///
    /// # Errors
    /// Those of the disk; damage of the log; those of [`Reads`].
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

    /// Reads units of a stream until it has a frame, or ends.
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

/// Returns the units, with neighbours joined into one where less than `bytes` lie between them: for a disk, reading
/// through so small a gap takes less time than another read.
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
