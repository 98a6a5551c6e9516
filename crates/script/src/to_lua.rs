//! Replies in RESP as values of Lua, as Redis converts them.
//!
//! | reply | value |
//! |---|---|
//! | integer | number |
//! | string; nothing | string; `false`, in RESP3 `nil` |
//! | status; error | table with field `ok`; `err` |
//! | array | table |
//! | RESP3 double, big number, verbatim string, map, set | table with field `double`, `big_number`, `verbatim_string`, `map`, `set` |
//! | RESP3 boolean | boolean |

use mlua::{Lua, Table, Value};

/// Deeper replies are not read.
const DEPTH_MAX: usize = 64;

/// The value of a whole reply. `None`: the bytes are no reply.
pub(crate) fn convert(lua: &Lua, reply: &[u8], resp3: bool) -> mlua::Result<Option<Value>> {
    let mut reader = Reader {
        lua,
        rest: reply,
        resp3,
    };
    reader.value(0)
}

/// The text of a whole reply that is a string of UTF-8.
pub(crate) fn short_text(reply: &[u8]) -> Option<&str> {
    let behind = reply.strip_prefix(b"$")?;
    let head = memchr::memchr(b'\r', behind)?;
    let len = usize::try_from(Reader::number(&behind[..head])?).ok()?;
    let text = behind.get(head + 2..)?.strip_suffix(b"\r\n")?;
    std::str::from_utf8(text)
        .ok()
        .filter(|text| text.len() == len)
}

/// A table with a text in field `err`.
pub(crate) fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    named(lua, "err", Value::String(lua.create_string(text)?))
}

fn named(lua: &Lua, field: &str, value: Value) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, value)?;
    Ok(Value::Table(table))
}

struct Reader<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
    resp3: bool,
}

impl<'a> Reader<'a> {
    /// The bytes up to a line's end.
    fn line(&mut self) -> Option<&'a [u8]> {
        let end = memchr::memchr(b'\r', self.rest)?;
        let (line, behind) = self.rest.split_at(end);
        self.rest = behind.strip_prefix(b"\r\n")?;
        Some(line)
    }

    fn number(line: &[u8]) -> Option<i64> {
        std::str::from_utf8(line).ok()?.parse().ok()
    }

    /// The string whose length a line says.
    fn bulk(&mut self, line: &[u8]) -> Option<&'a [u8]> {
        let len = usize::try_from(Self::number(line)?).ok()?;
        let (text, behind) = self.rest.split_at_checked(len)?;
        self.rest = behind.strip_prefix(b"\r\n")?;
        Some(text)
    }

    fn nothing(&self) -> Value {
        if self.resp3 {
            Value::Nil
        } else {
            Value::Boolean(false)
        }
    }

    fn value(&mut self, depth: usize) -> mlua::Result<Option<Value>> {
        let Some((kind, behind)) = self.rest.split_first() else {
            return Ok(None);
        };
        self.rest = behind;
        let Some(line) = self.line().filter(|_| depth < DEPTH_MAX) else {
            return Ok(None);
        };
        let lua = self.lua;
        let text = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
        let value = match kind {
            b'+' => named(lua, "ok", text(line)?)?,
            b'-' => error_table(lua, line)?,
            b':' => match Self::number(line) {
                Some(n) => Value::Number(as_double(n)),
                None => return Ok(None),
            },
            b'_' => self.nothing(),
            b'#' => Value::Boolean(line == b"t"),
            b',' => named(lua, "double", Value::Number(double(line)))?,
            b'(' => named(lua, "big_number", text(line)?)?,
            b'$' | b'*' if line == b"-1" => self.nothing(),
            b'$' => match self.bulk(line) {
                Some(bytes) => text(bytes)?,
                None => return Ok(None),
            },
            b'=' => match self.bulk(line).and_then(|bytes| bytes.split_at_checked(4)) {
                Some((format, string)) => {
                    let table = lua.create_table_with_capacity(0, 2)?;
                    table.raw_set("format", text(&format[..3])?)?;
                    table.raw_set("string", text(string)?)?;
                    named(lua, "verbatim_string", Value::Table(table))?
                }
                None => return Ok(None),
            },
            b'*' | b'~' | b'%' | b'>' => {
                let Some(len) = Self::number(line).and_then(|n| usize::try_from(n).ok()) else {
                    return Ok(None);
                };
                match self.aggregate(*kind, len, depth)? {
                    Some(table) if *kind == b'~' => named(lua, "set", Value::Table(table))?,
                    Some(table) if *kind == b'%' => named(lua, "map", Value::Table(table))?,
                    Some(table) => Value::Table(table),
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(value))
    }

    fn aggregate(&mut self, kind: u8, len: usize, depth: usize) -> mlua::Result<Option<Table>> {
        // No more room than the bytes can fill: the shortest reply has three.
        let room = len.min(self.rest.len() / 3 + 1);
        let table = if kind == b'*' || kind == b'>' {
            self.lua.create_table_with_capacity(room, 0)?
        } else {
            self.lua.create_table_with_capacity(0, room)?
        };
        for index in 1..=len {
            let Some(first) = self.value(depth + 1)? else {
                return Ok(None);
            };
            match kind {
                b'~' => table.raw_set(first, true)?,
                b'%' => match self.value(depth + 1)? {
                    Some(second) => table.raw_set(first, second)?,
                    None => return Ok(None),
                },
                _ => table.raw_set(index, first)?,
            }
        }
        Ok(Some(table))
    }
}

fn double(line: &[u8]) -> f64 {
    let text = std::str::from_utf8(line).unwrap_or("");
    text.parse().unwrap_or(f64::NAN)
}

/// The nearest number of Lua.
#[expect(clippy::cast_precision_loss, reason = "Lua's numbers are doubles")]
pub(crate) fn as_double(n: i64) -> f64 {
    n as f64
}
