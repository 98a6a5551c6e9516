//! Values of Lua as a reply in RESP, as Redis converts them.
//!
//! | value | reply |
//! |---|---|
//! | string | string |
//! | number | integer, cut off behind the point |
//! | `true`, `false` | 1, nothing; booleans after `redis.setresp(3)` |
//! | table with a text in `err` or `ok` | error, status |
//! | table with `double`, `map`, `set`, `big_number`, `verbatim_string` | the type of RESP3, or the nearest of RESP2 |
//! | another table | array, up to the first nil |
//! | anything else | nothing |

use crate::libraries::number;
use crate::to_lua::as_double;
use mlua::{LuaString, Table, Value};

/// Deeper tables are no reply.
const DEPTH_MAX: usize = 512;

/// Which replies there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protocol {
    /// The client speaks RESP3.
    pub(crate) client_resp3: bool,
    /// The script has called `redis.setresp(3)`.
    pub(crate) script_resp3: bool,
}

/// The reply would be too long.
#[derive(Debug)]
pub(crate) struct TooLong;

/// Appends a reply.
pub(crate) struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
    /// The buffer may become so long.
    end: usize,
    depth: usize,
}

impl<'a> Encoder<'a> {
    /// One that appends at most so many bytes.
    pub(crate) fn new(out: &'a mut Vec<u8>, protocol: Protocol, bytes_max: usize) -> Self {
        let end = out.len().saturating_add(bytes_max);
        Encoder {
            out,
            protocol,
            end,
            depth: 0,
        }
    }

    /// Appends a value.
    pub(crate) fn push(&mut self, value: &Value) -> Result<(), TooLong> {
        match value {
            Value::String(text) => self.bulk(&text.as_bytes())?,
            Value::Integer(n) => self.integer(*n),
            Value::Number(n) => self.integer(number::truncate(*n)),
            Value::Boolean(yes) => self.boolean(*yes),
            Value::Table(table) => self.table(table)?,
            _ => self.null(),
        }
        self.check(0)
    }

    fn check(&self, more: usize) -> Result<(), TooLong> {
        if self.out.len().saturating_add(more) > self.end {
            return Err(TooLong);
        }
        Ok(())
    }

    fn head(&mut self, kind: u8, n: usize) {
        self.out.push(kind);
        number::push_integer(self.out, i64::try_from(n).unwrap_or(i64::MAX));
        self.out.extend_from_slice(b"\r\n");
    }

    fn bulk(&mut self, text: &[u8]) -> Result<(), TooLong> {
        self.check(text.len())?;
        self.head(b'$', text.len());
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn integer(&mut self, n: i64) {
        self.out.push(b':');
        number::push_integer(self.out, n);
        self.out.extend_from_slice(b"\r\n");
    }

    fn null(&mut self) {
        let nothing: &[u8] = if self.protocol.client_resp3 {
            b"_\r\n"
        } else {
            b"$-1\r\n"
        };
        self.out.extend_from_slice(nothing);
    }

    fn boolean(&mut self, yes: bool) {
        match (self.protocol.script_resp3, self.protocol.client_resp3, yes) {
            (true, true, true) => self.out.extend_from_slice(b"#t\r\n"),
            (true, true, false) => self.out.extend_from_slice(b"#f\r\n"),
            (_, _, true) => self.out.extend_from_slice(b":1\r\n"),
            (true, false, false) => self.out.extend_from_slice(b":0\r\n"),
            (false, _, false) => self.null(),
        }
    }

    /// A line of text, in which line ends become blanks.
    fn line(&mut self, kind: u8, text: &LuaString) -> Result<(), TooLong> {
        let text = text.as_bytes();
        self.check(text.len())?;
        self.out.push(kind);
        let shown = text
            .iter()
            .map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b });
        self.out.extend(shown);
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn table(&mut self, table: &Table) -> Result<(), TooLong> {
        let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
        if let Value::String(text) = field("err") {
            return self.line(b'-', &text);
        }
        if let Value::String(text) = field("ok") {
            return self.line(b'+', &text);
        }
        match field("double") {
            Value::Integer(n) => return self.double(as_double(n)),
            Value::Number(n) => return self.double(n),
            _ => {}
        }
        if let Value::Table(map) = field("map") {
            return self.map(&map);
        }
        if let Value::Table(set) = field("set") {
            return self.set(&set);
        }
        if let Value::String(text) = field("big_number") {
            return if self.protocol.client_resp3 {
                self.line(b'(', &text)
            } else {
                self.bulk(&text.as_bytes())
            };
        }
        if let Value::Table(verbatim) = field("verbatim_string") {
            let part = |name: &str| verbatim.raw_get::<LuaString>(name).ok();
            if let (Some(string), Some(format)) = (part("string"), part("format")) {
                return self.verbatim(&format.as_bytes(), &string.as_bytes());
            }
        }
        self.array(table)
    }

    fn double(&mut self, n: f64) -> Result<(), TooLong> {
        let mut text = Vec::new();
        number::push_general(&mut text, n, 17);
        if self.protocol.client_resp3 {
            self.out.push(b',');
            self.out.append(&mut text);
            self.out.extend_from_slice(b"\r\n");
            Ok(())
        } else {
            self.bulk(&text)
        }
    }

    fn verbatim(&mut self, format: &[u8], string: &[u8]) -> Result<(), TooLong> {
        if !self.protocol.client_resp3 {
            return self.bulk(string);
        }
        self.check(string.len() + 4)?;
        let mut name = *b"txt";
        for (to, from) in name.iter_mut().zip(format) {
            *to = *from;
        }
        self.head(b'=', string.len() + 4);
        self.out.extend_from_slice(&name);
        self.out.push(b':');
        self.out.extend_from_slice(string);
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Goes one table deeper.
    fn deeper(
        &mut self,
        push: impl FnOnce(&mut Self) -> Result<(), TooLong>,
    ) -> Result<(), TooLong> {
        if self.depth == DEPTH_MAX {
            self.out
                .extend_from_slice(b"-ERR reached lua stack limit\r\n");
            return Ok(());
        }
        self.depth += 1;
        let pushed = push(self);
        self.depth -= 1;
        pushed
    }

    fn map(&mut self, map: &Table) -> Result<(), TooLong> {
        let pairs = entries(map);
        self.deeper(|this| {
            if this.protocol.client_resp3 {
                this.head(b'%', pairs.len());
            } else {
                this.head(b'*', pairs.len() * 2);
            }
            pairs.iter().try_for_each(|(key, value)| {
                this.push(key)?;
                this.push(value)
            })
        })
    }

    fn set(&mut self, set: &Table) -> Result<(), TooLong> {
        let pairs = entries(set);
        self.deeper(|this| {
            let kind = if this.protocol.client_resp3 {
                b'~'
            } else {
                b'*'
            };
            this.head(kind, pairs.len());
            pairs.iter().try_for_each(|(key, _)| this.push(key))
        })
    }

    fn array(&mut self, table: &Table) -> Result<(), TooLong> {
        self.deeper(|this| {
            let mut items = Vec::with_capacity(table.raw_len());
            // The head says how many there are up to the first nil.
            while let Ok(item) = table.raw_get::<Value>(items.len() + 1)
                && !item.is_nil()
            {
                items.push(item);
            }
            this.head(b'*', items.len());
            items.iter().try_for_each(|item| this.push(item))
        })
    }
}

/// What a table holds.
fn entries(table: &Table) -> Vec<(Value, Value)> {
    let pairs = table.pairs::<Value, Value>();
    pairs.filter_map(Result::ok).collect()
}
