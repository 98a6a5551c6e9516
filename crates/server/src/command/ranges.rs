//! Pieces of strings: bytes from here to there, and writing in the middle.

use super::event::Class;
use super::flag::{DENY_OOM, READ, WRITE};
use super::spec::{Command, ONE, data};
use super::{Data, Done, Group, NOT_INTEGER, Stop, TOO_LONG};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("getrange", 4, READ, ONE, getrange).doc(
        Group::String,
        "2.4.0",
        "Answers a piece of a string.",
    ),
    data("setrange", 4, WRITE | DENY_OOM, ONE, setrange).doc(
        Group::String,
        "2.2.0",
        "Writes over a piece of a string.",
    ),
    data("substr", 4, READ, ONE, getrange).doc(
        Group::String,
        "1.0.0",
        "Answers a piece of a string: the old name of GETRANGE.",
    ),
];

/// Writes `bytes` at `at` into the string of a key, which becomes longer, or comes to be, as
/// needed; a gap is filled with zeros. Answers the new length.
pub(crate) fn write_over(
    data: &mut Data<'_, '_>,
    key: &[u8],
    at: usize,
    bytes: &[u8],
) -> Result<usize, Stop> {
    Ok(data.tx.write_at(data.table, key, at, bytes)?)
}

/// A range of bits that is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    start: u64,
    /// Behind the last bit.
    pub end: u64,
}

impl Range {
    /// Every bit of `bytes` bytes.
    pub(crate) fn all(bytes: usize) -> Option<Range> {
        Range::new(0, -1, bytes, false)
    }

    /// From `start` to `end` inclusive, in bits or bytes; negative ones count from the end of
    /// `bytes` bytes.
    pub(crate) fn new(start: i64, end: i64, bytes: usize, bits: bool) -> Option<Range> {
        if start < 0 && end < 0 && start > end {
            return None;
        }
        Range::clamped(start, end, bytes, bits)
    }

    /// The same as BITPOS has it, where two negative numbers the wrong way round may both mean
    /// the first byte.
    pub(crate) fn clamped(start: i64, end: i64, bytes: usize, bits: bool) -> Option<Range> {
        let bytes = i64::try_from(bytes).ok()?;
        let total = if bits { bytes * 8 } else { bytes };
        let from_end = |at: i64| if at < 0 { (total + at).max(0) } else { at };
        let (start, end) = (from_end(start), from_end(end).min(total - 1));
        if start > end {
            return None;
        }
        let unit = if bits { 1 } else { 8 };
        let bit = |at: i64| u64::try_from(at * unit).ok();
        Some(Range {
            start: bit(start)?,
            end: bit(end + 1)?,
        })
    }

    /// Bits of `value` in this range, byte by byte: (bit of the byte's first, its bits, the mask
    /// of those that belong).
    fn bytes<'a>(&self, value: &'a [u8]) -> impl Iterator<Item = (u64, u8, u8)> + 'a {
        let Range { start, end } = *self;
        let (first, last) = (start / 8, (end - 1) / 8);
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let piece = value.get(at(first)..=at(last)).unwrap_or_default();
        (first..).zip(piece).map(move |(n, byte)| {
            let mut mask = 0xff;
            if n == first {
                mask &= 0xff >> (start % 8);
            }
            if n == last {
                mask &= 0xff << (7 - (end - 1) % 8);
            }
            (n * 8, *byte, mask)
        })
    }

    /// How many bits are set.
    pub(crate) fn ones(&self, value: &[u8]) -> u64 {
        self.bytes(value)
            .map(|(_, byte, mask)| u64::from((byte & mask).count_ones()))
            .sum()
    }

    /// The first bit that is `wanted`.
    pub(crate) fn first(&self, value: &[u8], wanted: bool) -> Option<u64> {
        self.bytes(value).find_map(|(bit, byte, mask)| {
            let found = if wanted { byte } else { !byte } & mask;
            (found != 0).then(|| bit + u64::from(found.leading_zeros()))
        })
    }
}

/// `GETRANGE key start end`
fn getrange(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let number = |at| parse_i64(args.at(at)).ok_or(NOT_INTEGER);
    let (start, end) = (number(2)?, number(3)?);
    let Some(row) = data.string(args.at(1))? else {
        out.bulk(b"");
        return Ok(());
    };
    let Some(range) = Range::new(start, end, row.value_len(), false) else {
        out.bulk(b"");
        return Ok(());
    };
    let byte = |bit: u64| usize::try_from(bit / 8).unwrap_or(usize::MAX);
    let (start, end) = (byte(range.start), byte(range.end));
    match row.value_slice() {
        Some(value) => out.bulk(&value[start..end]),
        None => {
            out.bulk_head(end - start);
            row.copy_piece(start, end - start, out.buf);
            out.end();
        }
    }
    Ok(())
}

/// `SETRANGE key offset value`
fn setrange(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (key, piece) = (args.at(1), args.at(3));
    let at = parse_i64(args.at(2)).ok_or(NOT_INTEGER)?;
    let Ok(at) = usize::try_from(at) else {
        return Err("ERR offset is out of range".into());
    };
    let old = data.string(key)?.map_or(0, |row| row.value_len());
    if piece.is_empty() {
        out.count(u64::try_from(old).unwrap_or(u64::MAX));
        return Ok(());
    }
    if at
        .checked_add(piece.len())
        .is_none_or(|end| end > data.value_bytes_max)
    {
        return Err(TOO_LONG.into());
    }
    let bytes = write_over(data, key, at, piece)?;
    data.changed(Class::String, "setrange", key);
    out.count(u64::try_from(bytes).unwrap_or(u64::MAX));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_positions_agree_with_bits_looked_at_one_by_one() {
        let value = [0b0101_0000, 0xff, 0, 0b1000_0001, 0x7e];
        let bit = |at: usize| value[at / 8] & (0x80 >> (at % 8)) != 0;
        for start in -45..45_i64 {
            for end in -45..45_i64 {
                let range = Range::new(start, end, value.len(), true);
                let clamp = |at: i64| usize::try_from(if at < 0 { (at + 40).max(0) } else { at });
                let (from, to) = (clamp(start).unwrap_or(0), clamp(end).unwrap_or(0).min(39));
                let mut wanted: Vec<usize> = (from..=to).collect();
                if start < 0 && end < 0 && start > end {
                    wanted.clear();
                }
                let ones = wanted.iter().filter(|at| bit(**at)).count();
                assert_eq!(
                    range.map_or(0, |r| r.ones(&value)),
                    u64::try_from(ones).unwrap_or(0),
                    "{start} {end}"
                );
                for sought in [false, true] {
                    let first = wanted.iter().find(|at| bit(**at) == sought);
                    let first = first.map(|at| u64::try_from(*at).unwrap_or(0));
                    assert_eq!(range.and_then(|r| r.first(&value, sought)), first);
                }
            }
        }
    }
}
