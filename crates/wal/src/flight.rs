//! The durable writes of a stream that are in flight, ordered by position.
//!
//! # Invariants
//! * The first write begins at the stream's durable end. Each further write begins at the end of its predecessor.
//! * The stream is durable up to the first write that is not durable. Completed writes after this first write do not
//!   count yet.
//! * A refused write is repeated with unchanged position and bytes.
//! * While a thread writes a cached file itself, no other write is in flight.

use std::collections::VecDeque;
use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Pos};
use perdura_device::{DurableWrite, File, Part};

/// A durable write of contiguous sealed blocks of one segment.
pub(crate) struct Flight {
    token: u64,
    pub file: Arc<dyn File>,
    /// The offset of the write's first block in the file.
    pub offset: u64,
    pub start: Pos,
    pub end: Pos,
    /// The highest D that the headers of the write's blocks name.
    pub names: Epoch,
    /// True if a thread executes the write itself.
    pub in_place: bool,
    stage: Stage,
}

enum Stage {
    /// The device has the write.
    Flying,
    /// The whole write is durable.
    Durable,
    /// The device has refused the write, and no byte of it counts. These parts will be written again.
    Refused(Vec<Part>),
}

impl Flight {
    /// Returns a write of the blocks from `start` to `end`.
    pub fn new(file: &Arc<dyn File>, offset: u64, start: Pos, end: Pos, names: Epoch) -> Flight {
        assert!(start < end, "a write from {start} to {end}");
        Flight {
            token: 0,
            file: Arc::clone(file),
            offset,
            start,
            end,
            names,
            in_place: false,
            stage: Stage::Flying,
        }
    }

    fn write(&self, parts: Vec<Part>) -> DurableWrite {
        DurableWrite {
            token: self.token,
            file: Arc::clone(&self.file),
            offset: self.offset,
            parts,
        }
    }
}

/// The writes in flight of one stream.
pub(crate) struct Flights {
    flights: VecDeque<Flight>,
    /// The token that the next write gets.
    next: u64,
    /// The end of the last write.
    end: Pos,
}

impl Flights {
    /// Returns an empty list for a stream. The first write will begin at `start`.
    pub fn new(start: Pos) -> Flights {
        Flights {
            flights: VecDeque::new(),
            next: 0,
            end: start,
        }
    }

    pub fn len(&self) -> usize {
        self.flights.len()
    }

    /// Notes that a write begins, and returns it for submission.
    pub fn begin(&mut self, mut flight: Flight, parts: Vec<Part>) -> DurableWrite {
        assert_eq!(
            flight.start, self.end,
            "a write does not begin where the last one ends"
        );
        flight.token = self.next;
        self.next += 1;
        self.end = flight.end;
        let write = flight.write(parts);
        self.flights.push_back(flight);
        write
    }

    /// Returns whether a refused write waits to be repeated.
    pub fn has_refused(&self) -> bool {
        let mut flights = self.flights.iter();
        flights.any(|flight| matches!(flight.stage, Stage::Refused(_)))
    }

    /// Returns whether a thread writes a cached file itself. No other write may begin meanwhile. Linux reports a failed
    /// write of a cached file once, perhaps to the sync of another write.
    pub fn is_exclusive(&self) -> bool {
        let mut flights = self.flights.iter();
        flights.any(|flight| {
            let flies = matches!(flight.stage, Stage::Flying);
            flies && flight.in_place && !flight.file.is_direct()
        })
    }

    /// Puts the first refused write in flight again, and returns it for submission.
    pub fn begin_again(&mut self) -> Option<DurableWrite> {
        for flight in &mut self.flights {
            if let Stage::Refused(parts) = &mut flight.stage {
                let parts = std::mem::take(parts);
                flight.stage = Stage::Flying;
                return Some(flight.write(parts));
            }
        }
        None
    }

    fn find(&mut self, token: u64) -> &mut Flight {
        let flight = self.flights.iter_mut().find(|flight| flight.token == token);
        let flight = flight.expect("what completes was begun");
        assert!(
            matches!(flight.stage, Stage::Flying),
            "a write completes once"
        );
        flight
    }

    /// Returns the file of a write in flight, and the write's offset in it.
    pub fn place(&mut self, token: u64) -> (Arc<dyn File>, u64) {
        let flight = self.find(token);
        (Arc::clone(&flight.file), flight.offset)
    }

    /// Returns whether a write is in flight. With the seeded bug the write may already have been removed from the list.
    #[cfg(feature = "flaws")]
    pub fn has(&self, token: u64) -> bool {
        let mut flying = self.flights.iter();
        flying.any(|flight| flight.token == token && matches!(flight.stage, Stage::Flying))
    }

    /// Notes that a write is durable.
    pub fn note_durable(&mut self, token: u64) {
        let flight = self.find(token);
        flight.stage = Stage::Durable;
        if armed(Flaw::NewestCompletionCounts) {
            let end = flight.end;
            for earlier in self.flights.iter_mut().filter(|one| one.end <= end) {
                earlier.stage = Stage::Durable;
            }
        }
    }

    /// Notes that a write was refused.
    pub fn note_refused(&mut self, token: u64, parts: Vec<Part>) {
        self.find(token).stage = Stage::Refused(parts);
    }

    /// Removes the first write if it is durable.
    pub fn pop_durable(&mut self) -> Option<Flight> {
        let first = self.flights.front()?;
        if !matches!(first.stage, Stage::Durable) {
            return None;
        }
        let first = self.flights.pop_front()?;
        let next = self.flights.front().map_or(self.end, |next| next.start);
        assert_eq!(first.end, next, "writes follow each other without a gap");
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use perdura_device::{Access, AlignedBuf, Disk, MemDisk};

    use super::*;

    fn part() -> Vec<Part> {
        vec![Part {
            buf: AlignedBuf::zeroed(4096),
            len: 4096,
        }]
    }

    #[test]
    fn a_stream_is_durable_up_to_the_first_write_that_is_not() {
        let file = MemDisk::new().create("f", Access::Direct).unwrap();
        let mut flights = Flights::new(Pos(0));
        for at in 0..3 {
            let (start, end) = (Pos(at * 4096), Pos((at + 1) * 4096));
            let write = flights.begin(Flight::new(&file, start.0, start, end, Epoch(at)), part());
            assert_eq!((write.token, write.offset), (at, start.0));
        }
        flights.note_durable(2);
        flights.note_refused(0, part());
        assert!(flights.pop_durable().is_none());
        flights.note_durable(1);
        assert!(flights.pop_durable().is_none());
        assert_eq!(flights.begin_again().unwrap().token, 0);
        assert!(flights.begin_again().is_none());
        flights.note_durable(0);
        let ends: Vec<Pos> = std::iter::from_fn(|| flights.pop_durable())
            .map(|flight| flight.end)
            .collect();
        assert_eq!(ends, [Pos(4096), Pos(8192), Pos(12288)]);
        assert_eq!(flights.len(), 0);
    }
}
