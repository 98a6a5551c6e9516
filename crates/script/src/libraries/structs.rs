//! `struct` converts values to bytes of fixed forms, as Roberto Ierusalimschy's library does.
//!
//! | letter | form |
//! |---|---|
//! | `>` | in the following values, the highest byte is first |
//! | `<` `=` | in the following values, the lowest byte is first; `=` means the computer's order |
//! | `!n` | each following value is aligned to its own size, but to at most n bytes; without n, 8 |
//! | `x` | a zero byte |
//! | `b` `B`, `h` `H`, `l` `L`, `T` | integers of 1, 2, 8 and 8 bytes; capital letters mean unsigned |
//! | `in` `In` | integers of n bytes; without n, 4; `I` means unsigned |
//! | `f` `d` | numbers of 4 and 8 bytes |
//! | `s` | a string, followed by a zero byte |
//! | `cn` | n bytes of a string |
//! | `c0` | the whole string; `unpack` uses the preceding value as the length, and does not return that value |

use super::{Fault, Outcome, number, number_arg, string_arg};
use crate::to_lua::as_double;
use crate::vm::Shared;
use mlua::{Lua, LuaString, MultiValue, Value};

/// The widest integer, bytes.
const INTEGER_BYTES_MAX: usize = 32;

/// The form of one value in a format.
enum Form {
    Zero,
    Integer { bytes: usize, signed: bool },
    Float,
    Double,
    Text,
    Chars(usize),
}

impl Form {
    /// Returns the size of the form in bytes, or `None` if the size depends on the value.
    fn bytes(&self) -> Option<usize> {
        match self {
            Form::Zero => Some(1),
            Form::Integer { bytes, .. } => Some(*bytes),
            Form::Float => Some(4),
            Form::Double => Some(8),
            Form::Text | Form::Chars(0) => None,
            Form::Chars(n) => Some(*n),
        }
    }

    /// Returns the greatest alignment of the form, bytes.
    fn alignment(&self) -> usize {
        match self {
            Form::Zero | Form::Text | Form::Chars(_) => 1,
            Form::Integer { bytes, .. } => *bytes,
            Form::Float => 4,
            Form::Double => 8,
        }
    }
}

struct Format<'a> {
    name: &'static str,
    rest: &'a [u8],
    big: bool,
    align: usize,
}

impl Format<'_> {
    /// Reads the digits that come next in the format, as a number. Returns `None` if no digit comes next.
    fn count(&mut self) -> Option<usize> {
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        let number = std::str::from_utf8(number)
            .ok()
            .filter(|number| !number.is_empty())?;
        Some(number.parse().unwrap_or(usize::MAX))
    }

    fn integer(&mut self, signed: bool) -> Outcome<Form> {
        let bytes = self.count().unwrap_or(4);
        if bytes == 0 || bytes > INTEGER_BYTES_MAX {
            return Err(Fault::Text(format!(
                "integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}"
            )));
        }
        Ok(Form::Integer { bytes, signed })
    }

    /// Returns the next form, and the number of zero bytes to add at the offset `place` so that the form is aligned.
    /// Returns `None` at the end of the format.
    fn next(&mut self, place: usize) -> Outcome<Option<(Form, usize)>> {
        loop {
            let Some((letter, rest)) = self.rest.split_first() else {
                return Ok(None);
            };
            self.rest = rest;
            let fixed = |bytes, signed| Form::Integer { bytes, signed };
            let form = match letter {
                b'>' => {
                    self.big = true;
                    continue;
                }
                b'<' | b'=' => {
                    self.big = false;
                    continue;
                }
                b'!' => {
                    let align = self.count().unwrap_or(8);
                    if !align.is_power_of_two() {
                        return Err(Fault::from("alignment is not a power of 2"));
                    }
                    self.align = align;
                    continue;
                }
                b' ' => continue,
                b'x' => Form::Zero,
                b'b' => fixed(1, true),
                b'B' => fixed(1, false),
                b'h' => fixed(2, true),
                b'H' => fixed(2, false),
                b'l' => fixed(8, true),
                b'L' | b'T' => fixed(8, false),
                b'i' => self.integer(true)?,
                b'I' => self.integer(false)?,
                b'f' => Form::Float,
                b'd' => Form::Double,
                b's' => Form::Text,
                b'c' => Form::Chars(self.count().unwrap_or(1)),
                other => {
                    let (name, shown) = (self.name, char::from(*other));
                    return Err(Fault::Text(format!(
                        "bad argument #1 to '{name}' (invalid format option '{shown}')"
                    )));
                }
            };
            let align = form.alignment().min(self.align);
            let zeros = if align > 1 {
                place.next_multiple_of(align) - place
            } else {
                0
            };
            return Ok(Some((form, zeros)));
        }
    }
}

/// Implements `struct.pack(format, value, …)`.
pub(crate) fn pack(lua: &Lua, shared: &Shared, args: &MultiValue) -> Outcome<LuaString> {
    let text = string_arg(lua, args, 1, "pack")?;
    let text = text.as_bytes();
    let mut format = Format {
        name: "pack",
        rest: &text,
        big: false,
        align: 1,
    };
    let mut out = Vec::new();
    let mut at = 2;
    while let Some((form, zeros)) = format.next(out.len())? {
        out.resize(out.len() + zeros, 0);
        shared.check_built(out.len().saturating_add(form.bytes().unwrap_or(0)))?;
        if matches!(form, Form::Zero) {
            out.push(0);
            continue;
        }
        pack_one(lua, shared, args, at, (&form, format.big), &mut out)?;
        at += 1;
    }
    Ok(lua.create_string(out)?)
}

fn pack_one(
    lua: &Lua,
    shared: &Shared,
    args: &MultiValue,
    at: usize,
    (form, big): (&Form, bool),
    out: &mut Vec<u8>,
) -> Outcome<()> {
    let start = out.len();
    match form {
        Form::Zero => {}
        Form::Integer { bytes, .. } => {
            let n = number_arg(args, at, "pack")?;
            let low = wide(n).to_le_bytes();
            let fill = if n < 0.0 { 0xFF } else { 0 };
            out.extend((0..*bytes).map(|i| low.get(i).copied().unwrap_or(fill)));
            reverse_if(big, &mut out[start..]);
        }
        Form::Float => {
            out.extend_from_slice(&narrow(number_arg(args, at, "pack")?).to_le_bytes());
            reverse_if(big, &mut out[start..]);
        }
        Form::Double => {
            out.extend_from_slice(&number_arg(args, at, "pack")?.to_le_bytes());
            reverse_if(big, &mut out[start..]);
        }
        Form::Text | Form::Chars(_) => {
            let text = string_arg(lua, args, at, "pack")?;
            let text = text.as_bytes();
            let len = match form {
                Form::Chars(n) if *n > 0 => *n,
                _ => text.len(),
            };
            let Some(taken) = text.get(..len) else {
                // The original library's error names an argument number that is too high by one.
                let at = at + 1;
                return Err(Fault::Text(format!(
                    "bad argument #{at} to 'pack' (string too short)"
                )));
            };
            shared.check_built(out.len() + len + 1)?;
            out.extend_from_slice(taken);
            if matches!(form, Form::Text) {
                out.push(0);
            }
        }
    }
    Ok(())
}

/// Returns the low 64 bits of a number. A number above the range of signed integers is treated as unsigned.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers beyond the range become its bounds"
)]
fn wide(n: f64) -> u64 {
    if n < 0.0 {
        u64::from_le_bytes(number::truncate(n).to_le_bytes())
    } else {
        n as u64
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "that is what the form says"
)]
fn narrow(n: f64) -> f32 {
    n as f32
}

fn reverse_if(big: bool, bytes: &mut [u8]) {
    if big {
        bytes.reverse();
    }
}

/// Implements `struct.size(format)`.
pub(crate) fn size(lua: &Lua, args: &MultiValue) -> Outcome<f64> {
    let text = string_arg(lua, args, 1, "size")?;
    let text = text.as_bytes();
    let mut format = Format {
        name: "size",
        rest: &text,
        big: false,
        align: 1,
    };
    let mut size: usize = 0;
    while let Some((form, zeros)) = format.next(size)? {
        let Some(bytes) = form.bytes() else {
            let kind = if matches!(form, Form::Text) {
                "s"
            } else {
                "c0"
            };
            return Err(Fault::Text(format!(
                "bad argument #1 to 'size' (variable-size format '{kind}' in struct.size)"
            )));
        };
        size = size.saturating_add(zeros).saturating_add(bytes);
    }
    Ok(as_double(i64::try_from(size).unwrap_or(i64::MAX)))
}

/// Implements `struct.unpack(format, text [, place])`. Returns the values, and then the position after the last value.
pub(crate) fn unpack(lua: &Lua, shared: &Shared, args: &MultiValue) -> Outcome<MultiValue> {
    let text = string_arg(lua, args, 1, "unpack")?;
    let data = string_arg(lua, args, 2, "unpack")?;
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let begin = match args.get(2) {
        None | Some(Value::Nil) => 1,
        Some(_) => number::truncate(number_arg(args, 3, "unpack")?),
    };
    let begin = usize::try_from(begin)
        .ok()
        .and_then(|place| place.checked_sub(1));
    let Some(mut place) = begin else {
        return Err(Fault::from(
            "bad argument #3 to 'unpack' (offset must be 1 or greater)",
        ));
    };
    let mut format = Format {
        name: "unpack",
        rest: &text,
        big: false,
        align: 1,
    };
    let mut values = MultiValue::new();
    while let Some((form, zeros)) = format.next(place)? {
        shared.check()?;
        place = place.saturating_add(zeros);
        let rest = data.get(place..).unwrap_or(&[]);
        let short = || Fault::from("bad argument #2 to 'unpack' (data string too short)");
        let len = match form {
            Form::Text => {
                let end = memchr::memchr(0, rest);
                end.ok_or_else(|| Fault::from("unfinished string in data"))?
            }
            Form::Chars(0) => {
                let last = values.pop_back().and_then(|value| value.as_f64());
                let last = last.ok_or_else(|| Fault::from("format 'c0' needs a previous size"))?;
                usize::try_from(number::truncate(last)).unwrap_or(usize::MAX)
            }
            _ => form.bytes().unwrap_or(0),
        };
        let taken = rest.get(..len).ok_or_else(short)?;
        place += len + usize::from(matches!(form, Form::Text));
        if let Some(value) = unpack_one(lua, &form, format.big, taken)? {
            values.push_back(value);
        }
        if values.len() > 4096 {
            return Err(Fault::from("too many results to unpack"));
        }
    }
    values.push_back(Value::Number(as_double(
        i64::try_from(place + 1).unwrap_or(i64::MAX),
    )));
    Ok(values)
}

#[expect(clippy::cast_precision_loss, reason = "Lua's numbers are doubles")]
fn unpack_one(lua: &Lua, form: &Form, big: bool, taken: &[u8]) -> Outcome<Option<Value>> {
    let mut bytes = taken.to_vec();
    Ok(match form {
        Form::Zero => None,
        Form::Integer { signed, .. } => {
            reverse_if(big, &mut bytes);
            let mut low = [0; 8];
            let fill = match bytes.last() {
                Some(top) if *signed && *top >= 0x80 => 0xFF,
                _ => 0,
            };
            for (i, to) in low.iter_mut().enumerate() {
                *to = bytes.get(i).copied().unwrap_or(fill);
            }
            Some(Value::Number(if *signed {
                as_double(i64::from_le_bytes(low))
            } else {
                u64::from_le_bytes(low) as f64
            }))
        }
        Form::Float => {
            reverse_if(big, &mut bytes);
            let four = bytes.first_chunk().copied().unwrap_or_default();
            Some(Value::Number(f64::from(f32::from_le_bytes(four))))
        }
        Form::Double => {
            reverse_if(big, &mut bytes);
            let eight = bytes.first_chunk().copied().unwrap_or_default();
            Some(Value::Number(f64::from_le_bytes(eight)))
        }
        Form::Text | Form::Chars(_) => Some(Value::String(lua.create_string(taken)?)),
    })
}
