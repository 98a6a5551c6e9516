//! Parses replies of the Redis protocol. The input may end within a reply.

use anyhow::{Result, bail};

/// One reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A status or a number.
    Line,
    /// An error, with its text.
    Error(&'a [u8]),
    /// A value.
    Bulk(&'a [u8]),
    /// The reply for a missing value.
    Nil,
}

/// Returns the reply at the start of `bytes`, and the length of that reply. `None`: the reply is
/// incomplete.
///
/// # Errors
/// The bytes are not a reply to SET or GET.
pub fn parse(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>> {
    if bytes.starts_with(b"+OK\r\n") {
        return Ok(Some((Reply::Line, 5)));
    }
    let Some(end) = bytes
        .windows(2)
        .take(1 << 16)
        .position(|pair| pair == b"\r\n")
    else {
        if bytes.len() > 1 << 16 {
            bail!("the server sent a line without an end");
        }
        return Ok(None);
    };
    let (head, after) = (&bytes[1.min(end)..end], end + 2);
    match bytes[0] {
        b'+' | b':' => Ok(Some((Reply::Line, after))),
        b'-' => Ok(Some((Reply::Error(head), after))),
        b'_' => Ok(Some((Reply::Nil, after))),
        b'$' if head == b"-1" => Ok(Some((Reply::Nil, after))),
        b'$' => {
            let text = std::str::from_utf8(head).unwrap_or("");
            let Ok(len) = text.parse::<usize>() else {
                bail!("the server sent a length of {text:?}");
            };
            let whole = bytes.get(after..after + len + 2);
            Ok(whole.map(|body| (Reply::Bulk(&body[..len]), after + len + 2)))
        }
        other => bail!("the server sent {:?}, which is no reply", char::from(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_counts_once_all_of_it_is_there() {
        let all: [(&[u8], Reply<'_>); 6] = [
            (b"+OK\r\n", Reply::Line),
            (b":12\r\n", Reply::Line),
            (b"-ERR no\r\n", Reply::Error(b"ERR no")),
            (b"$-1\r\n", Reply::Nil),
            (b"_\r\n", Reply::Nil),
            (b"$5\r\na\r\nbc\r\n", Reply::Bulk(b"a\r\nbc")),
        ];
        for (bytes, reply) in all {
            for cut in 0..bytes.len() {
                assert!(parse(&bytes[..cut]).unwrap().is_none());
            }
            assert_eq!(parse(bytes).unwrap(), Some((reply, bytes.len())));
        }
        assert!(parse(b"GET\r\n").is_err());
        assert!(parse(b"$x\r\n").is_err());
    }
}
