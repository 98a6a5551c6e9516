//! The numbered frames of all streams, in the order of their numbers. One sequence of numbers serves all streams.
//!
//! Within a stream the numbers ascend, because a number is assigned under the stream's lock. A reader of all frames
//! fails if a number is missing or occurs twice.

use std::collections::BTreeMap;
use std::ops::Range;

use perdura_base::cursor::Reader;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Gsn, Incarnation, Result};
use perdura_wal::{Direction, Frame, FrameKind, Holds, Origin, Role, StreamScan};

use crate::cursor::{Cursor, FrameBytes, Reads};
use crate::route::{WRITERS_BUG, refuse};
use crate::streams::UNIT_BYTES;

/// The kinds of frames that a [`NumberedLog`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The tree's records only. Long runs of blocks without the tree's records are skipped.
    Records,
    /// All numbered frames.
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

/// A frame that was read.
pub(super) struct Numbered {
    pub head: NumberedHead,
    bytes: FrameBytes,
}

/// The decoded start of a frame.
pub(super) struct NumberedHead {
    pub kind: FrameKind,
    /// The numbers of the frame's operations, or the number of its one record.
    pub numbers: Range<u64>,
    pub origin: Origin,
}

impl Numbered {
    /// Returns the frame's payload.
    pub fn payload(&self) -> &[u8] {
        self.bytes.payload()
    }
}

impl Reads for Wanted {
    type Entry = NumberedHead;

    fn wants(&self, holds: Holds) -> bool {
        Wanted::wants(*self, holds)
    }

    fn read(&self, frame: Frame<'_>, origin: &Origin) -> Result<Option<NumberedHead>> {
        let is_wanted = *self == Wanted::All || frame.kind == FrameKind::Tree;
        if frame.kind.role() != Role::Numbered || !is_wanted {
            return Ok(None);
        }
        let numbers = numbers_of(frame).ok_or_else(|| {
            refuse(
                origin,
                String::from("a frame with numbers"),
                format!("a frame of kind {} without", frame.kind.code()),
                WRITERS_BUG,
            )
        })?;
        Ok(Some(NumberedHead {
            kind: frame.kind,
            numbers,
            origin: *origin,
        }))
    }

    fn order(entry: &NumberedHead) -> u64 {
        entry.numbers.start
    }

    fn follows(&self, entry: &NumberedHead, before: u64, origin: &Origin) -> Result<()> {
        if entry.numbers.start >= before {
            return Ok(());
        }
        Err(refuse(
            origin,
            format!("a number of at least {before}"),
            entry.numbers.start.to_string(),
            WRITERS_BUG,
        ))
    }

    fn end(entry: &NumberedHead) -> u64 {
        entry.numbers.end
    }
}

/// The numbered frames of a log, merged from all streams.
pub(super) struct NumberedLog<'a> {
    cursor: Cursor<'a, Wanted>,
    wanted: Wanted,
    /// For each life, the highest `eosl` that a block names: all operations up to that number are in the durable log.
    /// So none of these numbers may be missing.
    eosl: BTreeMap<Incarnation, Gsn>,
    /// The redo start of a checkpoint. Frames that lie wholly below this number are not needed and may be missing.
    from: Gsn,
    /// The life of the last returned frame, and the next number after this frame.
    last: Option<(Incarnation, u64)>,
}

impl<'a> NumberedLog<'a> {
    /// Makes a reader of the wanted frames of these streams. It reads each stream up to the stream's decided end.
    /// Numbers below `from` may be missing.
    pub fn new(scans: &'a [StreamScan], wanted: Wanted, from: Gsn) -> NumberedLog<'a> {
        let mut eosl = BTreeMap::new();
        for block in scans.iter().flat_map(|scan| &scan.blocks) {
            let newest: &mut Gsn = eosl.entry(block.incarnation).or_default();
            *newest = block.eosl.max(*newest);
        }
        // The analysis reads only the tree's records and skips blocks, so its units are one block each. A reader of all
        // frames uses long units.
        let (unit_bytes, join_bytes) = match wanted {
            Wanted::Records => (1, Some(UNIT_BYTES)),
            Wanted::All => (UNIT_BYTES, None),
        };
        NumberedLog {
            cursor: Cursor::new(scans, wanted, unit_bytes, join_bytes),
            wanted,
            eosl,
            from,
            last: None,
        }
    }

    /// Returns the next frame, or `None` at the end of the log.
    ///
    /// # Errors
    /// Errors of the disk; damage of the log; numbers that are missing or occur twice.
    pub fn next(&mut self) -> Result<Option<Numbered>> {
        let Some((head, bytes)) = self.cursor.next()? else {
            return Ok(None);
        };
        let frame = Numbered { head, bytes };
        assert!(
            self.wanted == Wanted::All || frame.head.kind == FrameKind::Tree,
            "an analysis of records is handed no operations"
        );
        self.check_number(&frame)?;
        assert!(
            self.last
                .is_none_or(|(_, end)| end <= frame.head.numbers.start),
            "frames are handed out in the order of their numbers"
        );
        self.last = Some((frame.head.origin.life, frame.head.numbers.end));
        Ok(Some(frame))
    }

    /// Checks that `frame` continues the numbers of the last returned frame. Fails if a number occurs twice, or if a
    /// number is missing that is needed and was surely durable.
    fn check_number(&self, frame: &Numbered) -> Result<()> {
        let first = frame.head.numbers.start;
        let Some((life, end)) = self.last else {
            return Ok(());
        };
        let wrong = |found: String| {
            refuse(
                &frame.head.origin,
                format!("the frame with number {end}"),
                found,
                "Durable operations are missing, or are there twice. Restore the log's files \
                 from a backup.",
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
                "number {first}, but everything up to {eosl} was durable"
            )));
        }
        Ok(())
    }
}

/// Returns the highest number in the frames of these streams, or 0 if there is no frame. Frames after a stream's
/// decided end do not count.
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

/// Decodes a frame's numbers from the first bytes of its payload. Returns `None` if they do not parse.
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
