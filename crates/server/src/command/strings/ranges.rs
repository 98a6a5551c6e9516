//! Pieces of strings: reading ranges of bytes, and writing in the middle.

use crate::command::event::Class;
use crate::command::flag::{DENY_OOM, READ, WRITE};
use crate::command::spec::{Command, ONE, data};
use crate::command::steps::{Destination, Given, Origin, Reading, Writing};
use crate::command::{Data, Done, NOT_INTEGER, Stop, TOO_LONG};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_u64;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("getrange", 4, READ, ONE, getrange),
    data("setrange", 4, WRITE | DENY_OOM, ONE, setrange),
    data("substr", 4, READ, ONE, getrange),
];

/// Writes bytes at offset `at` into the string of the first argument's key. The string is made or
/// becomes longer as needed, and a gap is filled with zeros. Returns the new length.
pub(crate) fn write_over(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    at: usize,
    given: Given,
    out: &Out<'_>,
) -> Result<usize, Stop> {
    let (key, bytes) = (args.at(1), given.bytes(args));
    if data.tx.get(data.table, key)?.is_none() {
        if data.name_text(data.database, key, None)? {
            return Ok(at + bytes.len());
        }
        let destination = Destination {
            database: data.database,
            key: 1,
        };
        let origin = Origin::Given(at, given);
        Writing::if_long(data, args, destination, origin, out.resp3)?;
    }
    Ok(data.tx.write_at(data.table, key, at, bytes)?)
}

/// A non-empty range of bits in a string. The string is read in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    start: u64,
    /// The end, after the last bit.
    pub end: u64,
}

impl Range {
    /// Returns the range of all bits of `bytes` bytes. `None`: `bytes` is 0.
    pub(crate) fn all(bytes: usize) -> Option<Range> {
        Range::new(0, -1, bytes, false)
    }

    /// Returns the range from `start` to `end` inclusive. Both count bits if `bits` is true, and bytes otherwise. A
    /// negative number counts from the end of a string of `bytes` bytes. `None`: the range is empty.
    pub(crate) fn new(start: i64, end: i64, bytes: usize, bits: bool) -> Option<Range> {
        if start < 0 && end < 0 && start > end {
            return None;
        }
        Range::clamped(start, end, bytes, bits)
    }

    /// Like [`new`](Self::new), but by the rules of BITPOS: two negative numbers in the wrong order may mean the first
    /// byte.
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

    /// Returns the bytes that hold bits of this range.
    pub(crate) fn bytes(&self) -> std::ops::Range<usize> {
        let byte = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        byte(self.start / 8)..byte(self.end.div_ceil(8))
    }

    /// Returns a mask of the bits of byte `at` that belong to the range.
    fn mask(&self, at: u64) -> u8 {
        let mut mask = 0xff;
        if at == self.start / 8 {
            mask &= 0xff >> (self.start % 8);
        }
        if at == (self.end - 1) / 8 {
            mask &= 0xff << (7 - (self.end - 1) % 8);
        }
        mask
    }

    /// Returns the number of the range's bits that are set in `piece`. The piece consists of bytes of the range
    /// and begins at byte `at`.
    pub(crate) fn ones(&self, at: usize, piece: &[u8]) -> u64 {
        let (words, rest) = piece.as_chunks();
        let of_words = words.iter().map(|word| u64::from_ne_bytes(*word));
        let all: u64 = of_words.map(|word| u64::from(word.count_ones())).sum();
        let of_rest = rest.iter().map(|byte| u64::from(byte.count_ones()));
        // The first and the last byte may hold bits that do not belong to the range.
        let ends = [Some(0), piece.len().checked_sub(1).filter(|last| *last > 0)];
        let beside = ends.into_iter().flatten().filter_map(|n| {
            let byte = piece.get(n)? & !self.mask(to_u64(at + n));
            Some(u64::from(byte.count_ones()))
        });
        all + of_rest.sum::<u64>() - beside.sum::<u64>()
    }

    /// Returns the range's first bit with the `wanted` value in `piece`. The piece consists of bytes of the
    /// range and begins at byte `at`.
    pub(crate) fn first(&self, at: usize, piece: &[u8], wanted: bool) -> Option<u64> {
        let dull = if wanted { 0 } else { u64::MAX };
        let mut n = 0;
        while let Some(byte) = piece.get(n) {
            let word = piece[n..].first_chunk();
            if word.is_some_and(|word| u64::from_ne_bytes(*word) == dull) {
                n += size_of_val(&dull);
                continue;
            }
            let place = to_u64(at + n);
            let found = if wanted { *byte } else { !byte } & self.mask(place);
            if found != 0 {
                return Some(place * 8 + u64::from(found.leading_zeros()));
            }
            n += 1;
        }
        None
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
    let Some(value) = row.value_slice() else {
        return Reading::bytes(&row, range.bytes()).run(data, args, out);
    };
    out.bulk(&value[range.bytes()]);
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
    let bytes = write_over(data, args, at, Given::Arg(3), out)?;
    data.changed(Class::String, "setrange", key);
    out.count(u64::try_from(bytes).unwrap_or(u64::MAX));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the range's bytes in pieces of `bytes` bytes, each with its place.
    fn pieces(range: Range, value: &[u8], bytes: usize) -> impl Iterator<Item = (usize, &[u8])> {
        let start = range.bytes().start;
        let pieces = value[range.bytes()].chunks(bytes).enumerate();
        pieces.map(move |(n, piece)| (start + n * bytes, piece))
    }

    #[test]
    fn counts_and_positions_agree_with_bits_looked_at_one_by_one() {
        let mut value = [0b0101_0000, 0xff, 0, 0b1000_0001, 0x7e].repeat(4);
        value[2..14].fill(0);
        value[15..].fill(0xff);
        let bit = |at: usize| value[at / 8] & (0x80 >> (at % 8)) != 0;
        for start in -165..165_i64 {
            for end in (-165..165_i64).step_by(3) {
                let range = Range::new(start, end, value.len(), true);
                let clamp = |at: i64| usize::try_from(if at < 0 { (at + 160).max(0) } else { at });
                let (from, to) = (clamp(start).unwrap_or(0), clamp(end).unwrap_or(0).min(159));
                let mut wanted: Vec<usize> = (from..=to).collect();
                if start < 0 && end < 0 && start > end {
                    wanted.clear();
                }
                let ones = wanted.iter().filter(|at| bit(**at)).count();
                for bytes in [1, 9, 20] {
                    let count = |range| {
                        pieces(range, &value, bytes)
                            .map(|(at, piece)| range.ones(at, piece))
                            .sum()
                    };
                    assert_eq!(range.map_or(0, count), to_u64(ones), "{start} {end}");
                    for sought in [false, true] {
                        let first = wanted.iter().find(|at| bit(**at) == sought);
                        let first = first.map(|at| to_u64(*at));
                        let find = |range| {
                            pieces(range, &value, bytes)
                                .find_map(|(at, piece)| range.first(at, piece, sought))
                        };
                        assert_eq!(range.and_then(find), first, "{start} {end}");
                    }
                }
            }
        }
    }
}
