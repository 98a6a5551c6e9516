//! The numbered frames of all streams, in the order of their numbers.
//!
//! A stream's frames ascend, because numbers are taken under its lock; so the next frame is at the head of a stream. Whoever asks
//! for all frames is told of a number that is missing or doubled.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use perdura_base::cursor::Reader;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Gsn, Incarnation, Result};
use perdura_wal::{Direction, Frame, FrameKind, Holds, Origin, Role, StreamScan, Unit};

use crate::merge::range_in;
use crate::route::{WRITERS_BUG, refuse};
use crate::streams::UNIT_BYTES;

/// Units that the disk is told of before they are read.
const AHEAD_UNITS: usize = 4;

/// Which frames are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The tree's records: long runs of blocks without one are skipped.
    Records,
    /// All.
    All,
}

impl Wanted {
    fn wants(self, holds: Holds) -> bool {
        match self {
            Wanted::Records => holds.tree,
            Wanted::All => holds.tree || holds.operations,
        }
    }
}

/// A frame, and the unit that has its bytes.
pub(super) struct Numbered {
    pub kind: FrameKind,
    /// The numbers of what is in it.
    pub numbers: Range<u64>,
    pub origin: Origin,
    unit: Arc<Unit>,
    payload: Range<usize>,
}

impl Numbered {
    /// Its payload.
    pub fn payload(&self) -> &[u8] {
        &self.unit.joined()[self.payload.clone()]
    }
}

struct Stream<'a> {
    scan: &'a StreamScan,
    units: Vec<Range<usize>>,
    /// The next unit to read.
    next: usize,
    frames: VecDeque<Numbered>,
    /// The number behind the last frame that was read.
    end: u64,
}

/// The frames of a log that have numbers.
pub(super) struct NumberedLog<'a> {
    streams: Vec<Stream<'a>>,
    wanted: Wanted,
    /// The end of the stable log of each life: up to there no number is missing.
    eosl: BTreeMap<Incarnation, Gsn>,
    /// What lies below has been left behind by a checkpoint, but for what reaches into it.
    from: Gsn,
    /// The last frame that was handed out.
    last: Option<(Incarnation, u64)>,
}

impl<'a> NumberedLog<'a> {
    /// The wanted frames of these streams, which end where they were cut. From number `from` on there is each.
    pub fn new(scans: &'a [StreamScan], wanted: Wanted, from: Gsn) -> NumberedLog<'a> {
        let mut eosl = BTreeMap::new();
        for block in scans.iter().flat_map(|scan| &scan.blocks) {
            let newest: &mut Gsn = eosl.entry(block.incarnation).or_default();
            *newest = block.eosl.max(*newest);
        }
        let stream = |scan: &'a StreamScan| {
            // Analysis skips blocks, so its units are short; what reads all of a log reads it in long ones.
            let bytes = match wanted {
                Wanted::Records => 1,
                Wanted::All => UNIT_BYTES,
            };
            let mut units = scan.units(bytes);
            units.retain(|unit| wanted.wants(scan.holds(unit)));
            if wanted == Wanted::Records {
                units = joined(scan, &units);
            }
            Stream {
                scan,
                units,
                next: 0,
                frames: VecDeque::new(),
                end: 0,
            }
        };
        assert!(!scans.is_empty(), "a log has a stream");
        NumberedLog {
            streams: scans.iter().map(stream).collect(),
            wanted,
            eosl,
            from,
            last: None,
        }
    }

    /// The next frame; `None` at the end.
    ///
    /// # Errors
    /// The medium's; damage; numbers that are missing or doubled.
    pub fn next(&mut self) -> Result<Option<Numbered>> {
        for stream in &mut self.streams {
            while stream.frames.is_empty() && stream.next < stream.units.len() {
                stream.read(self.wanted)?;
            }
        }
        let heads = self.streams.iter().enumerate().filter_map(|(at, stream)| {
            let head = stream.frames.front()?;
            Some((head.numbers.start, at))
        });
        let Some((_, at)) = heads.min() else {
            return Ok(None);
        };
        let frame = self.streams[at].frames.pop_front();
        let frame = frame.expect("the frame at the head of its stream");
        assert!(
            self.wanted == Wanted::All || frame.kind == FrameKind::Tree,
            "an analysis of records is handed no operations"
        );
        self.check_number(&frame)?;
        assert!(
            self.last.is_none_or(|(_, end)| end <= frame.numbers.start),
            "frames are handed out in the order of their numbers"
        );
        self.last = Some((frame.origin.life, frame.numbers.end));
        Ok(Some(frame))
    }

    /// Up to the end of a life's stable log there is each number once.
    fn check_number(&self, frame: &Numbered) -> Result<()> {
        let first = frame.numbers.start;
        let Some((life, end)) = self.last else {
            return Ok(());
        };
        let wrong = |found: String| {
            refuse(
                &frame.origin,
                format!("the frame with number {end}"),
                found,
                "Operations that were durable are missing, or are there twice. Restore the log's files from a backup.",
            )
        };
        if first < end {
            return Err(wrong(format!("number {first} for a second time")));
        }
        let eosl = self.eosl.get(&life).copied().unwrap_or_default();
        let is_stable = Gsn(end) <= eosl || armed(Flaw::NumbersDemandedAboveEosl);
        let is_dense = self.wanted == Wanted::All && Gsn(end) >= self.from && is_stable;
        if is_dense && first > end {
            return Err(wrong(format!(
                "number {first}, although everything up to {eosl} was durable"
            )));
        }
        Ok(())
    }
}

/// Units with what lies between them, where that is so little that a disk reads through it sooner than it begins anew.
fn joined(scan: &StreamScan, units: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::new();
    for unit in units {
        let block = &scan.blocks[unit.start];
        let goes_on = |last: &&mut Range<usize>| {
            let first = &scan.blocks[last.start];
            first.incarnation == block.incarnation && block.pos.0 - first.pos.0 < UNIT_BYTES
        };
        match joined.last_mut().filter(goes_on) {
            Some(last) => last.end = unit.end,
            None => joined.push(unit.clone()),
        }
    }
    joined
}

impl Stream<'_> {
    /// Reads the next unit.
    fn read(&mut self, wanted: Wanted) -> Result<()> {
        assert!(self.frames.is_empty(), "one unit of a stream at a time");
        let blocks = self.units[self.next].clone();
        if self.next.is_multiple_of(AHEAD_UNITS) {
            let told = self.units.iter().skip(self.next).take(2 * AHEAD_UNITS);
            told.for_each(|unit| self.scan.will_read(unit.clone()));
        }
        self.next += 1;
        let unit = Arc::new(self.scan.read_raw(blocks)?.open()?);
        let joined = unit.joined();
        unit.for_each(Direction::Forward, |frame, origin| {
            let is_wanted = wanted == Wanted::All || frame.kind == FrameKind::Tree;
            if frame.kind.role() != Role::Numbered || !is_wanted {
                return Ok(());
            }
            let numbers = numbers_of(frame).ok_or_else(|| {
                refuse(
                    origin,
                    String::from("a frame with numbers"),
                    format!("a frame of kind {} without", frame.kind.code()),
                    WRITERS_BUG,
                )
            })?;
            if numbers.start < self.end {
                return Err(refuse(
                    origin,
                    format!("a number of at least {}", self.end),
                    numbers.start.to_string(),
                    WRITERS_BUG,
                ));
            }
            self.end = numbers.end;
            self.frames.push_back(Numbered {
                kind: frame.kind,
                numbers,
                origin: *origin,
                unit: Arc::clone(&unit),
                payload: range_in(joined, frame.payload),
            });
            Ok(())
        })
    }
}

/// The highest number of a frame in these streams, which end where they were cut; 0 if there is none.
///
/// # Errors
/// As [`NumberedLog::next`].
pub(super) fn last_number(scans: &[StreamScan]) -> Result<Gsn> {
    let mut last = 0;
    for scan in scans {
        let mut units = scan.units(1);
        units.retain(|unit| Wanted::All.wants(scan.holds(unit)));
        if let Some(unit) = units.pop() {
            scan.read_unit(unit, Direction::Forward, |frame, _| {
                let numbers = Some(frame).filter(|frame| frame.kind.role() == Role::Numbered);
                let end = numbers
                    .and_then(numbers_of)
                    .map_or(0, |numbers| numbers.end);
                last = last.max(end.saturating_sub(1));
                Ok(())
            })?;
        }
    }
    Ok(Gsn(last))
}

/// The numbers of a frame, from its first bytes.
fn numbers_of(frame: Frame<'_>) -> Option<Range<u64>> {
    let mut r = Reader::new(frame.payload);
    let (first, count) = match frame.kind {
        FrameKind::Tree => {
            r.u8()?;
            (r.varint()?, 1)
        }
        _ => (r.varint()?, r.varint()?),
    };
    Some(first..first.checked_add(count)?).filter(|numbers| first > 0 && !numbers.is_empty())
}
