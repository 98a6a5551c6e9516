//! Bytes from a client that have not run yet.
//!
//! They are the start of an unfinished request, or whole requests that may not run yet. A request may not run while the
//! client leaves replies unread, or waits for the log or another client.
//!
//! Invariant: `begin <= bytes.len()`, and `begin` is 0 if nothing is left.

/// A buffer that is consumed from the front without moving the remaining bytes each time.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// The index of the first byte that has not been consumed.
    begin: usize,
}

/// An emptied buffer of at most this many bytes is kept. A larger buffer is freed.
const KEEP_BYTES_MAX: usize = 64 * 1024;

impl Input {
    /// Returns the bytes that are left.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }

    /// Returns the number of bytes that are left.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.begin
    }

    /// Returns whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of allocated bytes.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends `bytes`. If the buffer must grow, its capacity becomes `wanted`, or more if `bytes` needs more.
    pub(super) fn push(&mut self, bytes: &[u8], wanted: usize) {
        let more = bytes.len();
        if self.bytes.capacity() - self.bytes.len() < more {
            self.cut();
            let wanted = wanted.saturating_sub(self.bytes.len());
            if wanted > more {
                self.bytes.reserve_exact(wanted);
            } else {
                self.bytes.reserve(more);
            }
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends bytes, and reserves no room for more.
    pub(super) fn push_exact(&mut self, bytes: &[u8]) {
        self.cut();
        debug_assert_eq!(self.begin, 0, "what was consumed is gone");
        self.bytes.reserve_exact(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes bytes from the front. On average a byte is moved at most once, even if each call removes few bytes.
    pub(super) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.len(), "no more is consumed than there is");
        self.begin += bytes;
        if self.begin == self.bytes.len() {
            self.begin = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEEP_BYTES_MAX {
                self.bytes = Vec::new();
            }
        } else if self.begin > self.bytes.len() / 2 {
            self.cut();
            if self.bytes.capacity() / 4 > self.bytes.len().max(KEEP_BYTES_MAX) {
                self.bytes.shrink_to(2 * self.bytes.len());
            }
        }
    }

    /// Removes the first `to` bytes. The last request in them is the range `from..to`. Returns a buffer with this
    /// request, and the request's start index in that buffer.
    pub(super) fn split(&mut self, from: usize, to: usize) -> (Vec<u8>, usize) {
        debug_assert!(
            from <= to && to <= self.len(),
            "the request is in the input"
        );
        if self.len() - to > to - from {
            let request = self.rest()[from..to].to_vec();
            self.consume(to);
            return (request, 0);
        }
        let rest = self.bytes.split_off(self.begin + to);
        let request = std::mem::replace(&mut self.bytes, rest);
        let begin = std::mem::take(&mut self.begin) + from;
        (request, begin)
    }

    /// Frees an empty buffer.
    pub(super) fn rest_if_empty(&mut self) {
        if self.is_empty() {
            self.bytes = Vec::new();
        }
    }

    fn cut(&mut self) {
        let begin = std::mem::take(&mut self.begin);
        debug_assert!(
            begin <= self.bytes.len(),
            "no more was consumed than there is"
        );
        self.bytes.drain(..begin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_input_that_is_consumed_in_small_steps_is_seldom_moved_and_gives_memory_back() {
        let mut input = Input::default();
        let all: Vec<u8> = (0..1_000_000_u32).map(|i| i.to_le_bytes()[1]).collect();
        for part in all.chunks(30_000) {
            input.push(part, 0);
        }
        let (mut at, mut moved) = (0, 0);
        while !input.is_empty() {
            assert_eq!(input.rest().first(), all.get(at));
            let before = input.begin;
            let step = input.len().min(17);
            input.consume(step);
            at += step;
            if input.begin < before {
                moved += input.len();
            }
        }
        assert_eq!(at, all.len());
        assert!(moved <= all.len(), "{moved} bytes were moved");
        assert_eq!(input.capacity(), 0);
    }

    #[test]
    fn a_request_leaves_with_the_shorter_part_copied() {
        let mut input = Input::default();
        input.push(b"..SET k v|rest of the pipeline", 0);
        input.consume(2);
        assert_eq!(input.split(0, 8), (b"SET k v|".to_vec(), 0));
        assert_eq!(input.rest(), b"rest of the pipeline");
        let (request, begin) = input.split(5, 19);
        assert_eq!(&request[begin..], b"of the pipelin");
        assert_eq!(input.rest(), b"e");
    }
}
