//! Splits a buffer of this server's replies into single replies.

/// A whole reply or message, as the client gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a>(pub &'a [u8]);

impl<'a> Frame<'a> {
    /// Takes the first frame of `bytes`. Returns `None` if the frame's end is missing or the bytes are no frame.
    pub(crate) fn first(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let mut at = 0;
        // The number of values that are still to come.
        let mut left = 1_usize;
        while left > 0 {
            let rest = bytes.get(at..)?;
            let line = line(rest)?;
            at = at.checked_add(line.len() + 2)?;
            left -= 1;
            let (kind, text) = line.split_first()?;
            let more = match kind {
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => 0,
                b'$' | b'=' | b'!' => {
                    at = at.saturating_add(count(text)?.map_or(0, |bytes| bytes.saturating_add(2)));
                    0
                }
                b'*' | b'~' | b'>' => count(text)?.unwrap_or(0),
                b'%' => count(text)?.unwrap_or(0).saturating_mul(2),
                _ => return None,
            };
            left = left.saturating_add(more);
        }
        debug_assert!(at > 2, "a value has a kind and an end");
        bytes.get(..at).map(Frame)
    }

    /// Returns the first text in an array or a message. In a message this text names the kind.
    pub(crate) fn name(&self) -> Option<&'a [u8]> {
        let head = line(self.0)?;
        let first = self.0.get(head.len() + 2..)?;
        let size = line(first)?;
        let bytes = count(size.strip_prefix(b"$")?)??;
        first.get(size.len() + 2..)?.get(..bytes)
    }
}

/// Returns the bytes before the first line end.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    bytes.get(..end)
}

/// Parses a size. `-1` means that the value is absent.
fn count(text: &[u8]) -> Option<Option<usize>> {
    let text = std::str::from_utf8(text).ok()?;
    match text {
        "-1" => Some(None),
        _ => text.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_every_kind_end_where_the_next_one_begins() {
        let frames: [&[u8]; 14] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":7\r\n",
            b"_\r\n",
            b"#t\r\n",
            b",1.5\r\n",
            b"(12345678901234567890\r\n",
            b"$4\r\na\r\nb\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n*1\r\n$1\r\nx\r\n:1\r\n",
            b"%1\r\n+k\r\n~1\r\n$0\r\n\r\n",
            b">2\r\n$10\r\ninvalidate\r\n_\r\n",
        ];
        let all = frames.concat();
        let mut rest = all.as_slice();
        for frame in frames {
            let found = Frame::first(rest).expect("a frame");
            assert_eq!(found.0, frame);
            rest = &rest[frame.len()..];
        }
        assert!(rest.is_empty());
        assert_eq!(Frame(frames[13]).name(), Some(&b"invalidate"[..]));
        assert_eq!(Frame(frames[0]).name(), None);
    }

    #[test]
    fn what_is_cut_off_or_strange_is_no_frame() {
        let whole = b"*2\r\n$3\r\nabc\r\n%1\r\n+k\r\n:1\r\n";
        for end in 0..whole.len() {
            assert_eq!(Frame::first(&whole[..end]), None, "{end}");
        }
        for strange in [
            &b"hello\r\n"[..],
            b"\r\n",
            b"$x\r\n",
            b"*-7\r\n",
            b"$18446744073709551615\r\n",
        ] {
            assert_eq!(Frame::first(strange), None);
        }
    }
}
