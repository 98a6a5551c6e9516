//! `cmsgpack.unpack` and the functions like it, which convert MessagePack to values.

use super::{Fault, Outcome, number, number_arg, string_arg};
use crate::to_lua::as_double;
use crate::vm::Shared;
use mlua::{Lua, MultiValue, Value};
use rmp::Marker;

/// The greatest depth of nested values. Deeper values are an error.
const DEPTH_MAX: usize = 128;

/// Implements `cmsgpack.unpack(text)`. Returns all values in the text.
pub(crate) fn unpack(lua: &Lua, shared: &Shared, args: &MultiValue) -> Outcome<MultiValue> {
    let text = string_arg(lua, args, 1, "unpack")?;
    let text = text.as_bytes();
    let mut reader = Reader {
        lua,
        shared,
        rest: &text,
    };
    let mut values = MultiValue::new();
    while !reader.rest.is_empty() {
        values.push_back(reader.value(0)?);
        check_count(values.len())?;
    }
    Ok(values)
}

/// Implements `cmsgpack.unpack_one(text [, offset])` and `cmsgpack.unpack_limit(text, limit [, offset])`. The first
/// result is the next offset, or -1 at the end of the text. The other results are the values, at most `limit` of them.
/// A `limit` of 0 means all values.
pub(crate) fn unpack_some(
    lua: &Lua,
    shared: &Shared,
    args: &MultiValue,
    limited: bool,
) -> Outcome<MultiValue> {
    let name = if limited {
        "unpack_limit"
    } else {
        "unpack_one"
    };
    let text = string_arg(lua, args, 1, name)?;
    let text = text.as_bytes();
    let limit = if limited {
        number::truncate(number_arg(args, 2, name)?)
    } else {
        1
    };
    let at = if limited { 3 } else { 2 };
    let offset = match args.get(at - 1) {
        None | Some(Value::Nil) => 0,
        Some(_) => number::truncate(number_arg(args, at, name)?),
    };
    let (Ok(limit), Ok(offset)) = (usize::try_from(limit), usize::try_from(offset)) else {
        return Err(Fault::Text(format!(
            "Invalid request to unpack with offset of {offset} and limit of {limit}."
        )));
    };
    let Some(rest) = text.get(offset..) else {
        let len = text.len();
        return Err(Fault::Text(format!(
            "Start offset {offset} greater than input length {len}."
        )));
    };
    let mut reader = Reader { lua, shared, rest };
    let mut values = MultiValue::new();
    while !reader.rest.is_empty() && (limit == 0 || values.len() < limit) {
        values.push_back(reader.value(0)?);
        check_count(values.len())?;
    }
    let next = if reader.rest.is_empty() {
        -1
    } else {
        i64::try_from(text.len() - reader.rest.len()).unwrap_or(-1)
    };
    values.push_front(Value::Number(as_double(next)));
    Ok(values)
}

/// Fails if the stack has no room for `values` values.
fn check_count(values: usize) -> Outcome<()> {
    if values > 4096 {
        return Err(Fault::from("too many values to unpack at once"));
    }
    Ok(())
}

struct Reader<'a> {
    lua: &'a Lua,
    shared: &'a Shared,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Outcome<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(Fault::from("Missing bytes in input."));
        };
        self.rest = rest;
        Ok(taken)
    }

    /// Reads an unsigned number of `bytes` bytes, the most significant byte first.
    fn unsigned(&mut self, bytes: usize) -> Outcome<u64> {
        let taken = self.take(bytes)?;
        Ok(taken.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)))
    }

    fn len(&mut self, bytes: usize) -> Outcome<usize> {
        Ok(usize::try_from(self.unsigned(bytes)?).unwrap_or(usize::MAX))
    }

    /// Reads a signed number of `bytes` bytes, the most significant byte first.
    fn signed(&mut self, bytes: usize) -> Outcome<Value> {
        let shift = 64 - 8 * u32::try_from(bytes).unwrap_or(8);
        let raised = self.unsigned(bytes)? << shift;
        Ok(Value::Number(as_double(
            i64::from_le_bytes(raised.to_le_bytes()) >> shift,
        )))
    }

    fn string(&mut self, len: usize) -> Outcome<Value> {
        let taken = self.take(len)?;
        Ok(Value::String(self.lua.create_string(taken)?))
    }

    #[expect(clippy::cast_precision_loss, reason = "Lua's numbers are doubles")]
    fn value(&mut self, depth: usize) -> Outcome<Value> {
        self.shared.check()?;
        if depth > DEPTH_MAX {
            return Err(Fault::from("Bad data format in input."));
        }
        let marker = Marker::from_u8(self.take(1)?[0]);
        Ok(match marker {
            Marker::FixPos(n) => Value::Number(f64::from(n)),
            Marker::FixNeg(n) => Value::Number(f64::from(n)),
            Marker::U8 => Value::Number(self.unsigned(1)? as f64),
            Marker::U16 => Value::Number(self.unsigned(2)? as f64),
            Marker::U32 => Value::Number(self.unsigned(4)? as f64),
            Marker::U64 => Value::Number(self.unsigned(8)? as f64),
            Marker::I8 => self.signed(1)?,
            Marker::I16 => self.signed(2)?,
            Marker::I32 => self.signed(4)?,
            Marker::I64 => self.signed(8)?,
            Marker::F32 => {
                let bits = u32::try_from(self.unsigned(4)?).unwrap_or(0);
                Value::Number(f64::from(f32::from_bits(bits)))
            }
            Marker::F64 => Value::Number(f64::from_bits(self.unsigned(8)?)),
            Marker::Null => Value::Nil,
            Marker::True => Value::Boolean(true),
            Marker::False => Value::Boolean(false),
            Marker::FixStr(len) => self.string(usize::from(len))?,
            Marker::Str8 | Marker::Bin8 => {
                let len = self.len(1)?;
                self.string(len)?
            }
            Marker::Str16 | Marker::Bin16 => {
                let len = self.len(2)?;
                self.string(len)?
            }
            Marker::Str32 | Marker::Bin32 => {
                let len = self.len(4)?;
                self.string(len)?
            }
            Marker::FixArray(len) => self.array(usize::from(len), depth)?,
            Marker::Array16 => {
                let len = self.len(2)?;
                self.array(len, depth)?
            }
            Marker::Array32 => {
                let len = self.len(4)?;
                self.array(len, depth)?
            }
            Marker::FixMap(len) => self.map(usize::from(len), depth)?,
            Marker::Map16 => {
                let len = self.len(2)?;
                self.map(len, depth)?
            }
            Marker::Map32 => {
                let len = self.len(4)?;
                self.map(len, depth)?
            }
            _ => return Err(Fault::from("Bad data format in input.")),
        })
    }

    fn array(&mut self, len: usize, depth: usize) -> Outcome<Value> {
        let table = self
            .lua
            .create_table_with_capacity(len.min(self.rest.len()), 0)?;
        for index in 1..=len {
            let value = self.value(depth + 1)?;
            table.raw_set(index, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: usize, depth: usize) -> Outcome<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..len {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            if key.is_nil() || key.as_number().is_some_and(f64::is_nan) {
                return Err(Fault::from("Bad data format in input."));
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}
