//! A reply as the server sent it: the type byte, and the text or the items.
//!
//! RESP has only one encoding for each reply, so equal replies have equal bytes.

use std::fmt;
use std::io::{self, BufRead, ErrorKind};

/// One reply of RESP2 or RESP3.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reply {
    /// The type byte: `+ - : $ * _ , # ( = % ~ >`.
    pub kind: u8,
    /// The text or the items.
    pub body: Body,
}

/// The content of a reply.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Body {
    /// A line or a bulk string.
    Text(Vec<u8>),
    /// The items. In a map, keys and values alternate.
    Items(Vec<Reply>),
    /// `$-1`, `*-1` and `_`.
    Nil,
}

impl Reply {
    /// Makes a simple string or an error. Tests compare received replies with it.
    pub fn line(kind: u8, text: &str) -> Reply {
        Reply {
            kind,
            body: Body::Text(text.as_bytes().to_vec()),
        }
    }

    /// Reads one reply.
    ///
    /// # Errors
    /// Errors of the connection. `UnexpectedEof`: the connection has ended. `InvalidData`: the bytes are not a reply.
    pub fn read(from: &mut impl BufRead) -> io::Result<Reply> {
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line)?;
        let Some(text) = line.strip_suffix(b"\r\n").filter(|text| !text.is_empty()) else {
            let kind = if line.is_empty() {
                ErrorKind::UnexpectedEof
            } else {
                ErrorKind::InvalidData
            };
            let shown = String::from_utf8_lossy(&line).into_owned();
            return Err(io::Error::new(kind, format!("no reply: {shown:?}")));
        };
        let (kind, rest) = (text[0], &text[1..]);
        let body = match kind {
            b'$' | b'=' => match length(rest)? {
                None => Body::Nil,
                Some(len) => {
                    let mut bytes = vec![0; len + 2];
                    from.read_exact(&mut bytes)?;
                    bytes.truncate(len);
                    Body::Text(bytes)
                }
            },
            b'*' | b'~' | b'%' | b'>' => match length(rest)? {
                None => Body::Nil,
                Some(len) => {
                    let len = if kind == b'%' { len * 2 } else { len };
                    let items: io::Result<Vec<Reply>> =
                        (0..len).map(|_| Reply::read(from)).collect();
                    Body::Items(items?)
                }
            },
            b'_' => Body::Nil,
            b'+' | b'-' | b':' | b',' | b'#' | b'(' => Body::Text(rest.to_vec()),
            _ => {
                let shown = String::from_utf8_lossy(text).into_owned();
                return Err(io::Error::new(ErrorKind::InvalidData, shown));
            }
        };
        Ok(Reply { kind, body })
    }

    /// Returns whether the reply is an error.
    pub fn is_error(&self) -> bool {
        self.kind == b'-'
    }

    /// Returns the text. `None`: the reply has no text.
    pub fn text(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the items, or an empty slice if the reply has none.
    pub fn items(&self) -> &[Reply] {
        match &self.body {
            Body::Items(items) => items,
            _ => &[],
        }
    }

    /// Returns the value of an integer reply; `None` for any other reply.
    pub fn int(&self) -> Option<i64> {
        let text = self.text().filter(|_| self.kind == b':')?;
        std::str::from_utf8(text).ok()?.parse().ok()
    }

    /// Returns the texts of the reply and of all its items, in order.
    pub fn leaves(&self) -> Vec<&[u8]> {
        match &self.body {
            Body::Text(text) => vec![text.as_slice()],
            Body::Items(items) => items.iter().flat_map(Reply::leaves).collect(),
            Body::Nil => Vec::new(),
        }
    }
}

fn length(digits: &[u8]) -> io::Result<Option<usize>> {
    let number: i64 = std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "a length that is no number"))?;
    if number == -1 {
        return Ok(None);
    }
    usize::try_from(number)
        .ok()
        .filter(|len| *len <= 1 << 30)
        .map(Some)
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "a length out of range"))
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.body {
            Body::Nil => write!(f, "nil({})", char::from(self.kind)),
            Body::Text(text) if matches!(self.kind, b'$' | b'=') => {
                write!(f, "\"{}\"", shown(text))
            }
            Body::Text(text) => write!(f, "{}{}", char::from(self.kind), shown(text)),
            Body::Items(items) => {
                write!(f, "{}[", char::from(self.kind))?;
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    if i == 40 {
                        write!(f, "… {} items", items.len())?;
                        break;
                    }
                    write!(f, "{item}")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// Returns bytes in readable form. Long text is cut short.
pub fn shown(bytes: &[u8]) -> String {
    const SHOWN: usize = 160;
    let head = &bytes[..bytes.len().min(SHOWN)];
    let mut text = head.escape_ascii().to_string();
    if bytes.len() > SHOWN {
        text.push_str(&format!("…({} bytes)", bytes.len()));
    }
    text
}

/// Returns a command as a line that redis-cli can read.
pub fn command_line(argv: &[Vec<u8>]) -> String {
    let word = |arg: &Vec<u8>| {
        let plain = |b: &u8| b.is_ascii_graphic() && !b"\"'\\".contains(b);
        if !arg.is_empty() && arg.len() < 160 && arg.iter().all(plain) {
            String::from_utf8_lossy(arg).into_owned()
        } else {
            format!("\"{}\"", shown(arg))
        }
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_reply_is_read_whole() {
        let mut bytes: &[u8] =
            b"*3\r\n$3\r\na\r\n\r\n%1\r\n+k\r\n,1.5\r\n~1\r\n_\r\n$-1\r\n-ERR x\r\n:-7\r\n";
        let first = Reply::read(&mut bytes).expect("an array");
        assert_eq!(first.to_string(), "*[\"a\\r\\n\", %[+k, ,1.5], ~[nil(_)]]");
        assert_eq!(first.leaves(), [&b"a\r\n"[..], b"k", b"1.5"]);
        assert_eq!(Reply::read(&mut bytes).expect("nil").to_string(), "nil($)");
        assert!(Reply::read(&mut bytes).expect("an error").is_error());
        assert_eq!(Reply::read(&mut bytes).expect("a number").int(), Some(-7));
        let end = Reply::read(&mut bytes).expect_err("the end");
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    }
}
