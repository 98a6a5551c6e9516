//! Strings as rows of bits. Bit 0 is the highest bit of the first byte. Beyond the end of a string all bits are
//! zero, and writing a bit there makes the string longer.

use crate::command::event::Class;
use crate::command::flag::{DENY_OOM, FAST, READ, WRITE};
use crate::command::spec::{Command, Keys, ONE, data};
use crate::command::steps::{Destination, Fold, Given, Origin, Reading, Writing};
use crate::command::strings::ranges::{Range, write_over};
use crate::command::{Data, Done, NOT_INTEGER, SYNTAX, Stop};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use std::borrow::Cow;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("bitcount", -2, READ, ONE, bitcount),
    data("bitop", -4, WRITE | DENY_OOM, OPERANDS, bitop),
    data("bitpos", -3, READ, ONE, bitpos),
    data("getbit", 3, READ | FAST, ONE, getbit),
    data("setbit", 4, WRITE | DENY_OOM, ONE, setbit),
];

const OPERANDS: Keys = Keys::Range {
    first: 2,
    last: -1,
    step: 1,
};
const NOT_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const NOT_BIT: &str = "ERR bit is not an integer or out of range";

/// Reads the offset of a bit from an argument. If `field_bits` is given, the argument may be `#n`, which means the
/// offset `n` × `field_bits`.
pub(crate) fn bit_offset(
    arg: &[u8],
    field_bits: Option<u64>,
    bytes_max: usize,
) -> Result<u64, Stop> {
    let (digits, factor) = match (arg.strip_prefix(b"#"), field_bits) {
        (Some(digits), Some(bits)) => (digits, bits),
        _ => (arg, 1),
    };
    let offset = parse_i64(digits)
        .and_then(|n| u64::try_from(n).ok())
        .and_then(|n| n.checked_mul(factor))
        .filter(|n| usize::try_from(n >> 3).is_ok_and(|byte| byte < bytes_max));
    offset.ok_or_else(|| NOT_OFFSET.into())
}

/// Returns the byte and the mask of a bit.
fn byte_and_mask(bit: u64) -> (usize, u8) {
    let byte = usize::try_from(bit >> 3).unwrap_or(usize::MAX);
    (byte, 0x80 >> (bit & 7))
}

/// `SETBIT key offset value`
fn setbit(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let offset = bit_offset(args.at(2), None, data.value_bytes_max)?;
    let on = match parse_i64(args.at(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(NOT_BIT.into()),
    };
    let key = args.at(1);
    let (byte, mask) = byte_and_mask(offset);
    let (old, grows) = match data.string(key)? {
        Some(row) => {
            let old = row.byte(byte);
            (old.unwrap_or(0), old.is_none())
        }
        None => (0, true),
    };
    let new = if on { old | mask } else { old & !mask };
    if grows || new != old {
        write_over(data, args, byte, Given::Byte([new]), out)?;
        data.changed(Class::String, "setbit", key);
    }
    out.integer(i64::from(old & mask != 0));
    Ok(())
}

/// `GETBIT key offset`
fn getbit(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (byte, mask) = byte_and_mask(bit_offset(args.at(2), None, data.value_bytes_max)?);
    let row = data.string(args.at(1))?;
    let byte = row.and_then(|row| row.byte(byte)).unwrap_or(0);
    out.integer(i64::from(byte & mask != 0));
    Ok(())
}

/// Returns true for BIT, false for BYTE, and `None` for any other word.
fn unit(word: &[u8]) -> Option<bool> {
    if word.eq_ignore_ascii_case(b"BIT") {
        Some(true)
    } else if word.eq_ignore_ascii_case(b"BYTE") {
        Some(false)
    } else {
        None
    }
}

fn integer(arg: &[u8]) -> Result<i64, Stop> {
    parse_i64(arg).ok_or_else(|| NOT_INTEGER.into())
}

/// `BITCOUNT key [start end [BYTE|BIT]]`
fn bitcount(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let Some(row) = data.string(args.at(1))? else {
        out.integer(0);
        return Ok(());
    };
    let bytes = row.value_len();
    let range = match args.len() {
        2 => Range::all(bytes),
        4 | 5 => {
            let (start, end) = (integer(args.at(2))?, integer(args.at(3))?);
            let bits = match args.len() {
                4 => false,
                _ => match (start < 0 && end < 0 && start > end, unit(args.at(4))) {
                    (true, _) => false,
                    (false, Some(bits)) => bits,
                    (false, None) => return Err(SYNTAX.into()),
                },
            };
            Range::new(start, end, bytes, bits)
        }
        _ => return Err(SYNTAX.into()),
    };
    match (range, row.value_slice()) {
        (None, _) => out.count(0),
        (Some(range), Some(value)) => {
            let piece = range.bytes();
            out.count(range.ones(piece.start, &value[piece]));
        }
        (Some(range), None) => return Reading::ones(&row, range).run(data, args, out),
    }
    Ok(())
}

/// `BITPOS key bit [start [end [BYTE|BIT]]]`
fn bitpos(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let wanted = match integer(args.at(2))? {
        0 => false,
        1 => true,
        _ => return Err("ERR The bit argument must be 1 or 0.".into()),
    };
    let Some(row) = data.string(args.at(1))? else {
        out.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let bytes = row.value_len();
    let range = match args.len() {
        3 => Range::all(bytes),
        4..=6 => {
            let start = integer(args.at(3))?;
            let bits = match args.len() {
                6 => unit(args.at(5)).ok_or(SYNTAX)?,
                _ => false,
            };
            let end = match args.len() {
                4 => -1,
                _ => integer(args.at(4))?,
            };
            Range::clamped(start, end, bytes, bits)
        }
        _ => return Err(SYNTAX.into()),
    };
    let Some(range) = range else {
        out.integer(-1);
        return Ok(());
    };
    // If the request names no end, the string counts as followed by zeros. So a search for 0 finds the first of
    // these zeros.
    let none = match !wanted && args.len() <= 4 {
        true => i64::try_from(range.end).unwrap_or(i64::MAX),
        false => -1,
    };
    let Some(value) = row.value_slice() else {
        return Reading::first(&row, range, wanted, none).run(data, args, out);
    };
    let piece = range.bytes();
    match range.first(piece.start, &value[piece], wanted) {
        Some(at) => out.count(at),
        None => out.integer(none),
    }
    Ok(())
}

/// Combines the strings of all keys, which begin at the third argument, and returns the result.
fn combined(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    fold: Fold,
    bytes: usize,
) -> Result<Vec<u8>, Stop> {
    let mut result: Option<Vec<u8>> = None;
    for key in args.from(3) {
        let row = data.string(key)?;
        let value = row.map_or(Cow::Borrowed(&[][..]), |row| row.value());
        match &mut result {
            Some(result) => fold.take(result, &value),
            None => result.insert(value.into_owned()).resize(bytes, 0),
        }
    }
    let mut result = result.unwrap_or_default();
    fold.finish(&mut result);
    Ok(result)
}

/// `BITOP AND|OR|XOR|NOT destination key [key …]`
fn bitop(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let word = args.at(1);
    let fold = match () {
        () if word.eq_ignore_ascii_case(b"AND") => Fold::And,
        () if word.eq_ignore_ascii_case(b"OR") => Fold::Or,
        () if word.eq_ignore_ascii_case(b"XOR") => Fold::Xor,
        () if word.eq_ignore_ascii_case(b"NOT") => Fold::Not,
        () => return Err(SYNTAX.into()),
    };
    if fold == Fold::Not && args.len() != 4 {
        return Err("ERR BITOP NOT must be called with a single source key.".into());
    }
    let mut lens = Vec::with_capacity(args.len() - 3);
    for key in args.from(3) {
        lens.push(data.string(key)?.map_or(0, |row| row.value_len()));
    }
    let bytes = lens.iter().copied().max().unwrap_or(0);
    let destination = args.at(2);
    if bytes > 0 {
        if !data.name_text(data.database, destination, None)? {
            let target = Destination {
                database: data.database,
                key: 2,
            };
            let origin = Origin::Keys(fold, 3, lens);
            Writing::if_long(data, args, target, origin, out.resp3)?;
            let result = combined(data, args, fold, bytes)?;
            data.tx.put(data.table, destination, &result, None)?;
        }
        data.changed(Class::String, "set", destination);
    } else if data.tx.delete(data.table, destination)? {
        data.changed(Class::Generic, "del", destination);
    }
    out.count(u64::try_from(bytes).unwrap_or(u64::MAX));
    Ok(())
}
