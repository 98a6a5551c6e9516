//! The replies of one connection, each held back until what it rests on is durable.
//!
//! Every reply carries the epoch of its transaction, also one that only read: the value may
//! have been pre-committed by somebody else. Replies leave in the order of the requests, so what
//! counts is the *running maximum* of the epochs; the queue therefore holds one entry per
//! distinct epoch, and its length is bounded by the epochs in flight, not by the pipeline.
//!
//! Invariant: `sent <= released <= buf.len()`, and no byte beyond `released` is ever written.

use perdura_base::Epoch;
use std::collections::VecDeque;
use std::io::{ErrorKind, Result, Write};

/// An emptied buffer above this is given back to the allocator, bytes.
const KEEP_BYTES_MAX: usize = 256 * 1024;
/// Sent bytes at the front are cut off once there are this many.
const TRIM_BYTES: usize = 256 * 1024;

/// What a flush reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing is left that may be sent.
    Drained,
    /// The peer takes no more for now; the poller will tell.
    Full,
}

#[derive(Debug)]
struct Held {
    epoch: Epoch,
    end: usize,
}

/// A buffer of replies and the marks up to which they may leave.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    /// Replies are appended here; [`seal`](Self::seal) says on what they rest.
    pub buf: Vec<u8>,
    sent: usize,
    released: usize,
    held: VecDeque<Held>,
}

impl Replies {
    /// Declares that the bytes appended since the last call rest on `epoch`.
    pub(crate) fn seal(&mut self, epoch: Epoch, durable: Epoch) {
        let end = self.buf.len();
        match self.held.back_mut() {
            None if epoch <= durable => self.released = end,
            Some(last) if epoch <= last.epoch => last.end = end,
            _ => self.held.push_back(Held { epoch, end }),
        }
    }

    /// Releases what `durable` covers.
    pub(crate) fn release(&mut self, durable: Epoch) {
        while let Some(first) = self.held.front() {
            if first.epoch > durable {
                break;
            }
            self.released = first.end;
            self.held.pop_front();
        }
    }

    /// Whether some reply waits for the disk.
    pub(crate) fn waits(&self) -> bool {
        !self.held.is_empty()
    }

    /// Bytes not yet taken by the peer.
    pub(crate) fn unsent(&self) -> usize {
        self.buf.len() - self.sent
    }

    /// Whether bytes may be sent now.
    pub(crate) fn sendable(&self) -> bool {
        self.sent < self.released
    }

    /// Drops the replies that wait, for good, and ends with an error instead.
    pub(crate) fn abandon(&mut self, error: &str) {
        self.held.clear();
        self.buf.truncate(self.released);
        super::resp::reply::Out::new(&mut self.buf, false).error(error);
        self.released = self.buf.len();
    }

    /// Writes what is released.
    pub(crate) fn flush(&mut self, to: &mut impl Write) -> Result<Flushed> {
        while self.sent < self.released {
            match to.write(&self.buf[self.sent..self.released]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.trim();
                    return Ok(Flushed::Full);
                }
                Err(e) => return Err(e),
            }
        }
        self.trim();
        match to.flush() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(Flushed::Full),
            Err(e) => Err(e),
            Ok(()) => Ok(Flushed::Drained),
        }
    }

    fn trim(&mut self) {
        // A reply that was taken back leaves its mark, at the end of what has been sent.
        if self.sent == self.buf.len() && self.held.is_empty() {
            self.buf.clear();
            if self.buf.capacity() > KEEP_BYTES_MAX {
                self.buf = Vec::new();
            }
            self.sent = 0;
            self.released = 0;
        } else if self.sent > TRIM_BYTES && self.sent > self.buf.len() / 2 {
            self.buf.drain(..self.sent);
            for held in &mut self.held {
                held.end -= self.sent;
            }
            self.released -= self.sent;
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(replies: &mut Replies, text: &[u8], epoch: u64, durable: u64) {
        replies.buf.extend_from_slice(text);
        replies.seal(Epoch(epoch), Epoch(durable));
    }

    fn sent(replies: &mut Replies) -> Vec<u8> {
        let mut out = Vec::new();
        assert_eq!(replies.flush(&mut out).expect("a vector"), Flushed::Drained);
        out
    }

    #[test]
    fn a_reply_leaves_only_when_its_epoch_is_durable() {
        let mut replies = Replies::default();
        push(&mut replies, b"a", 0, 4);
        push(&mut replies, b"b", 5, 4);
        push(&mut replies, b"c", 0, 4);
        push(&mut replies, b"d", 7, 4);
        push(&mut replies, b"e", 6, 4);
        assert_eq!(sent(&mut replies), b"a");
        replies.release(Epoch(5));
        assert_eq!(sent(&mut replies), b"bc", "a later reply never overtakes");
        replies.release(Epoch(6));
        assert_eq!(sent(&mut replies), b"");
        assert!(replies.waits());
        replies.release(Epoch(7));
        assert_eq!(sent(&mut replies), b"de");
        assert!(!replies.waits());
        assert_eq!(replies.unsent(), 0);
    }

    #[test]
    fn a_reply_that_was_taken_back_still_holds_back_the_next() {
        let mut replies = Replies::default();
        push(&mut replies, b"a", 1, 1);
        push(&mut replies, b"", 2, 1);
        assert_eq!(sent(&mut replies), b"a");
        assert!(replies.waits());
        push(&mut replies, b"b", 0, 1);
        assert_eq!(sent(&mut replies), b"");
        replies.release(Epoch(2));
        assert_eq!(sent(&mut replies), b"b");
        assert_eq!(replies.unsent(), 0);
    }

    #[test]
    fn a_stopped_database_never_acknowledges_what_waits() {
        let mut replies = Replies::default();
        push(&mut replies, b"+OK\r\n", 1, 1);
        push(&mut replies, b"+OK\r\n", 2, 1);
        replies.abandon("ERR stopped");
        assert_eq!(sent(&mut replies), b"+OK\r\n-ERR stopped\r\n");
    }

    #[test]
    fn cutting_the_sent_front_keeps_the_marks_right() {
        struct Slow(Vec<u8>, usize);
        impl Write for Slow {
            fn write(&mut self, bytes: &[u8]) -> Result<usize> {
                if self.1 == 0 {
                    return Err(ErrorKind::WouldBlock.into());
                }
                let taken = bytes.len().min(self.1);
                self.1 -= taken;
                self.0.extend_from_slice(&bytes[..taken]);
                Ok(taken)
            }
            fn flush(&mut self) -> Result<()> {
                Ok(())
            }
        }
        let mut replies = Replies::default();
        let body: Vec<u8> = (0..600_000u32).map(|i| i.to_le_bytes()[0]).collect();
        push(&mut replies, &body, 1, 1);
        push(&mut replies, b"tail", 2, 1);
        let mut peer = Slow(Vec::new(), 500_000);
        assert_eq!(replies.flush(&mut peer).expect("slow"), Flushed::Full);
        replies.release(Epoch(2));
        peer.1 = usize::MAX;
        assert_eq!(replies.flush(&mut peer).expect("fast"), Flushed::Drained);
        assert_eq!(peer.0, [body.as_slice(), b"tail"].concat());
    }
}
