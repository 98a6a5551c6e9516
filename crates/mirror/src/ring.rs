//! A ring of the newest bytes of one stream, in memory. It holds the bytes that are not known to be on the writer's
//! disk.
//!
//! # Invariants
//! * An append must begin at the ring's end, so that no gap exists. Otherwise it changes nothing.
//! * `low <= end <= low + size`. The byte at position p has index (p - base) modulo the size. `base` is the ring's very
//!   first position.
//! * The memory grows until the ring wraps around for the first time. It is not zeroed in advance, so bytes that were
//!   never written take no memory.
//! * Bytes are returned only if the checksum of their append is right.

use std::collections::VecDeque;

use perdura_base::Pos;
use perdura_base::checksum::crc32c_append;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::{to_u64, to_usize};

/// The reason why a ring does not take a block or does not return bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingRefusal {
    /// The block does not begin at the ring's end. The field is the position of that end.
    Position(Pos),
    /// The ring has no room for the block.
    Full,
    /// The bytes are not within the positions that the ring holds.
    Outside {
        /// The first position that the ring holds.
        low: Pos,
        /// The position after the ring's last byte.
        end: Pos,
    },
    /// The memory lacks the bytes appended at this position.
    Damaged(Pos),
}

/// The range and the checksum of one append. They are kept so that a read can check the bytes.
struct Append {
    start: Pos,
    end: Pos,
    crc: u32,
}

/// A ring.
pub struct Ring {
    /// The bytes. Capacity for `size` bytes is reserved from the beginning.
    memory: Vec<u8>,
    size: u64,
    appends: VecDeque<Append>,
    base: Pos,
    low: Pos,
    end: Pos,
}

impl Ring {
    /// Makes an empty ring of `size` bytes that begins at `start`. `None`: there is not enough memory.
    #[must_use]
    pub fn new(start: Pos, size: u64) -> Option<Ring> {
        assert!(size > 0, "a ring has room");
        let mut memory = Vec::new();
        memory.try_reserve_exact(to_usize(size)).ok()?;
        Some(Ring {
            memory,
            size,
            appends: VecDeque::new(),
            base: start,
            low: start,
            end: start,
        })
    }

    /// Returns the first position that the ring holds.
    #[must_use]
    pub fn low(&self) -> Pos {
        self.low
    }

    /// Returns the position after the ring's last byte.
    #[must_use]
    pub fn end(&self) -> Pos {
        self.end
    }

    /// Returns the number of bytes in the ring.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end.0 - self.low.0
    }

    /// Returns whether the ring is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.low == self.end
    }

    /// Returns the maximum number of bytes that the ring can hold.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Empties the ring. It then begins at `start`.
    pub fn restart(&mut self, start: Pos) {
        assert!(self.end <= start, "a ring begins again behind its end");
        (self.base, self.low, self.end) = (start, start, start);
        self.memory.clear();
        self.appends.clear();
    }

    /// Forgets the bytes below `low`. Does nothing if the ring begins at `low` or later, or ends before `low`.
    pub fn forget(&mut self, low: Pos) {
        if low <= self.low || low > self.end {
            return;
        }
        self.low = low;
        let before = self.appends.len();
        while self.appends.front().is_some_and(|first| first.end <= low) {
            self.appends.pop_front();
        }
        assert!(self.low <= self.end && self.len() <= self.size());
        assert!(self.appends.len() <= before && (self.is_empty() || !self.appends.is_empty()));
    }

    /// Returns whether the ring has room for `bytes` more bytes.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        self.len() + bytes <= self.size()
    }

    /// Appends `bytes` and then `pad` zeros. They begin at position `pos`.
    ///
    /// # Errors
    /// [`RingRefusal::Position`] and [`RingRefusal::Full`]. The ring is then unchanged.
    pub fn append(&mut self, pos: Pos, bytes: &[u8], pad: u32) -> Result<(), RingRefusal> {
        if pos != self.end && !armed(Flaw::PositionGapAccepted) {
            return Err(RingRefusal::Position(self.end));
        }
        if !self.has_room(to_u64(bytes.len()) + u64::from(pad)) {
            return Err(RingRefusal::Full);
        }
        let start = self.end;
        let mut crc = self.put(start, bytes);
        let zeros = [0; 4096];
        let (mut at, mut left) = (Pos(start.0 + to_u64(bytes.len())), pad);
        while left > 0 {
            let now = left.min(4096);
            let part = &zeros[..to_usize(u64::from(now))];
            self.put(at, part);
            crc = crc32c_append(crc, part);
            (at, left) = (Pos(at.0 + u64::from(now)), left - now);
        }
        self.end = at;
        if start < at {
            self.appends.push_back(Append {
                start,
                end: at,
                crc,
            });
        }
        assert!(self.len() <= self.size(), "a ring holds at most its size");
        Ok(())
    }

    /// Writes bytes at a position. Returns their checksum.
    fn put(&mut self, pos: Pos, bytes: &[u8]) -> u32 {
        assert!(
            to_u64(bytes.len()) <= self.size(),
            "a ring does not overtake itself"
        );
        let at = self.index(pos);
        let (first, second) = bytes.split_at(bytes.len().min(to_usize(self.size) - at));
        self.put_at(at, first);
        self.put_at(0, second);
        assert!(
            to_u64(self.memory.len()) <= self.size,
            "the memory ends with the first round"
        );
        crc32c_append(0, bytes)
    }

    /// Returns the index of the byte at a position.
    fn index(&self, pos: Pos) -> usize {
        to_usize((pos.0 - self.base.0) % self.size)
    }

    /// Writes bytes at an index. The memory grows if the bytes reach beyond its end.
    fn put_at(&mut self, at: usize, bytes: &[u8]) {
        let over = bytes.len().min(self.memory.len() - at);
        self.memory[at..at + over].copy_from_slice(&bytes[..over]);
        self.memory.extend_from_slice(&bytes[over..]);
    }

    /// Returns the bytes from `from` to `to`. They are in two parts if they wrap around the end of the memory.
    pub(crate) fn parts(&self, from: Pos, to: Pos) -> [&[u8]; 2] {
        assert!(
            self.low <= from && from <= to && to <= self.end,
            "{from} to {to} of a ring from {} to {}",
            self.low,
            self.end
        );
        let (at, len) = (self.index(from), to_usize(to.0 - from.0));
        let first = len.min(to_usize(self.size) - at);
        [&self.memory[at..at + first], &self.memory[..len - first]]
    }

    /// Returns the appends that end after `from`: start, end, and the checksum of the bytes.
    pub(crate) fn whole_appends_from(&self, from: Pos) -> impl Iterator<Item = (Pos, Pos, u32)> {
        let first = self.appends.partition_point(|append| append.end <= from);
        let appends = self.appends.range(first..);
        appends.map(|append| (append.start, append.end, append.crc))
    }

    /// Copies at most `len` bytes of the ring, from position `from` on, to the end of `out`. Copies fewer bytes if the
    /// ring ends earlier. Stops before an append with a wrong checksum.
    ///
    /// # Errors
    /// [`RingRefusal::Outside`], [`RingRefusal::Damaged`].
    pub fn read(&self, from: Pos, len: u64, out: &mut Vec<u8>) -> Result<(), RingRefusal> {
        if from < self.low || from > self.end {
            return Err(RingRefusal::Outside {
                low: self.low,
                end: self.end,
            });
        }
        let mut to = Pos(self.end.0.min(from.0.saturating_add(len)));
        let first = self.appends.partition_point(|append| append.end <= from);
        for append in self.appends.range(first..) {
            if append.start >= to {
                break;
            }
            if !self.holds(append) {
                to = append.start;
                break;
            }
        }
        if to < from || (to == from && len > 0 && from < self.end) {
            return Err(RingRefusal::Damaged(from));
        }
        self.parts(from, to)
            .iter()
            .for_each(|part| out.extend_from_slice(part));
        Ok(())
    }

    /// Returns whether the checksum of an append is right. If the beginning of the append was forgotten, it can no
    /// longer be checked and counts as right.
    fn holds(&self, append: &Append) -> bool {
        append.start < self.low
            || self
                .parts(append.start, append.end)
                .iter()
                .fold(0, |crc, part| crc32c_append(crc, part))
                == append.crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(ring: &Ring, from: u64, len: u64) -> Vec<u8> {
        let mut out = Vec::new();
        ring.read(Pos(from), len, &mut out).unwrap();
        out
    }

    #[test]
    fn a_ring_returns_what_was_appended_around_its_end_too() {
        let mut ring = Ring::new(Pos(4096), 10_000).unwrap();
        let mut all = Vec::new();
        let mut at = 4096;
        for round in 0..200_u32 {
            let len = usize::try_from(1 + round * 37 % 3000).unwrap();
            let block: Vec<u8> = (0..len).map(|i| (i + at).to_le_bytes()[0] ^ 0x5a).collect();
            let pad = round * 11 % 900;
            let (pos, more) = (Pos(to_u64(at)), to_u64(len) + u64::from(pad));
            if !ring.has_room(more) {
                assert_eq!(ring.append(pos, &block, pad), Err(RingRefusal::Full));
                ring.forget(Pos(pos.0 - 1000.min(ring.len())));
            }
            ring.append(pos, &block, pad).unwrap();
            all.extend(block);
            all.extend(vec![0; to_usize(u64::from(pad))]);
            at = 4096 + all.len();
            assert_eq!(
                (ring.end(), ring.end().0 - ring.low().0),
                (Pos(to_u64(at)), ring.len())
            );
            let low = to_usize(ring.low().0);
            assert_eq!(bytes(&ring, ring.low().0, ring.len()), &all[low - 4096..]);
        }
    }

    #[test]
    fn a_gap_and_a_repetition_change_nothing() {
        let mut ring = Ring::new(Pos(0), 100).unwrap();
        ring.append(Pos(0), b"abc", 1).unwrap();
        for pos in [0, 3, 5, 100] {
            let refused = ring.append(Pos(pos), b"x", 0);
            assert_eq!(refused, Err(RingRefusal::Position(Pos(4))));
        }
        assert_eq!(bytes(&ring, 0, 100), b"abc\0");
    }

    #[test]
    fn what_was_forgotten_and_what_never_was_is_outside() {
        let mut ring = Ring::new(Pos(0), 100).unwrap();
        ring.append(Pos(0), &[7; 60], 0).unwrap();
        ring.append(Pos(60), &[8; 30], 0).unwrap();
        ring.forget(Pos(70));
        ring.forget(Pos(20));
        ring.forget(Pos(91));
        assert_eq!((ring.low(), ring.end()), (Pos(70), Pos(90)));
        let outside = Err(RingRefusal::Outside {
            low: Pos(70),
            end: Pos(90),
        });
        for from in [0, 69, 91] {
            assert_eq!(ring.read(Pos(from), 1, &mut Vec::new()), outside);
        }
        assert_eq!(bytes(&ring, 90, 10), b"");
        assert_eq!(bytes(&ring, 75, 2), [8, 8]);
        ring.restart(Pos(200));
        assert!(ring.is_empty());
        ring.append(Pos(200), b"y", 0).unwrap();
        assert_eq!(bytes(&ring, 200, 9), b"y");
    }

    #[test]
    fn memory_that_rots_is_not_returned() {
        let mut ring = Ring::new(Pos(0), 100).unwrap();
        for at in 0..5 {
            ring.append(Pos(at * 10), &[1; 10], 0).unwrap();
        }
        ring.memory[25] ^= 4;
        assert_eq!(bytes(&ring, 0, 50), [1; 20]);
        assert_eq!(bytes(&ring, 5, 10), [1; 10]);
        let damaged = Err(RingRefusal::Damaged(Pos(20)));
        assert_eq!(ring.read(Pos(20), 50, &mut Vec::new()), damaged);
        assert_eq!(bytes(&ring, 30, 50), [1; 20]);
    }

    #[test]
    fn a_ring_that_no_memory_can_hold_is_not_made() {
        assert!(Ring::new(Pos(0), u64::MAX / 4).is_none());
    }
}
