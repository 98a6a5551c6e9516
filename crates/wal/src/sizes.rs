//! The sizes of a stream's segments, computed from the life's start.
//!
//! The first segment of a life has `first` bytes. Each further segment has twice the size of its predecessor, up to
//! `max`. So the exact length of every segment follows from the anchor alone. A segment with a wrong length is damaged,
//! even if the header confirms the length.

use perdura_base::Pos;
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::to_u64;

use crate::segment::SEGMENT_HEADER_BYTES;

/// The smallest permitted size of a segment, in bytes. If the maximum block length has its smallest permitted value,
/// such a segment has space for its header and for one block.
pub const SEGMENT_BYTES_MIN: u64 = 16 * 4096;

/// The sizes of a life's segments, in bytes, headers included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentSizes {
    /// The size of the first segment.
    pub first: u64,
    /// The size of the largest segments. Once a segment has this size, all later segments have it too.
    pub max: u64,
}

/// The positions that one segment covers in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The position of the first byte after the header.
    pub start: Pos,
    /// The size of the segment's file, bytes.
    pub bytes: u64,
}

impl Span {
    /// Returns the position after the segment's last byte.
    #[must_use]
    pub fn end(&self) -> Pos {
        Pos(self.start.0 + self.bytes - SEGMENT_HEADER_BYTES)
    }
}

impl SegmentSizes {
    /// Returns the sizes if all segments have `bytes` bytes.
    #[must_use]
    pub fn fixed(bytes: u64) -> SegmentSizes {
        SegmentSizes {
            first: bytes,
            max: bytes,
        }
    }

    /// Returns whether segments can have these sizes: whole sectors, the first not longer than the largest.
    #[must_use]
    pub(crate) fn are_possible(&self) -> bool {
        let sector = to_u64(SECTOR_BYTES);
        self.first.is_multiple_of(sector)
            && self.max.is_multiple_of(sector)
            && (SEGMENT_BYTES_MIN..=self.max).contains(&self.first)
            && self.max <= 1 << 40
    }

    /// Returns whether a segment of a life can have this size.
    #[must_use]
    pub fn contain(&self, bytes: u64) -> bool {
        let mut size = self.first;
        while size < bytes && size < self.max {
            size = (size * 2).min(self.max);
        }
        size == bytes
    }

    /// Returns the start of a life that has a segment of this size at `start`; `None` if no life has such a segment.
    /// Several segments have the largest size. For that size, the function returns the latest possible start.
    #[must_use]
    pub fn life_with(&self, start: Pos, bytes: u64) -> Option<Pos> {
        if !self.are_possible() || !self.contain(bytes) {
            return None;
        }
        let (mut before, mut size) = (0, self.first);
        while size < bytes {
            before += size - SEGMENT_HEADER_BYTES;
            size = (size * 2).min(self.max);
        }
        start.0.checked_sub(before).map(Pos)
    }

    /// Returns the segment at `pos` in a life with the start `life`.
    ///
    /// # Panics
    /// Panics if `pos` is before `life` or segments cannot have these sizes.
    #[must_use]
    pub fn span_at(&self, life: Pos, pos: Pos) -> Span {
        assert!(life <= pos, "position {pos} is before its life at {life}");
        assert!(self.are_possible(), "{self:?} are no segments");
        let mut span = Span {
            start: life,
            bytes: self.first,
        };
        // Each iteration doubles the size once.
        while span.end() <= pos && span.bytes < self.max {
            span = Span {
                start: span.end(),
                bytes: (span.bytes * 2).min(self.max),
            };
        }
        let room = span.bytes - SEGMENT_HEADER_BYTES;
        let whole = (pos.0 - span.start.0) / room;
        span.start = Pos(span.start.0 + whole * room);
        assert!(span.start <= pos && pos < span.end());
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_found_from_each_of_its_segments() {
        for (first, max) in [(1 << 16, 1 << 16), (1 << 16, 1 << 20), (1 << 16, 5 << 16)] {
            let sizes = SegmentSizes { first, max };
            let life = Pos(3 * 4096);
            let mut at = life;
            for _ in 0..20 {
                let span = sizes.span_at(life, at);
                let found = sizes.life_with(span.start, span.bytes).expect("a size");
                assert!(found >= life && (found == life || span.bytes == max));
                assert_eq!(sizes.span_at(found, span.start), span);
                assert_eq!(
                    sizes.span_at(found, span.end()),
                    sizes.span_at(life, span.end())
                );
                at = span.end();
            }
            assert_eq!(sizes.life_with(Pos(1 << 30), first + 4096), None);
        }
        let sizes = SegmentSizes {
            first: 1 << 16,
            max: 1 << 20,
        };
        assert_eq!(
            sizes.life_with(Pos(4096), 1 << 18),
            None,
            "no position is so early"
        );
    }

    #[test]
    fn spans_follow_each_other_without_a_gap_and_double_up_to_the_largest() {
        for (first, max) in [(65536, 65536), (65536, 1 << 20), (65536, 200 * 4096)] {
            let sizes = SegmentSizes { first, max };
            let life = Pos(12 * 4096);
            let (mut at, mut bytes) = (life, first);
            for _ in 0..12 {
                let span = sizes.span_at(life, at);
                assert_eq!((span.start, span.bytes), (at, bytes));
                assert!(sizes.contain(bytes) && !sizes.contain(bytes + 4096));
                for inside in [at.0, at.0 + 4096, span.end().0 - 4096] {
                    assert_eq!(sizes.span_at(life, Pos(inside)), span);
                }
                (at, bytes) = (span.end(), (bytes * 2).min(max));
            }
        }
    }

    #[test]
    fn sizes_that_no_segment_can_have_are_not_possible() {
        let possible = |first, max| SegmentSizes { first, max }.are_possible();
        assert!(possible(65536, 65536) && possible(65536, 1 << 30));
        assert!(!possible(65536, 65535) && !possible(65537, 1 << 20));
        assert!(!possible(4096, 1 << 20) && !possible(1 << 20, 65536) && !possible(0, 0));
    }
}
