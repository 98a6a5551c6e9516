//! Replies, appended to the connection's buffer. RESP3 adds nulls, maps, sets and text that
//! names its format; a RESP2 client gets the nearest older form.

use crate::engine::types::score;
use crate::number::{push_i64, push_u64};

/// The longest head of an aggregate, bytes.
const HEAD_ROOM: usize = 24;

/// Returns a buffer for a long reply. The reply's head is known only at the end. The buffer begins with room for the
/// head, so the reply need not be copied.
pub(crate) fn room_for_head() -> Vec<u8> {
    vec![0; HEAD_ROOM]
}

/// Appends replies in one version of the protocol.
#[derive(Debug)]
pub(crate) struct Out<'a> {
    /// The buffer; replies are only ever appended, or cut off as a whole.
    pub buf: &'a mut Vec<u8>,
    /// True if the client speaks RESP3.
    pub resp3: bool,
}

impl<'a> Out<'a> {
    /// Returns an encoder that appends to `buf`.
    pub(crate) fn new(buf: &'a mut Vec<u8>, resp3: bool) -> Self {
        Out { buf, resp3 }
    }

    /// Appends `+OK`.
    pub(crate) fn ok(&mut self) {
        self.buf.extend_from_slice(b"+OK\r\n");
    }

    /// Appends a status line. The text holds no line ends.
    pub(crate) fn simple(&mut self, text: &str) {
        self.buf.push(b'+');
        self.buf.extend_from_slice(text.as_bytes());
        self.end();
    }

    /// Appends an error line. The text begins with a code such as `ERR`. Line ends become blanks.
    pub(crate) fn error(&mut self, text: &str) {
        self.buf.push(b'-');
        self.buf.extend(
            text.bytes()
                .map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { b }),
        );
        self.end();
    }

    /// Appends an integer.
    pub(crate) fn integer(&mut self, value: i64) {
        if (0..10).contains(&value) {
            self.buf
                .extend_from_slice(&[b':', b'0' + value.to_le_bytes()[0], b'\r', b'\n']);
            return;
        }
        self.buf.push(b':');
        push_i64(self.buf, value);
        self.end();
    }

    /// Appends a count. A count above the largest signed integer is shown as that integer.
    pub(crate) fn count(&mut self, value: u64) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Appends a string of any bytes.
    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.bulk_head(bytes.len());
        self.buf.extend_from_slice(bytes);
        self.end();
    }

    /// Appends the head of a string. The caller appends its `len` bytes next, and then
    /// [`end`](Self::end).
    pub(crate) fn bulk_head(&mut self, len: usize) {
        self.head(b'$', len);
    }

    /// Appends the line end after a string.
    pub(crate) fn end(&mut self) {
        self.buf.extend_from_slice(b"\r\n");
    }

    /// Appends a null.
    pub(crate) fn null(&mut self) {
        self.buf
            .extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Appends the null that replaces an array.
    pub(crate) fn null_array(&mut self) {
        self.buf
            .extend_from_slice(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Appends the head of a push of `len` replies. A push is a message that answers no request.
    pub(crate) fn push(&mut self, len: usize) {
        self.head(if self.resp3 { b'>' } else { b'*' }, len);
    }

    /// Appends a score.
    pub(crate) fn double(&mut self, value: f64) {
        let mut text = Vec::with_capacity(24);
        score::push(&mut text, value);
        self.number(&text);
    }

    /// Appends a number that is not an integer. `digits` is the number as decimal text.
    pub(crate) fn number(&mut self, digits: &[u8]) {
        if !self.resp3 {
            return self.bulk(digits);
        }
        debug_assert!(!digits.is_empty(), "a number has a digit");
        self.buf.push(b',');
        self.buf.extend_from_slice(digits);
        self.end();
    }

    /// Appends the head of an array of `len` replies.
    pub(crate) fn array(&mut self, len: usize) {
        self.head(b'*', len);
    }

    /// Appends the head of a map of `pairs` keys and values.
    pub(crate) fn map(&mut self, pairs: usize) {
        if self.resp3 {
            self.head(b'%', pairs)
        } else {
            self.head(b'*', pairs * 2)
        }
    }

    /// Appends lines for people: the reply to a subcommand HELP.
    pub(crate) fn help(&mut self, lines: &[&str]) {
        self.array(lines.len());
        lines.iter().for_each(|line| self.simple(line));
    }

    /// Appends the head of a set.
    pub(crate) fn set(&mut self, len: usize) {
        self.head(if self.resp3 { b'~' } else { b'*' }, len);
    }

    /// Appends a finished reply. If the buffer is empty, it may take over a long reply without copying.
    pub(crate) fn append(&mut self, mut reply: Vec<u8>) {
        if self.buf.is_empty() && self.buf.capacity() < reply.len() {
            *self.buf = reply;
        } else {
            self.buf.append(&mut reply);
        }
    }

    /// Appends the head that `write` makes, and then `reply`. The caller must have built `reply` in a buffer from
    /// [`room_for_head`].
    pub(crate) fn append_under(&mut self, mut reply: Vec<u8>, write: impl FnOnce(&mut Out<'_>)) {
        let mut head = Vec::with_capacity(HEAD_ROOM);
        write(&mut Out::new(&mut head, self.resp3));
        debug_assert!(head.len() <= HEAD_ROOM, "the room is enough for each head");
        debug_assert!(
            reply.len() >= HEAD_ROOM,
            "the reply has left room for its head"
        );
        let begin = HEAD_ROOM.saturating_sub(head.len());
        reply.splice(begin..HEAD_ROOM, head);
        reply.drain(..begin);
        self.append(reply);
    }

    /// Appends plain text for people.
    pub(crate) fn text(&mut self, text: &str) {
        if !self.resp3 {
            return self.bulk(text.as_bytes());
        }
        self.head(b'=', text.len() + 4);
        self.buf.extend_from_slice(b"txt:");
        self.buf.extend_from_slice(text.as_bytes());
        self.end();
    }

    fn head(&mut self, kind: u8, len: usize) {
        self.buf.push(kind);
        push_u64(self.buf, u64::try_from(len).unwrap_or(u64::MAX));
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(resp3: bool) -> String {
        let mut buf = Vec::new();
        let mut out = Out::new(&mut buf, resp3);
        out.ok();
        out.simple("PONG");
        out.error("ERR two\r\nlines");
        out.integer(7);
        out.integer(-42);
        out.count(1000);
        out.bulk(b"a\0b");
        out.bulk(b"");
        out.null();
        out.array(2);
        out.map(1);
        out.set(3);
        out.text("hi");
        String::from_utf8(buf).expect("ASCII")
    }

    #[test]
    fn replies_of_version_2_are_byte_for_byte_these() {
        assert_eq!(
            golden(false),
            "+OK\r\n+PONG\r\n-ERR two  lines\r\n:7\r\n:-42\r\n:1000\r\n$3\r\na\0b\r\n$0\r\n\r\n\
             $-1\r\n*2\r\n*2\r\n*3\r\n$2\r\nhi\r\n"
        );
    }

    #[test]
    fn replies_of_version_3_are_byte_for_byte_these() {
        assert_eq!(
            golden(true),
            "+OK\r\n+PONG\r\n-ERR two  lines\r\n:7\r\n:-42\r\n:1000\r\n$3\r\na\0b\r\n$0\r\n\r\n\
             _\r\n*2\r\n%1\r\n~3\r\n=6\r\ntxt:hi\r\n"
        );
    }
}
