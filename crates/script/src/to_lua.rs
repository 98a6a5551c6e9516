//! Converts replies in RESP to values of Lua, as Redis does.
//!
//! | reply | value |
//! |---|---|
//! | integer | number |
//! | string | string |
//! | null | `false`; in RESP3, `nil` |
//! | status | table with field `ok` |
//! | error | table with field `err` |
//! | array | table |
//! | RESP3 double, big number, verbatim string, map, set | table with field `double`, `big_number`, `verbatim_string`, `map`, `set` |
//! | RESP3 boolean | boolean |

use crate::stack::{At, Stack};
use std::ffi::CStr;

/// The greatest depth of nested values in a reply. Deeper replies are refused.
const DEPTH_MAX: usize = 64;

/// Converts a whole reply and pushes its value. Returns `None` if the bytes are not a reply. Some values may then have
/// been pushed.
pub(crate) fn push(stack: &mut Stack<'_>, reply: &[u8], resp3: bool) -> Option<()> {
    let mut reader = Reader {
        stack,
        rest: reply,
        resp3,
    };
    reader.value(0)
}

/// Pushes a table with one field. The field's value is `text`.
pub(crate) fn push_named(stack: &mut Stack<'_>, field: &CStr, text: &[u8]) {
    stack.push_table(0, 1);
    let table = stack.len();
    stack.push_text(text);
    stack.set_field(table, field);
}

struct Reader<'a, 's, 'c> {
    stack: &'s mut Stack<'c>,
    rest: &'a [u8],
    resp3: bool,
}

impl<'a> Reader<'a, '_, '_> {
    /// Reads the bytes up to the end of the line.
    fn line(&mut self) -> Option<&'a [u8]> {
        let end = memchr::memchr(b'\r', self.rest)?;
        let (line, behind) = self.rest.split_at(end);
        self.rest = behind.strip_prefix(b"\r\n")?;
        Some(line)
    }

    fn number(line: &[u8]) -> Option<i64> {
        std::str::from_utf8(line).ok()?.parse().ok()
    }

    /// Reads a string. `line` has the string's length.
    fn bulk(&mut self, line: &[u8]) -> Option<&'a [u8]> {
        let len = usize::try_from(Self::number(line)?).ok()?;
        let (text, behind) = self.rest.split_at_checked(len)?;
        self.rest = behind.strip_prefix(b"\r\n")?;
        Some(text)
    }

    fn push_nothing(&mut self) {
        if self.resp3 {
            self.stack.push_nil();
        } else {
            self.stack.push_boolean(false);
        }
    }

    /// Pushes the next value.
    fn value(&mut self, depth: usize) -> Option<()> {
        let (kind, behind) = self.rest.split_first()?;
        self.rest = behind;
        let line = self.line().filter(|_| depth < DEPTH_MAX)?;
        match kind {
            b'+' => push_named(self.stack, c"ok", line),
            b'-' => push_named(self.stack, c"err", line),
            b':' => self.stack.push_number(as_double(Self::number(line)?)),
            b'_' => self.push_nothing(),
            b'#' => self.stack.push_boolean(line == b"t"),
            b',' => {
                let table = self.open();
                self.stack.push_number(double(line));
                self.stack.set_field(table, c"double");
            }
            b'(' => push_named(self.stack, c"big_number", line),
            b'$' | b'*' if line == b"-1" => self.push_nothing(),
            b'$' => {
                let text = self.bulk(line)?;
                self.stack.push_text(text);
            }
            b'=' => {
                let (format, string) = self.bulk(line)?.split_at_checked(4)?;
                let table = self.open();
                self.stack.push_table(0, 2);
                for (field, text) in [(c"format", &format[..3]), (c"string", string)] {
                    self.stack.push_text(text);
                    self.stack.set_field(table + 1, field);
                }
                self.stack.set_field(table, c"verbatim_string");
            }
            b'*' | b'>' => {
                let len = usize::try_from(Self::number(line)?).ok()?;
                self.items(len, depth)?;
            }
            b'~' | b'%' => {
                let len = usize::try_from(Self::number(line)?).ok()?;
                self.pairs(len, depth, *kind == b'%')?;
            }
            _ => return None,
        }
        Some(())
    }

    /// Pushes an empty table with room for one field.
    fn open(&mut self) -> At {
        self.stack.push_table(0, 1);
        self.stack.len()
    }

    /// Reduces `len`, a count from the reply, to about the number of values that the remaining bytes can contain. The
    /// shortest value has three bytes.
    fn room(&self, len: usize) -> usize {
        len.min(self.rest.len() / 3 + 1)
    }

    fn items(&mut self, len: usize, depth: usize) -> Option<()> {
        self.stack.push_table(self.room(len), 0);
        let table = self.stack.len();
        for index in 1..=len {
            self.value(depth + 1)?;
            self.stack.set_index(table, index);
        }
        Some(())
    }

    /// Pushes a table with a field `map` or `set`, which holds the table of the pairs. A set (`has_values` is false)
    /// pairs each key with `true`.
    fn pairs(&mut self, len: usize, depth: usize, has_values: bool) -> Option<()> {
        let table = self.open();
        self.stack.push_table(0, self.room(len));
        for _ in 0..len {
            self.value(depth + 1)?;
            if has_values {
                self.value(depth + 1)?;
            } else {
                self.stack.push_boolean(true);
            }
            self.stack.set_pair(table + 1);
        }
        self.stack
            .set_field(table, if has_values { c"map" } else { c"set" });
        Some(())
    }
}

fn double(line: &[u8]) -> f64 {
    let text = std::str::from_utf8(line).unwrap_or("");
    text.parse().unwrap_or(f64::NAN)
}

/// Returns the number of Lua that is nearest to `n`.
#[expect(clippy::cast_precision_loss, reason = "Lua's numbers are doubles")]
pub(crate) fn as_double(n: i64) -> f64 {
    n as f64
}
