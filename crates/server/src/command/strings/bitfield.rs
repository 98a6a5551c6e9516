//! BITFIELD: integers of 1 to 64 bits anywhere in a string.
//!
//! All operations are read and checked before the first one runs. The string becomes long enough for every
//! field that the request asks to write, even if every write is refused for overflow.

use crate::command::event::Class;
use crate::command::flag::{DENY_OOM, FAST, READ, WRITE};
use crate::command::spec::{Command, ONE, data};
use crate::command::strings::bits::bit_offset;
use crate::command::{Data, Done, NOT_INTEGER, SYNTAX, Stop};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("bitfield", -2, WRITE | DENY_OOM, ONE, bitfield),
    data("bitfield_ro", -2, READ | FAST, ONE, bitfield_ro),
];

const BAD_TYPE: &str = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is \
                        not supported but i64 is.";

/// Two fields with at most this number of bytes between them are read and written together.
const GAP_MAX: usize = 64;

/// The action when a number does not fit its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

/// The width and sign of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    signed: bool,
    bits: u32,
}

#[derive(Debug)]
struct Operation {
    action: Action,
    field: Field,
    offset: u64,
    overflow: Overflow,
}

impl Field {
    fn parse(word: &[u8]) -> Option<Field> {
        let (signed, max) = match word.first()? {
            b'i' => (true, 64),
            b'u' => (false, 63),
            _ => return None,
        };
        let bits = parse_i64(&word[1..])?;
        let bits = u32::try_from(bits).ok().filter(|b| (1..=max).contains(b))?;
        Some(Field { signed, bits })
    }

    fn min(self) -> i128 {
        if self.signed {
            -(1 << (self.bits - 1))
        } else {
            0
        }
    }

    fn max(self) -> i128 {
        (1 << (self.bits - u32::from(self.signed))) - 1
    }

    /// Returns the number in the lowest bits of `raw`.
    fn number(self, raw: i128) -> i128 {
        let low = raw & ((1 << self.bits) - 1);
        if low > self.max() {
            low - (1 << self.bits)
        } else {
            low
        }
    }

    /// Returns the number to write for `wanted`; `None` if the write is refused for overflow.
    fn fit(self, wanted: i128, overflow: Overflow) -> Option<i128> {
        if (self.min()..=self.max()).contains(&wanted) {
            return Some(wanted);
        }
        match overflow {
            Overflow::Wrap => Some(self.number(wanted)),
            Overflow::Saturate => Some(wanted.clamp(self.min(), self.max())),
            Overflow::Fail => None,
        }
    }

    /// Returns the bytes that hold the field at bit `offset`: the index of the first byte, and the index after the last
    /// byte.
    fn bytes(self, offset: u64) -> (usize, usize) {
        let end = (offset + u64::from(self.bits)).div_ceil(8);
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        (at(offset / 8), at(end))
    }

    /// Returns the number of bits from the end of the field to the end of the last byte that holds the field.
    fn shift(self, offset: u64) -> u32 {
        let behind = (offset + u64::from(self.bits)) % 8;
        u32::try_from((8 - behind) % 8).unwrap_or(0)
    }

    fn read(self, value: &[u8], offset: u64) -> i128 {
        let (from, to) = self.bytes(offset);
        let bytes = (from..to).map(|at| value.get(at).copied().unwrap_or(0));
        let whole = bytes.fold(0i128, |sum, byte| sum << 8 | i128::from(byte));
        self.number(whole >> self.shift(offset))
    }

    /// Writes a number into a value that is long enough to hold the field.
    fn write(self, value: &mut [u8], offset: u64, number: i128) {
        let (from, to) = self.bytes(offset);
        let shift = self.shift(offset);
        let mask = ((1i128 << self.bits) - 1) << shift;
        let mut bits = number << shift & mask;
        let mut mask = mask;
        for byte in value[from..to].iter_mut().rev() {
            let low = |n: i128| n.to_le_bytes()[0];
            *byte = *byte & !low(mask) | low(bits);
            bits >>= 8;
            mask >>= 8;
        }
    }
}

fn parse(args: &Args<'_>, bytes_max: usize, read_only: bool) -> Result<Vec<Operation>, Stop> {
    let mut operations = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut writes = false;
    let mut at = 2;
    while at < args.len() {
        let (word, left) = (args.at(at), args.len() - at - 1);
        if word.eq_ignore_ascii_case(b"OVERFLOW") && left >= 1 {
            let word = args.at(at + 1);
            overflow = match () {
                () if word.eq_ignore_ascii_case(b"WRAP") => Overflow::Wrap,
                () if word.eq_ignore_ascii_case(b"SAT") => Overflow::Saturate,
                () if word.eq_ignore_ascii_case(b"FAIL") => Overflow::Fail,
                () => return Err("ERR Invalid OVERFLOW type specified".into()),
            };
            at += 2;
            continue;
        }
        let takes = match () {
            () if word.eq_ignore_ascii_case(b"GET") && left >= 2 => 2,
            () if word.eq_ignore_ascii_case(b"SET") && left >= 3 => 3,
            () if word.eq_ignore_ascii_case(b"INCRBY") && left >= 3 => 3,
            () => return Err(SYNTAX.into()),
        };
        let field = Field::parse(args.at(at + 1)).ok_or(BAD_TYPE)?;
        let width = Some(u64::from(field.bits));
        let offset = bit_offset(args.at(at + 2), width, bytes_max)?;
        let action = if takes == 2 {
            Action::Get
        } else {
            writes = true;
            let number = parse_i64(args.at(at + 3)).ok_or(NOT_INTEGER)?;
            if word.eq_ignore_ascii_case(b"SET") {
                Action::Set(number)
            } else {
                Action::Add(number)
            }
        };
        operations.push(Operation {
            action,
            field,
            offset,
            overflow,
        });
        at += 1 + takes;
    }
    // This error is returned only if all operations are well formed.
    if writes && read_only {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
    }
    Ok(operations)
}

/// `BITFIELD key [GET type at] [OVERFLOW WRAP|SAT|FAIL] [SET type at n] [INCRBY type at n] …`
fn bitfield(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let operations = parse(args, data.value_bytes_max, false)?;
    run(data, args.at(1), &operations, out)
}

/// `BITFIELD_RO key [GET type at] …`
fn bitfield_ro(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let operations = parse(args, data.value_bytes_max, true)?;
    run(data, args.at(1), &operations, out)
}

/// A piece of the string that holds the fields of some operations.
struct Window {
    /// The window's offset in the string.
    from: usize,
    bytes: Vec<u8>,
    /// The offset in the string after the last byte that an operation wants to write.
    write_end: usize,
    changed: bool,
}

/// Returns windows that hold every operation's field, in order. Distant fields are in separate windows. So the memory
/// depends on the size of the request and not on the distances between the fields.
fn windows(operations: &[Operation]) -> Vec<Window> {
    let mut spans: Vec<(usize, usize, usize)> = operations
        .iter()
        .map(|op| {
            let (from, to) = op.field.bytes(op.offset);
            let write_end = if op.action == Action::Get { 0 } else { to };
            (from, to, write_end)
        })
        .collect();
    spans.sort_unstable();
    let mut windows: Vec<Window> = Vec::new();
    for (from, to, write_end) in spans {
        match windows.last_mut() {
            Some(last) if from <= last.from + last.bytes.len() + GAP_MAX => {
                let len = last.bytes.len().max(to - last.from);
                last.bytes.resize(len, 0);
                last.write_end = last.write_end.max(write_end);
            }
            _ => windows.push(Window {
                from,
                bytes: vec![0; to - from],
                write_end,
                changed: false,
            }),
        }
    }
    windows
}

fn run(data: &mut Data<'_, '_>, key: &[u8], operations: &[Operation], out: &mut Out<'_>) -> Done {
    let mut windows = windows(operations);
    let old = match data.string(key)? {
        Some(row) => {
            for Window { from, bytes, .. } in &mut windows {
                let len = bytes.len();
                bytes.clear();
                row.copy_piece(*from, len, bytes);
                bytes.resize(len, 0);
            }
            row.value_len()
        }
        None => 0,
    };
    let grows = windows.iter().any(|window| window.write_end > old);
    let mut changed = false;
    out.array(operations.len());
    for op in operations {
        let (first, _) = op.field.bytes(op.offset);
        let behind = windows.partition_point(|window| window.from <= first);
        // The last window that begins at or before a field holds that field.
        let Some(window) = windows[..behind].last_mut() else {
            continue;
        };
        let base = u64::try_from(window.from).unwrap_or(0) * 8;
        let (field, offset) = (op.field, op.offset - base);
        let before = field.read(&window.bytes, offset);
        let (wanted, reply_new) = match op.action {
            Action::Get => {
                reply(before, out);
                continue;
            }
            Action::Set(number) if field.signed => (i128::from(number), false),
            Action::Set(number) => (i128::from(number.cast_unsigned()), false),
            Action::Add(delta) => (before + i128::from(delta), true),
        };
        match field.fit(wanted, op.overflow) {
            Some(after) => {
                field.write(&mut window.bytes, offset, after);
                window.changed |= after != before;
                changed |= grows || after != before;
                reply(if reply_new { after } else { before }, out);
            }
            None => out.null(),
        }
    }
    for window in &windows {
        if window.changed || window.write_end > old {
            let bytes = &window.bytes[..window.write_end - window.from];
            data.tx.write_at(data.table, key, window.from, bytes)?;
        }
    }
    if changed {
        data.changed(Class::String, "setbit", key);
    }
    Ok(())
}

fn reply(number: i128, out: &mut Out<'_>) {
    out.integer(i64::try_from(number).unwrap_or(i64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_as_it_was_written_and_nothing_around_it_changes() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let signed = rng.bool();
            let bits = rng.u32(1..=if signed { 64 } else { 63 });
            let (field, offset) = (Field { signed, bits }, rng.u64(0..100));
            let before: Vec<u8> = (0..24).map(|_| rng.u8(..)).collect();
            let mut after = before.clone();
            let number = field.number(i128::from(rng.u64(..)));
            field.write(&mut after, offset, number);
            assert_eq!(field.read(&after, offset), number);
            let bit = |value: &[u8], at: u64| {
                value[usize::try_from(at / 8).unwrap_or(0)] & (0x80 >> (at % 8)) != 0
            };
            let outside = |at: &u64| !(offset..offset + u64::from(bits)).contains(at);
            for at in (0..24 * 8).filter(outside) {
                assert_eq!(bit(&before, at), bit(&after, at));
            }
        }
    }

    #[test]
    fn fields_far_from_each_other_are_in_windows_of_their_own() {
        let operation = |action, offset| Operation {
            action,
            field: Field::parse(b"u8").expect("a type"),
            offset,
            overflow: Overflow::Wrap,
        };
        let operations = [
            operation(Action::Get, 8 << 28),
            operation(Action::Set(1), 12),
            operation(Action::Get, 0),
            operation(Action::Add(1), (8 << 28) + 800),
        ];
        let found = windows(&operations);
        let shown: Vec<_> = found
            .iter()
            .map(|window| (window.from, window.bytes.len(), window.write_end))
            .collect();
        let far = 1 << 28;
        assert_eq!(shown, [(0, 3, 3), (far, 1, 0), (far + 100, 1, far + 101)]);
    }

    #[test]
    fn numbers_that_do_not_fit_wrap_saturate_or_are_refused() {
        let i8 = Field::parse(b"i8").expect("a type");
        assert_eq!(i8.fit(128, Overflow::Wrap), Some(-128));
        assert_eq!(i8.fit(-200, Overflow::Saturate), Some(-128));
        assert_eq!(i8.fit(128, Overflow::Fail), None);
        let u2 = Field::parse(b"u2").expect("a type");
        assert_eq!(u2.fit(-1, Overflow::Wrap), Some(3));
        assert_eq!(u2.fit(9, Overflow::Saturate), Some(3));
        for wrong in [&b"u64"[..], b"i65", b"i0", b"x8", b"u", b""] {
            assert_eq!(Field::parse(wrong), None);
        }
    }
}
