//! `cjson.decode` converts JSON to values, with the defaults and the error texts of lua-cjson 2.1. As in lua-cjson,
//! strings may contain any bytes. No available JSON parser allows that, so this file has its own parser.

use super::{Fault, Outcome, bad_argument, string_arg};
use crate::vm::Shared;
use mlua::{Lua, MultiValue, Value};

/// The greatest depth of nested values. Deeper values are an error.
const DEPTH_MAX: usize = 1000;

/// Implements `cjson.decode(text)`.
pub(crate) fn decode(lua: &Lua, shared: &Shared, args: &MultiValue) -> Outcome<Value> {
    if args.len() != 1 {
        return Err(Fault::from(
            "bad argument #1 to 'decode' (expected 1 argument)",
        ));
    }
    if args[0].is_nil() {
        return Err(bad_argument(1, "decode", "string", Some(&Value::Nil)));
    }
    let text = string_arg(lua, args, 1, "decode")?;
    let text = text.as_bytes();
    let mut parser = Parser {
        lua,
        shared,
        text: &text,
        at: 0,
    };
    let first = parser.next()?;
    let value = parser.value(first, 1)?;
    match parser.next()? {
        (Token::End, _) => Ok(value),
        other => Err(unexpected("the end", &other)),
    }
}

enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Colon,
    Comma,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    End,
    Error(&'static str),
}

/// A token and the token's start offset.
type Placed = (Token, usize);

fn unexpected(wanted: &str, (token, at): &Placed) -> Fault {
    let found = match token {
        Token::ObjectBegin => "T_OBJ_BEGIN",
        Token::ObjectEnd => "T_OBJ_END",
        Token::ArrayBegin => "T_ARR_BEGIN",
        Token::ArrayEnd => "T_ARR_END",
        Token::Colon => "T_COLON",
        Token::Comma => "T_COMMA",
        Token::String(_) => "T_STRING",
        Token::Number(_) => "T_NUMBER",
        Token::Boolean(_) => "T_BOOLEAN",
        Token::Null => "T_NULL",
        Token::End => "T_END",
        Token::Error(what) => what,
    };
    Fault::Text(format!(
        "Expected {wanted} but found {found} at character {}",
        at + 1
    ))
}

struct Parser<'a> {
    lua: &'a Lua,
    shared: &'a Shared,
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn next(&mut self) -> Outcome<Placed> {
        let rest = self.text.get(self.at..).unwrap_or(&[]);
        let blanks = rest
            .iter()
            .take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'));
        self.at += blanks.count();
        let at = self.at;
        let Some(byte) = self.text.get(at) else {
            return Ok((Token::End, at));
        };
        let mut one = |token| {
            self.at += 1;
            token
        };
        let token = match byte {
            b'{' => one(Token::ObjectBegin),
            b'}' => one(Token::ObjectEnd),
            b'[' => one(Token::ArrayBegin),
            b']' => one(Token::ArrayEnd),
            b':' => one(Token::Colon),
            b',' => one(Token::Comma),
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            _ => self.word(),
        };
        Ok((token, at))
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        for (word, token) in [
            (&b"true"[..], Token::Boolean(true)),
            (b"false", Token::Boolean(false)),
            (b"null", Token::Null),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        let upper: Vec<u8> = rest.iter().take(8).map(u8::to_ascii_lowercase).collect();
        for (word, n) in [
            (&b"infinity"[..], f64::INFINITY),
            (b"inf", f64::INFINITY),
            (b"nan", f64::NAN),
        ] {
            if upper.starts_with(word) {
                self.at += word.len();
                return Token::Number(n);
            }
        }
        Token::Error("invalid token")
    }

    /// Returns the longest number that begins at the current offset.
    fn number(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let digits = |from: usize| {
            rest[from..]
                .iter()
                .take_while(|b| b.is_ascii_digit())
                .count()
        };
        let mut end = usize::from(rest[0] == b'-');
        let whole = digits(end);
        end += whole;
        if whole == 0 {
            return Token::Error("invalid number");
        }
        if rest.get(end) == Some(&b'.') {
            end += 1 + digits(end + 1);
        }
        if matches!(rest.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits((end + 1 + sign).min(rest.len()));
            if exponent > 0 {
                end += 1 + sign + exponent;
            }
        }
        let text = std::str::from_utf8(&rest[..end]).unwrap_or("");
        match text.parse() {
            Ok(n) => {
                self.at += end;
                Token::Number(n)
            }
            Err(_) => Token::Error("invalid number"),
        }
    }

    fn string(&mut self) -> Outcome<Placed> {
        let begin = self.at;
        self.at += 1;
        let mut string = Vec::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or(&[]);
            let Some(plain) = memchr::memchr2(b'"', b'\\', rest) else {
                return Ok((Token::Error("unexpected end of string"), self.text.len()));
            };
            string.extend_from_slice(&rest[..plain]);
            self.at += plain + 1;
            self.shared.check()?;
            if rest[plain] == b'"' {
                return Ok((Token::String(string), begin));
            }
            let escape = self.text.get(self.at).copied();
            self.at += 1;
            let byte = match escape {
                Some(byte @ (b'"' | b'\\' | b'/')) => byte,
                Some(b'b') => 0x08,
                Some(b't') => b'\t',
                Some(b'n') => b'\n',
                Some(b'f') => 0x0c,
                Some(b'r') => b'\r',
                Some(b'u') => match self.unicode() {
                    Some(point) => {
                        string.extend_from_slice(point.encode_utf8(&mut [0; 4]).as_bytes());
                        continue;
                    }
                    None => return Ok((Token::Error("invalid unicode escape code"), self.at - 2)),
                },
                _ => return Ok((Token::Error("invalid escape code"), self.at - 2)),
            };
            string.push(byte);
        }
    }

    /// Reads the rest of an escape after its `\u`, and returns the character. Two escapes that form a surrogate pair
    /// make one character. Returns `None` if the escape is invalid.
    fn unicode(&mut self) -> Option<char> {
        let high = self.hex(self.at)?;
        if !(0xD800..0xDC00).contains(&high) {
            let point = char::from_u32(high)?;
            self.at += 4;
            return Some(point);
        }
        let joined = self.text.get(self.at + 4..self.at + 6) == Some(b"\\u");
        let low = self
            .hex(self.at + 6)
            .filter(|low| joined && (0xDC00..0xE000).contains(low))?;
        self.at += 10;
        char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    }

    fn hex(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4)?;
        let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }

    fn value(&mut self, token: Placed, depth: usize) -> Outcome<Value> {
        Ok(match token {
            (Token::String(text), _) => Value::String(self.lua.create_string(text)?),
            (Token::Number(n), _) => Value::Number(n),
            (Token::Boolean(yes), _) => Value::Boolean(yes),
            (Token::Null, _) => Value::NULL,
            (Token::ObjectBegin, _) => self.object(depth)?,
            (Token::ArrayBegin, _) => self.array(depth)?,
            other => return Err(unexpected("value", &other)),
        })
    }

    fn check_depth(&self, depth: usize) -> Outcome<()> {
        self.shared.check()?;
        if depth > DEPTH_MAX {
            let at = self.at;
            return Err(Fault::Text(format!(
                "Found too many nested data structures ({depth}) at character {at}"
            )));
        }
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Outcome<Value> {
        self.check_depth(depth)?;
        let table = self.lua.create_table()?;
        let mut token = self.next()?;
        if matches!(token.0, Token::ObjectEnd) {
            return Ok(Value::Table(table));
        }
        loop {
            let key = match token {
                (Token::String(key), _) => self.lua.create_string(key)?,
                other => return Err(unexpected("object key string", &other)),
            };
            match self.next()? {
                (Token::Colon, _) => {}
                other => return Err(unexpected("colon", &other)),
            }
            let first = self.next()?;
            let value = self.value(first, depth + 1)?;
            table.raw_set(key, value)?;
            match self.next()? {
                (Token::ObjectEnd, _) => return Ok(Value::Table(table)),
                (Token::Comma, _) => token = self.next()?,
                other => return Err(unexpected("comma or object end", &other)),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Outcome<Value> {
        self.check_depth(depth)?;
        let table = self.lua.create_table()?;
        let mut token = self.next()?;
        if matches!(token.0, Token::ArrayEnd) {
            return Ok(Value::Table(table));
        }
        loop {
            let value = self.value(token, depth + 1)?;
            table.raw_push(value)?;
            match self.next()? {
                (Token::ArrayEnd, _) => return Ok(Value::Table(table)),
                (Token::Comma, _) => token = self.next()?,
                other => return Err(unexpected("comma or array end", &other)),
            }
        }
    }
}
