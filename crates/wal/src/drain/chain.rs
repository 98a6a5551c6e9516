//! The blocks of a life from the vouched position on. Each block is taken from the disk or from a *tail*: the newest
//! part of the log, which a node of the mirror has kept.

use perdura_base::limits::IN_FLIGHT_BYTES_MAX;
use perdura_base::num::to_u64;
use perdura_base::{Error, Pos, Result};

use super::DrainLife;
use super::kept::{Kept, differs};
use crate::lookup::block_at;
use crate::scan::OpenSegment;
use crate::segment::SEGMENT_HEADER_BYTES;
use crate::sizes::Span;

/// The maximum length of one durable write, in bytes. A block longer than this is written alone.
pub(super) const RUN_BYTES: u64 = IN_FLIGHT_BYTES_MAX / 2;

/// One block of the chain.
pub(super) struct Link<'a> {
    pub pos: Pos,
    pub end: Pos,
    /// The segment that contains the block, or will contain it.
    pub span: Span,
    /// The block's bytes, if a tail has them.
    pub kept: Option<&'a [u8]>,
    /// True if the disk has the whole block.
    is_on_disk: bool,
}

/// The blocks from the vouched position on, without a gap.
pub(super) struct Chain<'a> {
    links: Vec<Link<'a>>,
    /// The end position of the last block.
    pub end: Pos,
}

impl<'a> Chain<'a> {
    /// Follows the blocks of the disk and of the tails from the vouched position on. If a block is on the disk and in a
    /// tail, compares the two copies.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a difference between disk and tails, and for missing blocks between a tail and the chain.
    /// The disk's error.
    pub fn gather(
        life: &DrainLife,
        segments: &[OpenSegment],
        kept: &[Kept<'a>],
    ) -> Result<Chain<'a>> {
        let mut links: Vec<Link<'a>> = Vec::new();
        let mut pos = life.vouched;
        loop {
            let span = life.sizes.span_at(life.start, pos);
            let mut holders = kept.iter().filter_map(|k| Some((k, k.block_at(pos)?)));
            let held = holders.next();
            let segment = segments.iter().find(|segment| segment.span == span);
            let on_disk = match segment {
                Some(of) => block_at(of.file.as_ref(), of.id, span.bytes, &life.uuid, pos)?,
                None => None,
            };
            let len = match (&on_disk, held) {
                (None, None) => break,
                (Some((_, bytes)), None) => bytes.len(),
                (None, Some((_, bytes))) => bytes.len(),
                (Some((_, disk)), Some((_, bytes))) if disk == bytes => bytes.len(),
                (Some(_), Some((holder, _))) => {
                    let offset = SEGMENT_HEADER_BYTES + (pos.0 - span.start.0);
                    let path = life.placement().id(span).path();
                    let other = format!("{path} at byte {offset}");
                    return Err(differs(life, holder, &other, pos));
                }
            };
            let end = Pos(pos.0 + to_u64(len));
            assert!(
                pos < end && end <= span.end(),
                "a block lies in one segment"
            );
            links.push(Link {
                pos,
                end,
                span,
                kept: held.map(|(_, bytes)| bytes),
                is_on_disk: on_disk.is_some(),
            });
            pos = end;
        }
        assert!(
            links.first().map_or(pos, |first| first.pos) == life.vouched,
            "the chain begins where the anchor's word ends"
        );
        let chain = Chain { links, end: pos };
        for tail in kept {
            chain.check_connected(life, tail)?;
        }
        Ok(chain)
    }

    /// Checks that the tail joins the chain, or ends before the vouched position.
    fn check_connected(&self, life: &DrainLife, tail: &Kept<'_>) -> Result<()> {
        let Some(first) = tail.first_behind(life.vouched) else {
            return Ok(());
        };
        let found = self.links.binary_search_by_key(&first, |link| link.pos);
        if found.is_ok() {
            return Ok(());
        }
        let (expected, lost) = match first > self.end {
            true => (
                format!(
                    "blocks from position {} on, where disk and other tails end",
                    self.end
                ),
                "The log between these blocks is missing and may contain acknowledged \
                 transactions. Nothing was changed. Give the tail of another node too, or accept \
                 the loss and leave this tail out.",
            ),
            false => (
                format!(
                    "a block that begins where one on disk or of another tail ends, up to {}",
                    self.end
                ),
                "The blocks contradict each other. Nothing was changed. Copy all these files and \
                 report the bug.",
            ),
        };
        let found = format!("a first block at position {first}");
        Err(Error::corrupt(
            tail.place(life),
            first.0,
            expected,
            found,
            lost,
        ))
    }

    /// Returns the blocks to write: all blocks from the first missing or doubtful block on. A doubtful block may not be
    /// durable. The result is empty if the disk lacks no block.
    pub fn to_write(&self) -> &[Link<'a>] {
        let Some(missing) = self.links.iter().position(|link| !link.is_on_disk) else {
            return &[];
        };
        let on_disk = self.links.iter().rev().find(|link| link.is_on_disk);
        let top = on_disk.map_or(Pos(0), |last| last.end);
        // A block is never written farther than `IN_FLIGHT_BYTES_MAX` beyond the durable end of its stream.
        let durable = top.0.saturating_sub(IN_FLIGHT_BYTES_MAX);
        let doubtful = self.links.partition_point(|link| link.end.0 <= durable);
        let (kept, written) = self.links.split_at(missing.min(doubtful));
        assert!(
            kept.iter()
                .all(|link| link.is_on_disk && link.end.0 <= durable.max(written[0].pos.0)),
            "what is not written is on disk"
        );
        written
    }

    /// Divides these blocks into durable writes. Each write stays within one segment.
    pub fn runs<'b>(&self, links: &'b [Link<'a>]) -> impl Iterator<Item = &'b [Link<'a>]> {
        let mut rest = links;
        std::iter::from_fn(move || {
            let first = rest.first()?;
            let fits =
                |link: &&Link<'_>| link.span == first.span && link.end.0 - first.pos.0 <= RUN_BYTES;
            let count = rest.iter().take_while(fits).count().max(1);
            let (run, left) = rest.split_at(count);
            assert!(
                run.windows(2).all(|pair| pair[0].end == pair[1].pos),
                "a write from {} on has no gap",
                first.pos
            );
            rest = left;
            Some(run)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::SegmentSizes;

    const MIB: u64 = 1 << 20;

    /// Returns a chain of blocks with these lengths in MiB. Bit i of `on_disk` says whether the disk has block i.
    fn chain(lengths: &[u64], on_disk: u32) -> Chain<'static> {
        let sizes = SegmentSizes::fixed(16 * MIB + SEGMENT_HEADER_BYTES);
        let (mut links, mut pos) = (Vec::new(), Pos(0));
        for (number, mib) in lengths.iter().enumerate() {
            let end = Pos(pos.0 + mib * MIB);
            links.push(Link {
                pos,
                end,
                span: sizes.span_at(Pos(0), pos),
                kept: None,
                is_on_disk: on_disk & (1 << number) != 0,
            });
            pos = end;
        }
        Chain { links, end: pos }
    }

    #[test]
    fn a_durable_write_covers_half_of_what_may_be_in_flight_in_one_segment() {
        let chain = chain(&[3, 1, 4, 1, 3, 3, 1, 2, 2, 2], 0);
        let lengths = |run: &[Link<'_>]| -> Vec<u64> {
            run.iter()
                .map(|link| (link.end.0 - link.pos.0) / MIB)
                .collect()
        };
        let runs: Vec<Vec<u64>> = chain.runs(chain.to_write()).map(lengths).collect();
        let expected: [&[u64]; 6] = [&[3, 1], &[4], &[1, 3], &[3, 1], &[2, 2], &[2]];
        assert_eq!(runs, expected);
    }

    #[test]
    fn what_is_missing_is_written_and_what_may_not_be_durable_before_it() {
        for on_disk in 0..1 << 10 {
            let chain = chain(&[2; 10], on_disk);
            let written = chain.to_write();
            let first = written.first().map_or(10, |link| link.pos.0 / (2 * MIB));
            let missing = on_disk.trailing_ones().min(10);
            let Some(last_there) = on_disk.checked_ilog2().filter(|_| missing < 10) else {
                assert_eq!(first, u64::from(missing), "{on_disk:010b}");
                continue;
            };
            // Of the blocks up to the last one on disk, at most the last four were in flight.
            let doubtful = (last_there + 1).saturating_sub(4);
            assert_eq!(first, u64::from(missing.min(doubtful)), "{on_disk:010b}");
        }
    }
}
