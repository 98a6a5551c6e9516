//! The ordered frames of all streams, epoch by epoch.
//!
//! Epochs never go back within a stream, over all its lives. So the frames of an epoch are at the heads of the
//! streams when all earlier ones have been taken.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use perdura_base::num::to_u64;
use perdura_base::{Epoch, Result};
use perdura_page::OrderedPayload;
use perdura_page::ordered::{OrderedHead, Part};
use perdura_wal::{Direction, Origin, StreamScan, Unit};

use super::{OrderedFrame, malformed};
use crate::families::{Families, Family};
use crate::merge::range_in;
use crate::report::Progress;
use crate::route::foreign;

/// Units that the disk is told of before they are read.
const AHEAD_UNITS: usize = 4;

/// A frame that was read.
pub(super) struct Entry {
    pub family: Family,
    pub origin: Origin,
    /// Bytes of memory that it keeps: its share of its unit.
    pub weight: u64,
    head: OrderedHead,
    /// Where its body begins in its payload.
    body: usize,
    unit: Arc<Unit>,
    payload: Range<usize>,
}

impl Entry {
    /// Its partitions, and its number in each.
    pub fn parts(&self) -> &[Part] {
        &self.head.parts
    }

    /// Bytes of its payload.
    pub fn bytes(&self) -> u64 {
        to_u64(self.payload.len())
    }

    /// Hands the frame to `play`.
    pub fn with<T>(&mut self, play: impl FnOnce(&OrderedFrame<'_>, &Origin) -> T) -> T {
        let payload = &self.unit.joined()[self.payload.clone()];
        let head = std::mem::take(&mut self.head);
        let frame = OrderedFrame {
            family: self.family,
            payload: OrderedPayload::resume(head, payload, self.body),
        };
        let played = play(&frame, &self.origin);
        self.head = frame.payload.head;
        played
    }
}

struct Stream<'a> {
    scan: &'a StreamScan,
    units: &'a [Range<usize>],
    /// The next unit to read.
    next: usize,
    /// The frames of the unit that was read last.
    entries: VecDeque<Entry>,
    newest: Epoch,
}

/// The streams of a log, as far as they hold ordered frames.
pub(super) struct Epochs<'a> {
    streams: Vec<Stream<'a>>,
    families: Families,
    progress: &'a Progress,
}

impl<'a> Epochs<'a> {
    /// The frames in these units of each stream.
    pub fn new(
        scans: &'a [StreamScan],
        units: &'a [Vec<Range<usize>>],
        families: Families,
        progress: &'a Progress,
    ) -> Epochs<'a> {
        assert_eq!(scans.len(), units.len(), "units of every stream");
        let streams = scans.iter().zip(units).map(|(scan, units)| {
            let blocks = units.iter().flat_map(|unit| &scan.blocks[unit.clone()]);
            progress.add_total(blocks.map(|block| u64::from(block.body_len)).sum());
            Stream {
                scan,
                units,
                next: 0,
                entries: VecDeque::new(),
                newest: Epoch(0),
            }
        });
        Epochs {
            streams: streams.collect(),
            families,
            progress,
        }
    }

    /// The frames of the next epoch, stream by stream; `None` at the end of the log.
    ///
    /// # Errors
    /// The medium's; damage; a frame that cannot be read, or of a family that is not declared.
    pub fn next_epoch(&mut self) -> Result<Option<Vec<Entry>>> {
        for stream in &mut self.streams {
            while stream.entries.is_empty() && stream.next < stream.units.len() {
                stream.read(self.families, self.progress)?;
            }
        }
        let heads = self.streams.iter().filter_map(|s| s.entries.front());
        let Some(epoch) = heads.map(|entry| entry.origin.epoch).min() else {
            return Ok(None);
        };
        let mut taken = Vec::new();
        for stream in &mut self.streams {
            stream.take(epoch, self.families, self.progress, &mut taken)?;
        }
        assert!(
            !taken.is_empty(),
            "epoch {epoch} was at the head of a stream"
        );
        Ok(Some(taken))
    }
}

impl Stream<'_> {
    /// Takes all frames of an epoch.
    fn take(
        &mut self,
        epoch: Epoch,
        families: Families,
        progress: &Progress,
        taken: &mut Vec<Entry>,
    ) -> Result<()> {
        loop {
            while let Some(front) = self.entries.front() {
                assert!(
                    front.origin.epoch >= epoch,
                    "epochs go back in stream {} at {}",
                    self.scan.stream,
                    front.origin.pos
                );
                if front.origin.epoch != epoch {
                    return Ok(());
                }
                taken.extend(self.entries.pop_front());
            }
            if self.next == self.units.len() {
                return Ok(());
            }
            self.read(families, progress)?;
        }
    }

    /// Reads the next unit.
    fn read(&mut self, families: Families, progress: &Progress) -> Result<()> {
        assert!(self.entries.is_empty(), "one unit of a stream at a time");
        let blocks = self.units[self.next].clone();
        if self.next.is_multiple_of(AHEAD_UNITS) {
            let told = self.units.iter().skip(self.next).take(2 * AHEAD_UNITS);
            told.for_each(|unit| self.scan.will_read(unit.clone()));
        }
        let unit = Arc::new(self.scan.read_raw(blocks)?.open()?);
        self.next += 1;
        let joined = unit.joined();
        unit.for_each(Direction::Forward, |frame, origin| {
            let Some(family) = Family::of(frame.kind) else {
                return Ok(());
            };
            if !families.has(family) {
                return Err(foreign(frame, origin));
            }
            let payload = OrderedPayload::decode(frame.payload);
            let payload = payload.map_err(|why| malformed(family, why, origin))?;
            assert!(
                self.newest <= origin.epoch,
                "epochs go back in stream {} at {}",
                origin.stream,
                origin.pos
            );
            self.newest = origin.epoch;
            self.entries.push_back(Entry {
                family,
                origin: *origin,
                weight: 0,
                body: payload.body_at(),
                head: payload.head,
                unit: Arc::clone(&unit),
                payload: range_in(joined, frame.payload),
            });
            Ok(())
        })?;
        let share = unit.bytes() / to_u64(self.entries.len()).max(1) + 1;
        for entry in &mut self.entries {
            entry.weight = share;
        }
        progress.add_done(unit.bytes());
        Ok(())
    }
}
