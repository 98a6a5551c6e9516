//! Recognizes other protocols at this port by their first line.
//!
//! A web page can make any browser that reaches this port send an HTTP request to it. The page chooses the request's
//! body. A server that answered each line with an error and continued would run this body. So if the first line is of a
//! foreign protocol, the connection is closed before the rest is parsed.
//!
//! A page can also influence parts of binary messages: the session ticket and the server name in a
//! ClientHello of TLS, and the user name in a STUN message. In both messages, a zero byte
//! comes before the first line end that the page could insert. So a line with a zero byte is refused.
//! A client that needs a zero byte in an argument must use the array form.

/// Another protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// An HTTP request.
    Http,
    /// A TLS handshake on a port without TLS.
    Tls,
    /// A protocol that is not made of text.
    Binary,
}

/// The first byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

impl Foreign {
    /// Recognizes a foreign protocol by the first byte of a request that is not an array.
    pub(crate) fn by_first_byte(byte: u8) -> Option<Foreign> {
        match byte {
            TLS_HANDSHAKE => Some(Foreign::Tls),
            0 => Some(Foreign::Binary),
            _ => None,
        }
    }

    /// Recognizes a foreign protocol by a whole line that does not begin an array. `line` excludes the line end. A line
    /// of at least three words is a request line if its last word is an HTTP version: `POST / HTTP/1.1`.
    pub(crate) fn by_line(line: &[u8]) -> Option<Foreign> {
        if line.contains(&0) {
            return Some(Foreign::Binary);
        }
        let mut words = line
            .split(|b| matches!(b, b' ' | b'\t'))
            .filter(|word| !word.is_empty());
        let is_http = words.next_back().is_some_and(is_http_version);
        (is_http && words.count() >= 2).then_some(Foreign::Http)
    }

    /// Recognizes HTTP by a command's name, `POST` or `Host:`. Redis also refuses these two names.
    pub(crate) fn by_name(name: &[u8]) -> Option<Foreign> {
        let is_http = name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:");
        is_http.then_some(Foreign::Http)
    }

    /// Returns a description for people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Foreign::Http => "an HTTP request",
            Foreign::Tls => "a TLS handshake, and this port has no TLS",
            Foreign::Binary => "a zero byte in a line, which no client of Redis sends",
        }
    }
}

fn is_http_version(word: &[u8]) -> bool {
    word.strip_prefix(b"HTTP/").is_some_and(|version| {
        version.first().is_some_and(u8::is_ascii_digit)
            && version.iter().all(|b| b.is_ascii_digit() || *b == b'.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_line_is_known_by_its_last_word() {
        for line in [
            &b"GET / HTTP/1.1"[..],
            b"POST /path?a=b HTTP/1.0",
            b"PRI * HTTP/2.0",
            b"OPTIONS * HTTP/1.1",
            b"CONNECT example.org:443 HTTP/1.1",
            b"FLUSHALL / HTTP/1.1",
            b"get  /\tHTTP/3",
            b"POST /'a HTTP/1.1",
        ] {
            let found = Foreign::by_line(line);
            assert_eq!(found, Some(Foreign::Http), "{}", line.escape_ascii());
        }
        for line in [
            &b"GET HTTP/1.1"[..],
            b"GET key",
            b"SET key \"HTTP/1.1\"",
            b"SET HTTP/1.1 value",
            b"SET key HTTP/",
            b"SET key HTTP/x",
            b"SET key xHTTP/1.1",
            b"",
            b"  ",
        ] {
            assert_eq!(Foreign::by_line(line), None, "{}", line.escape_ascii());
        }
        assert_eq!(Foreign::by_line(b"SET a \0b"), Some(Foreign::Binary));
    }
}
