//! `cjson.encode` converts values to JSON, with the defaults of lua-cjson 2.1.

use super::{Fault, Outcome, number};
use crate::vm::Shared;
use mlua::{Lua, LuaString, MultiValue, Table, Value};

/// The greatest depth of nested tables. Deeper tables are an error.
const DEPTH_MAX: usize = 1000;
/// The bounds for sparse arrays. A table is too sparse if the greatest index exceeds `SPARSE_SAFE`, and exceeds
/// `SPARSE_RATIO` times the number of items.
const SPARSE_SAFE: i64 = 10;
const SPARSE_RATIO: i64 = 2;
/// The number of significant digits in a written number.
const DIGITS: usize = 14;

/// Implements `cjson.encode(value)`.
pub(crate) fn encode(lua: &Lua, shared: &Shared, args: &MultiValue) -> Outcome<LuaString> {
    if args.len() != 1 {
        return Err(Fault::from(
            "bad argument #1 to 'encode' (expected 1 argument)",
        ));
    }
    let mut encoder = Encoder {
        out: Vec::new(),
        shared,
    };
    encoder.value(&args[0], 0)?;
    Ok(lua.create_string(encoder.out)?)
}

struct Encoder<'a> {
    out: Vec<u8>,
    shared: &'a Shared,
}

impl Encoder<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Outcome<()> {
        match value {
            Value::String(text) => {
                self.shared
                    .check_built(self.out.len() + text.as_bytes().len())?;
                self.string(&text.as_bytes());
            }
            Value::Integer(n) => self.number(crate::to_lua::as_double(*n))?,
            Value::Number(n) => self.number(*n)?,
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::Table(table) => self.table(table, depth + 1)?,
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(_) if value.is_null() => self.out.extend_from_slice(b"null"),
            other => {
                let text = format!("Cannot serialise {}: type not supported", other.type_name());
                return Err(Fault::Text(text));
            }
        }
        Ok(())
    }

    fn number(&mut self, n: f64) -> Outcome<()> {
        if !n.is_finite() {
            return Err(Fault::from(
                "Cannot serialise number: must not be NaN or Inf",
            ));
        }
        number::push_general(&mut self.out, n, DIGITS);
        Ok(())
    }

    fn string(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for byte in text {
            match byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'/' => self.out.extend_from_slice(b"\\/"),
                0x08 => self.out.extend_from_slice(b"\\b"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                0x0c => self.out.extend_from_slice(b"\\f"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                0..0x20 | 0x7f => self
                    .out
                    .extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                _ => self.out.push(*byte),
            }
        }
        self.out.push(b'"');
    }

    fn table(&mut self, table: &Table, depth: usize) -> Outcome<()> {
        if depth > DEPTH_MAX {
            return Err(Fault::Text(format!(
                "Cannot serialise, excessive depth ({depth})"
            )));
        }
        self.shared.check_built(self.out.len())?;
        match array_len(table)? {
            Some(len) if len > 0 => {
                self.out.push(b'[');
                for index in 1..=len {
                    if index > 1 {
                        self.out.push(b',');
                    }
                    let item: Value = table.raw_get(index)?;
                    self.value(&item, depth)?;
                }
                self.out.push(b']');
            }
            _ => self.object(table, depth)?,
        }
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: usize) -> Outcome<()> {
        self.out.push(b'{');
        let mut first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut first) {
                self.out.push(b',');
            }
            match &key {
                Value::String(text) => {
                    self.shared
                        .check_built(self.out.len() + text.as_bytes().len())?;
                    self.string(&text.as_bytes());
                }
                Value::Integer(_) | Value::Number(_) => {
                    self.out.push(b'"');
                    self.value(&key, depth)?;
                    self.out.push(b'"');
                }
                other => {
                    let name = other.type_name();
                    return Err(Fault::Text(format!(
                        "Cannot serialise {name}: table key must be a number or string"
                    )));
                }
            }
            self.out.push(b':');
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// Returns the greatest index if all keys are positive integers. Returns `None` if the table must be encoded as an
/// object.
fn array_len(table: &Table) -> Outcome<Option<i64>> {
    let (mut greatest, mut items) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        let index = match pair?.0 {
            Value::Integer(n) => Some(n),
            Value::Number(n) => number::whole(n),
            _ => None,
        };
        let Some(index) = index.filter(|index| *index > 0) else {
            return Ok(None);
        };
        greatest = greatest.max(index);
        items += 1;
    }
    if greatest > SPARSE_SAFE && greatest > SPARSE_RATIO * items {
        return Err(Fault::from(
            "Cannot serialise table: excessively sparse array",
        ));
    }
    Ok(Some(greatest))
}
