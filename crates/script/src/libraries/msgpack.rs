//! `cmsgpack.pack` converts values to MessagePack, as lua-cmsgpack 0.4 does.

use super::{Fault, Outcome, number};
use crate::vm::Shared;
use mlua::{Lua, LuaString, MultiValue, Table, Value};
use rmp::encode;

/// The greatest depth of nested tables. Deeper tables are packed as nil.
const DEPTH_MAX: usize = 16;

/// Implements `cmsgpack.pack(value, …)`. Packs all values into one string, in order.
pub(crate) fn pack(lua: &Lua, shared: &Shared, args: &MultiValue) -> Outcome<LuaString> {
    if args.is_empty() {
        return Err(Fault::from(
            "bad argument #0 to 'pack' (MessagePack pack needs input.)",
        ));
    }
    let mut packer = Packer {
        out: Vec::new(),
        shared,
    };
    for value in args {
        packer.value(value, 0)?;
    }
    Ok(lua.create_string(packer.out)?)
}

struct Packer<'a> {
    out: Vec<u8>,
    shared: &'a Shared,
}

impl Packer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Outcome<()> {
        let written = match value {
            Value::String(text) => {
                let text = text.as_bytes();
                self.shared.check_built(self.out.len() + text.len())?;
                let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
                let head = encode::write_str_len(&mut self.out, len).is_ok();
                self.out.extend_from_slice(&text);
                head
            }
            Value::Integer(n) => encode::write_sint(&mut self.out, *n).is_ok(),
            Value::Number(n) => self.number(*n),
            Value::Boolean(yes) => encode::write_bool(&mut self.out, *yes).is_ok(),
            Value::Table(table) if depth < DEPTH_MAX => return self.table(table, depth),
            _ => encode::write_nil(&mut self.out).is_ok(),
        };
        debug_assert!(written, "a vector takes all bytes");
        Ok(())
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float that is not the same is not taken"
    )]
    fn number(&mut self, n: f64) -> bool {
        if let Some(n) = number::whole(n) {
            return encode::write_sint(&mut self.out, n).is_ok();
        }
        let short = n as f32;
        if f64::from(short).to_bits() == n.to_bits() {
            encode::write_f32(&mut self.out, short).is_ok()
        } else {
            encode::write_f64(&mut self.out, n).is_ok()
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> Outcome<()> {
        self.shared.check_built(self.out.len())?;
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let mut pairs = Vec::new();
        let mut greatest = 0;
        let mut is_array = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            match key.as_i64().filter(|index| *index > 0) {
                Some(index) => greatest = greatest.max(index),
                None => is_array = false,
            }
            pairs.push((key, value));
        }
        if is_array && u64::try_from(greatest).ok() == u64::try_from(pairs.len()).ok() {
            let head = encode::write_array_len(&mut self.out, count(pairs.len()));
            debug_assert!(head.is_ok(), "a vector takes all bytes");
            for index in 1..=pairs.len() {
                let item: Value = table.raw_get(index)?;
                self.value(&item, depth + 1)?;
            }
            return Ok(());
        }
        let head = encode::write_map_len(&mut self.out, count(pairs.len()));
        debug_assert!(head.is_ok(), "a vector takes all bytes");
        for (key, value) in &pairs {
            self.value(key, depth + 1)?;
            self.value(value, depth + 1)?;
        }
        Ok(())
    }
}
