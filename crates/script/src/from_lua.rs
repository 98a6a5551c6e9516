//! Converts values of Lua to replies in RESP, as Redis does.
//!
//! | value | reply |
//! |---|---|
//! | string | string |
//! | number | integer, without the fraction |
//! | `true`, `false` | 1, null; after `redis.setresp(3)`, booleans (1, 0 if the client speaks RESP2) |
//! | table with a text in `err` or `ok` | error, status |
//! | table with `double`, `map`, `set`, `big_number`, `verbatim_string` | the RESP3 type, or the nearest RESP2 type |
//! | another table | array, up to the first nil |
//! | any other value | null |

use crate::libraries::number;
use crate::stack::{At, Item, Stack};
use crate::vm::Shared;

/// The greatest depth of tables in a reply. A deeper table is replaced by an error.
const DEPTH_MAX: usize = 512;

/// The versions of RESP that the client and the script use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protocol {
    /// True if the client speaks RESP3.
    pub(crate) client_resp3: bool,
    /// True if the script has called `redis.setresp(3)`.
    pub(crate) script_resp3: bool,
}

/// The reason why a run has no reply.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// The reply would be too long.
    TooLong,
    /// The run must end.
    Ended,
}

/// A buffer. The reply is appended to it.
struct Bytes<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
    /// The greatest length that the buffer may reach.
    end: usize,
}

/// An encoder that converts a Lua value to a reply and appends the reply to a buffer.
pub(crate) struct Encoder<'a, 'c> {
    stack: &'a mut Stack<'c>,
    shared: &'a Shared,
    to: Bytes<'a>,
    depth: usize,
}

impl Bytes<'_> {
    fn check(&self, more: usize) -> Result<(), Unsent> {
        if self.out.len().saturating_add(more) > self.end {
            return Err(Unsent::TooLong);
        }
        Ok(())
    }

    fn head(&mut self, kind: u8, n: usize) {
        self.integer(kind, i64::try_from(n).unwrap_or(i64::MAX));
    }

    fn integer(&mut self, kind: u8, n: i64) {
        self.out.push(kind);
        number::push_integer(self.out, n);
        self.out.extend_from_slice(b"\r\n");
    }

    fn bulk(&mut self, text: &[u8]) -> Result<(), Unsent> {
        self.check(text.len())?;
        self.head(b'$', text.len());
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
        Ok(())
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

    /// Appends a line of text. Each CR or LF in the text becomes a blank.
    fn line(&mut self, kind: u8, text: &[u8]) -> Result<(), Unsent> {
        self.check(text.len())?;
        self.out.push(kind);
        let shown = text
            .iter()
            .map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b });
        self.out.extend(shown);
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn double(&mut self, n: f64) -> Result<(), Unsent> {
        let mut text = Vec::new();
        number::push_general(&mut text, n, 17);
        if self.protocol.client_resp3 {
            self.line(b',', &text)
        } else {
            self.bulk(&text)
        }
    }

    fn big_number(&mut self, text: &[u8]) -> Result<(), Unsent> {
        if self.protocol.client_resp3 {
            self.line(b'(', text)
        } else {
            self.bulk(text)
        }
    }

    fn verbatim(&mut self, format: &[u8], string: &[u8]) -> Result<(), Unsent> {
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
}

impl<'a, 'c> Encoder<'a, 'c> {
    /// Makes an encoder that appends at most `bytes_max` bytes.
    pub(crate) fn new(
        stack: &'a mut Stack<'c>,
        shared: &'a Shared,
        out: &'a mut Vec<u8>,
        protocol: Protocol,
        bytes_max: usize,
    ) -> Self {
        let end = out.len().saturating_add(bytes_max);
        Encoder {
            stack,
            shared,
            to: Bytes { out, protocol, end },
            depth: 0,
        }
    }

    /// Appends the value at a position of the stack.
    pub(crate) fn push(&mut self, at: At) -> Result<(), Unsent> {
        match self.stack.item(at) {
            Item::Text(text) => self.to.bulk(text)?,
            Item::Number(n) => self.to.integer(b':', number::truncate(n)),
            Item::Boolean(yes) => self.to.boolean(yes),
            Item::Table => {
                let len = self.stack.len();
                self.table(at)?;
                self.stack.cut(len);
            }
            Item::Nothing => self.to.null(),
        }
        self.to.check(0)
    }

    /// Appends a table. Leaves the fields that were read on the stack.
    fn table(&mut self, at: At) -> Result<(), Unsent> {
        if self.shared.check().is_err() {
            return Err(Unsent::Ended);
        }
        let field = self.stack.len() + 1;
        self.stack.get_field(at, c"err");
        if let Item::Text(text) = self.stack.item(field) {
            return self.to.line(b'-', text);
        }
        self.stack.get_field(at, c"ok");
        if let Item::Text(text) = self.stack.item(field + 1) {
            return self.to.line(b'+', text);
        }
        self.stack.get_field(at, c"double");
        if let Item::Number(n) = self.stack.item(field + 2) {
            return self.to.double(n);
        }
        self.stack.get_field(at, c"map");
        if self.stack.item(field + 3) == Item::Table {
            return self.pairs(field + 3, true);
        }
        self.stack.get_field(at, c"set");
        if self.stack.item(field + 4) == Item::Table {
            return self.pairs(field + 4, false);
        }
        self.stack.get_field(at, c"big_number");
        if let Item::Text(text) = self.stack.item(field + 5) {
            return self.to.big_number(text);
        }
        self.stack.get_field(at, c"verbatim_string");
        if self.stack.item(field + 6) == Item::Table {
            self.stack.get_field(field + 6, c"format");
            self.stack.get_field(field + 6, c"string");
            let parts = (self.stack.item(field + 7), self.stack.item(field + 8));
            if let (Item::Text(format), Item::Text(string)) = parts {
                return self.to.verbatim(format, string);
            }
        }
        self.stack.cut(field - 1);
        self.items(at)
    }

    /// Calls `push`, which appends a table one level deeper. Appends an error instead if the depth is already
    /// [`DEPTH_MAX`].
    fn deeper(&mut self, push: impl FnOnce(&mut Self) -> Result<(), Unsent>) -> Result<(), Unsent> {
        if self.depth == DEPTH_MAX {
            self.to
                .out
                .extend_from_slice(b"-ERR reached lua stack limit\r\n");
            return Ok(());
        }
        self.depth += 1;
        let pushed = push(self);
        self.depth -= 1;
        pushed
    }

    /// Appends the pairs of a table as a map, or only its keys as a set if `has_values` is false.
    fn pairs(&mut self, at: At, has_values: bool) -> Result<(), Unsent> {
        let key = self.stack.len() + 1;
        let (mut count, mut from) = (0, 0);
        while let Some(next) = self.stack.next_pair(at, from) {
            self.stack.cut(key - 1);
            (count, from) = (count + 1, next);
        }
        self.deeper(|this| {
            match (has_values, this.to.protocol.client_resp3) {
                (true, true) => this.to.head(b'%', count),
                (true, false) => this.to.head(b'*', count * 2),
                (false, true) => this.to.head(b'~', count),
                (false, false) => this.to.head(b'*', count),
            }
            let mut from = 0;
            while let Some(next) = this.stack.next_pair(at, from) {
                this.push(key)?;
                if has_values {
                    this.push(key + 1)?;
                }
                this.stack.cut(key - 1);
                from = next;
            }
            Ok(())
        })
    }

    /// Appends the items of a table up to the first nil.
    fn items(&mut self, at: At) -> Result<(), Unsent> {
        let item = self.stack.len() + 1;
        self.deeper(|this| {
            let mut count = 0;
            loop {
                this.stack.get_index(at, count + 1);
                let ends = this.stack.is_nil(item);
                this.stack.cut(item - 1);
                if ends {
                    break;
                }
                count += 1;
            }
            this.to.head(b'*', count);
            for index in 1..=count {
                this.stack.get_index(at, index);
                this.push(item)?;
                this.stack.cut(item - 1);
            }
            Ok(())
        })
    }
}
