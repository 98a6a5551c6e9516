//! The log's tails that nodes have kept: the valid prefix of each tail, and the comparison of these prefixes.

use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Error, Pos, Result};

use super::{DrainLife, KeptTail};
use crate::block::{self, BlockHeader, HEADER_BYTES};
use crate::lookup::newer_block;

/// A position that no log reaches.
const POS_MAX: u64 = 1 << 62;

/// The valid part of a tail: the longest prefix that consists of whole valid blocks.
pub(super) struct Kept<'a> {
    pub holder: &'a str,
    pub from: Pos,
    bytes: &'a [u8],
    /// The start of each block, followed by the end of the last block.
    bounds: Vec<Pos>,
    /// The fault that ends the valid prefix, and the length of the whole tail in bytes. `None` if the whole tail is
    /// valid.
    why: Option<(String, usize)>,
}

impl<'a> Kept<'a> {
    /// Checks a tail block by block.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a newer build wrote one of the blocks.
    pub fn read(life: &DrainLife, tail: &'a KeptTail<'a>) -> Result<Kept<'a>> {
        let mut kept = Kept {
            holder: &tail.holder,
            from: tail.from,
            bytes: &[],
            bounds: vec![tail.from],
            why: None,
        };
        let mut len = 0;
        while len < tail.bytes.len() {
            match kept.next_len(life, &tail.bytes[len..])? {
                Ok(bytes) => {
                    len += to_usize(bytes);
                    kept.bounds.push(Pos(tail.from.0 + to_u64(len)));
                }
                Err(why) => {
                    kept.why = Some((why, tail.bytes.len()));
                    break;
                }
            }
        }
        kept.bytes = &tail.bytes[..len];
        assert_eq!(
            kept.end().0 - kept.from.0,
            to_u64(len),
            "blocks follow each other without a gap"
        );
        Ok(kept)
    }

    /// Returns the length of the block at the start of `rest`. The inner error says why the block is not valid.
    fn next_len(&self, life: &DrainLife, rest: &[u8]) -> Result<Result<u64, String>> {
        let at = self.end();
        let is_position = (life.start.0..POS_MAX).contains(&at.0);
        if !is_position || !at.0.is_multiple_of(to_u64(SECTOR_BYTES)) {
            return Ok(Err(format!(
                "position {at} does not belong to this life of the database"
            )));
        }
        let is_ours = |header: &BlockHeader| {
            header.is_of(&life.uuid, life.stream, life.incarnation, at)
                && header.streams == life.streams
        };
        let Some((header, body_crc)) = block::decode_header(rest) else {
            return match block::decode_newer(rest) {
                Some(newer) if is_ours(&newer) => Err(newer_block(self.place(life), at.0)),
                _ => Ok(Err("a header whose checksum does not match".into())),
            };
        };
        if !is_ours(&header) {
            return Ok(Err("a block of another life or position".into()));
        }
        if header.end() > life.sizes.span_at(life.start, at).end() {
            return Ok(Err("a block that crosses the end of its segment".into()));
        }
        let body = rest.get(HEADER_BYTES..to_usize(header.block_len()));
        Ok(match body {
            None => Err("a block that is cut off".into()),
            Some(body) if block::body_is_whole(body, body_crc) => Ok(header.block_len()),
            Some(_) => Err("a body whose checksum does not match".into()),
        })
    }

    /// Returns the end of the last valid block.
    pub fn end(&self) -> Pos {
        *self.bounds.last().expect("a tail has a beginning")
    }

    /// Returns the block that begins at a position; `None` if no block does.
    pub fn block_at(&self, pos: Pos) -> Option<&'a [u8]> {
        let at = self.bounds.binary_search(&pos).ok()?;
        let end = self.bounds.get(at + 1)?;
        Some(self.between(pos, *end))
    }

    /// Returns the position of the first block that ends after `pos`.
    pub fn first_behind(&self, pos: Pos) -> Option<Pos> {
        let ends = self.bounds.get(1..)?;
        let at = ends.partition_point(|end| *end <= pos);
        debug_assert!(ends.is_sorted(), "blocks follow each other");
        (at < ends.len()).then(|| self.bounds[at])
    }

    fn between(&self, from: Pos, end: Pos) -> &'a [u8] {
        assert!(
            self.from <= from && from <= end && end <= self.end(),
            "{from} to {end} are kept"
        );
        &self.bytes[to_usize(from.0 - self.from.0)..to_usize(end.0 - self.from.0)]
    }

    /// Returns words for an error message that name the tail: its stream, and the node that kept it.
    pub fn place(&self, life: &DrainLife) -> String {
        format!("log stream {} in the copy of {}", life.stream, self.holder)
    }

    /// Describes the invalid part of the tail. Returns `None` if the whole tail is valid.
    pub fn note(&self) -> Option<String> {
        let (why, bytes) = self.why.as_ref()?;
        Some(format!(
            "{bytes} bytes from position {} on are in the copy of {}, and {} of them are used: \
             {why} was found at position {}",
            self.from,
            self.holder,
            self.bytes.len(),
            self.end()
        ))
    }
}

/// Checks that the tails have equal bytes in overlapping parts.
///
/// # Errors
/// [`Error::Corrupt`] if two tails differ. The error names the position and the two holders of the tails.
pub(super) fn compare(life: &DrainLife, kept: &[Kept<'_>]) -> Result<()> {
    for (number, one) in kept.iter().enumerate() {
        for other in &kept[number + 1..] {
            let (from, end) = (one.from.max(other.from), one.end().min(other.end()));
            if from >= end {
                continue;
            }
            let pairs = one.between(from, end).iter().zip(other.between(from, end));
            if one.between(from, end) != other.between(from, end) {
                let same = pairs.take_while(|(one, other)| one == other).count();
                let at = Pos(from.0 + to_u64(same));
                return Err(differs(life, one, &other.place(life), at));
            }
        }
    }
    Ok(())
}

/// Returns the error for different bytes at position `at`, in the tail `one` and in the copy that `other` names.
pub(super) fn differs(life: &DrainLife, one: &Kept<'_>, other: &str, at: Pos) -> Error {
    Error::corrupt(
        one.place(life),
        at.0,
        format!("the bytes that {other} has at position {at}"),
        "other bytes, and both have valid blocks there",
        "One of the two is not the log that was acknowledged. Nothing was changed. Copy both and \
         report the bug.",
    )
}
