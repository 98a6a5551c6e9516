//! The replies of one connection. Each is held until its epoch is as durable as the client wants.
//!
//! Every reply carries the epoch of its transaction, even if the transaction only read. The transaction may have read a
//! value of a committed transaction that is not durable yet. Replies leave in the order of the requests, so the
//! *running maximum* of the epochs counts. The queue therefore has one entry per distinct epoch. Its length is bounded
//! by the number of epochs that are not durable yet, not by the pipeline.
//!
//! Invariant: `sent <= released <= buf.len()`, and no byte beyond `released` is ever written.

use crate::engine::{Durability, Epoch, Reached};
use crate::resp::frames::Frame;
use crate::stalled::{Fate, Listener, StuckRungs};
use std::collections::VecDeque;
use std::io::{ErrorKind, Result, Write};

/// The maximum size, in bytes, of an emptied buffer that is kept. A larger buffer is freed.
const KEEP_BYTES_MAX: usize = 256 * 1024;
/// Sent bytes are cut off the front of the buffer once they are more than this number and more than half of the
/// buffer.
const TRIM_BYTES: usize = 256 * 1024;

/// The result of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing is left that may be sent.
    Drained,
    /// The peer takes no more for now. The poller reports when it takes more.
    Full,
}

/// The condition under which a reply may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rest {
    /// The newest epoch that the reply shows.
    pub epoch: Epoch,
    /// The durability that the epoch needs. At `mem` a reply waits only while the log lags too far: see
    /// [`crate::state::State::mem_in_time`].
    pub durability: Durability,
}

impl Rest {
    /// The condition of a reply that shows no write.
    pub(crate) const NOTHING: Self = Rest {
        epoch: Epoch(0),
        durability: Durability::Disk,
    };

    /// Returns whether the epoch has reached the rung of `durability`. `mem` has no rung, so the rung `mirror`
    /// decides.
    fn is_durable(self, reached: Reached) -> bool {
        self.epoch <= reached.at(self.durability.rung())
    }

    fn is_firm(self) -> bool {
        self.durability.is_firm()
    }
}

#[derive(Debug)]
struct Held {
    rest: Rest,
    end: usize,
    /// True if the entry has only messages. No request waits for them. A reply after them gets a separate entry.
    is_messages: bool,
}

impl Held {
    /// Returns whether a later reply with the condition `rest` may join this entry. The reply must be free to leave
    /// together with this entry.
    fn covers(&self, rest: Rest, is_durable: bool) -> bool {
        if self.is_messages {
            return false;
        }
        if is_durable {
            return true;
        }
        let same_rung = rest.durability.rung() == self.rest.durability.rung();
        same_rung && rest.epoch <= self.rest.epoch && (self.rest.is_firm() || !rest.is_firm())
    }
}

/// A buffer of replies. It has three parts: bytes already sent, then bytes that may be sent, then bytes that wait.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    /// The bytes of the replies. [`seal`](Self::seal) sets the condition under which they leave.
    pub buf: Vec<u8>,
    sent: usize,
    released: usize,
    held: VecDeque<Held>,
}

impl Replies {
    /// Sets the condition under which the bytes appended since the last call may be sent.
    #[inline]
    pub(crate) fn seal(&mut self, rest: Rest, reached: Reached) {
        let end = self.buf.len();
        let is_durable = rest.is_durable(reached);
        match self.held.back_mut() {
            None if is_durable => self.released = end,
            Some(last) if last.covers(rest, is_durable) => last.end = end,
            _ => self.held.push_back(Held {
                rest,
                end,
                is_messages: false,
            }),
        }
        debug_assert!(
            self.held.back().is_none_or(|last| last.end == end),
            "what is held ends with what was written"
        );
        debug_assert!(
            !self.held.is_empty() || self.released == end,
            "what is not held may leave"
        );
    }

    /// Puts `error` in place of each reply that waits for a stuck rung. Messages between these replies stay held, and
    /// are moved behind the errors.
    pub(crate) fn give_up(
        &mut self,
        stuck: StuckRungs,
        listener: Listener,
        reached: Reached,
        error: &str,
    ) {
        debug_assert!(self.sent <= self.released, "only what may leave was sent");
        let waiting = self.buf.split_off(self.released);
        let base = self.released;
        let (mut at, mut messages, mut left) = (0, Vec::new(), VecDeque::new());
        for held in std::mem::take(&mut self.held) {
            if !left.is_empty() {
                left.push_back(held);
                continue;
            }
            let part = &waiting[at..held.end - base];
            if held.rest.is_durable(reached) {
                self.buf.extend_from_slice(part);
            } else if stuck.has(held.rest.durability.rung())
                && let Some(kept) = self.replace(part, listener, error)
            {
                messages.push((held.rest, kept));
            } else {
                left.push_back(held);
                continue;
            }
            at += part.len();
        }
        self.released = self.buf.len();
        for (rest, kept) in messages.into_iter().filter(|(_, kept)| !kept.is_empty()) {
            self.buf.extend_from_slice(&kept);
            self.held.push_back(Held {
                rest,
                end: self.buf.len(),
                is_messages: true,
            });
        }
        let moved = self.buf.len();
        self.buf.extend_from_slice(&waiting[at..]);
        self.held.extend(left.into_iter().map(|held| Held {
            end: held.end - base - at + moved,
            ..held
        }));
        debug_assert!(
            self.held.iter().is_sorted_by_key(|held| held.end),
            "what is held follows one another"
        );
        debug_assert!(
            self.held
                .back()
                .is_none_or(|last| last.end == self.buf.len()),
            "nothing stands behind what is held"
        );
    }

    /// Appends the frames of `part` that may leave. Appends `error` in place of each reply that must wait. Returns the
    /// messages of `part` that must wait. `None`: `part` is not made of whole frames.
    fn replace(&mut self, part: &[u8], listener: Listener, error: &str) -> Option<Vec<u8>> {
        let (mut leaving, mut kept, mut rest) = (Vec::new(), Vec::new(), part);
        while !rest.is_empty() {
            let frame = Frame::first(rest)?;
            match listener.fate(frame) {
                Fate::Leaves => leaving.extend_from_slice(frame.0),
                Fate::Replaced => super::resp::reply::Out::new(&mut leaving, false).error(error),
                Fate::Waits => kept.extend_from_slice(frame.0),
            }
            rest = &rest[frame.0.len()..];
        }
        self.buf.append(&mut leaving);
        Some(kept)
    }

    /// Releases each reply whose rung has reached the reply's epoch. If `in_time` is true, also releases the replies
    /// that need not be durable.
    pub(crate) fn release(&mut self, reached: Reached, in_time: bool) {
        while let Some(first) = self.held.front() {
            if !first.rest.is_durable(reached) && (first.rest.is_firm() || !in_time) {
                break;
            }
            debug_assert!(self.released <= first.end, "replies leave in their order");
            self.released = first.end;
            self.held.pop_front();
        }
    }

    /// Returns whether the first waiting reply may leave only when a rung has reached its epoch.
    pub(crate) fn waits_firmly(&self) -> bool {
        self.held.front().is_some_and(|first| first.rest.is_firm())
    }

    /// Returns the durability that the first waiting reply needs. `None`: no reply waits.
    #[cfg(test)]
    pub(crate) fn waits_for(&self) -> Option<Durability> {
        self.held.front().map(|first| first.rest.durability)
    }

    /// Returns whether a reply waits for the log.
    pub(crate) fn waits(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the number of bytes that the peer has not taken.
    pub(crate) fn unsent(&self) -> usize {
        self.buf.len() - self.sent
    }

    /// Returns whether bytes may be sent now.
    pub(crate) fn sendable(&self) -> bool {
        self.sent < self.released
    }

    /// Drops the waiting replies, and appends one error in their place.
    pub(crate) fn abandon(&mut self, error: &str) {
        self.held.clear();
        self.buf.truncate(self.released);
        super::resp::reply::Out::new(&mut self.buf, false).error(error);
        self.released = self.buf.len();
    }

    /// Writes the released bytes.
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
        // If a reply was removed again, `held` may still have an entry for it that ends at the end of the sent bytes.
        // Then the buffer is not cleared.
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
    use crate::engine::Rung;

    fn rest(durability: Durability, epoch: u64) -> Rest {
        Rest {
            epoch: Epoch(epoch),
            durability,
        }
    }

    fn push(replies: &mut Replies, text: &[u8], epoch: u64, durable: u64) {
        replies.buf.extend_from_slice(text);
        replies.seal(rest(Durability::Disk, epoch), disk(durable));
    }

    fn disk(epoch: u64) -> Reached {
        Reached::new(|_| Epoch(epoch))
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
        replies.release(disk(5), false);
        assert_eq!(sent(&mut replies), b"bc", "a later reply never overtakes");
        replies.release(disk(6), false);
        assert_eq!(sent(&mut replies), b"");
        assert!(replies.waits());
        replies.release(disk(7), false);
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
        replies.release(disk(2), false);
        assert_eq!(sent(&mut replies), b"b");
        assert_eq!(replies.unsent(), 0);
    }

    #[test]
    fn a_reply_that_need_not_be_durable_leaves_while_the_disk_keeps_up_and_overtakes_nothing() {
        let mut replies = Replies::default();
        let soft = |replies: &mut Replies, text: &[u8], epoch| {
            replies.buf.extend_from_slice(text);
            replies.seal(rest(Durability::Mem, epoch), disk(1));
        };
        soft(&mut replies, b"a", 2);
        soft(&mut replies, b"b", 1);
        assert!(!replies.waits_firmly());
        replies.release(disk(1), false);
        assert_eq!(sent(&mut replies), b"", "the disk is too far behind");
        replies.release(disk(1), true);
        assert_eq!(sent(&mut replies), b"ab");
        soft(&mut replies, b"c", 3);
        push(&mut replies, b"d", 3, 1);
        soft(&mut replies, b"e", 3);
        replies.release(disk(1), true);
        assert_eq!(sent(&mut replies), b"c", "the next one must be durable");
        assert!(replies.waits_firmly());
        replies.release(disk(3), false);
        assert_eq!(sent(&mut replies), b"de");
    }

    #[test]
    fn each_reply_waits_for_its_rung_and_overtakes_no_other() {
        let reached = |disk, mirror| {
            Reached::new(|rung| match rung {
                Rung::Disk => Epoch(disk),
                Rung::Mirror => Epoch(mirror),
            })
        };
        let mut replies = Replies::default();
        for (text, durability) in [
            (b"m", Durability::Mirror),
            (b"d", Durability::Disk),
            (b"n", Durability::Mirror),
            (b"s", Durability::Mem),
        ] {
            replies.buf.extend_from_slice(text);
            replies.seal(rest(durability, 5), reached(4, 4));
        }
        replies.release(reached(5, 4), true);
        assert_eq!(sent(&mut replies), b"", "the mirror is behind the disk");
        replies.release(reached(4, 5), true);
        assert_eq!(sent(&mut replies), b"m");
        assert_eq!(replies.waits_for(), Some(Durability::Disk));
        replies.release(reached(5, 5), false);
        assert_eq!(sent(&mut replies), b"dns");
    }

    #[test]
    fn a_stopped_database_never_acknowledges_what_waits() {
        let mut replies = Replies::default();
        push(&mut replies, b"+OK\r\n", 1, 1);
        push(&mut replies, b"+OK\r\n", 2, 1);
        replies.abandon("ERR stopped");
        assert_eq!(sent(&mut replies), b"+OK\r\n-ERR stopped\r\n");
    }

    const USUAL: Listener = Listener {
        subscribes: false,
        monitors: false,
    };

    /// Returns the rungs that are stuck after a long stall of the log. The disk is stuck. The mirror is stuck only if
    /// `both` is true.
    fn stuck(both: bool) -> StuckRungs {
        let mut stalled = crate::stalled::Stalled::default();
        let now = std::time::Instant::now();
        let later = now + std::time::Duration::from_secs(9);
        let reached = |mirror| {
            Reached::new(|rung| match rung {
                Rung::Disk => Epoch(0),
                Rung::Mirror => Epoch(mirror),
            })
        };
        assert!(stalled.look(true, reached(0), now).is_empty());
        stalled.look(true, reached(u64::from(!both)), later)
    }

    #[test]
    fn replies_that_wait_for_a_stuck_log_become_errors_in_their_order() {
        let mut replies = Replies::default();
        push(&mut replies, b"+sent\r\n", 1, 1);
        push(&mut replies, b"+OK\r\n", 2, 1);
        push(&mut replies, b"*2\r\n:1\r\n:2\r\n", 2, 1);
        push(&mut replies, b"-MISCONF refused\r\n", 0, 1);
        push(&mut replies, b"$1\r\nv\r\n", 3, 1);
        replies.give_up(stuck(true), USUAL, disk(1), "UNKNOWN u");
        let error = "-UNKNOWN u\r\n";
        let expected = format!("+sent\r\n{error}{error}-MISCONF refused\r\n{error}");
        assert_eq!(sent(&mut replies), expected.as_bytes());
        assert!(!replies.waits());
        push(&mut replies, b"+next\r\n", 0, 1);
        assert_eq!(
            sent(&mut replies),
            b"+next\r\n",
            "what follows waits for nothing"
        );
    }

    #[test]
    fn a_reply_of_a_rung_that_is_not_stuck_waits_on_and_is_not_overtaken() {
        let mut replies = Replies::default();
        for (text, durability) in [
            (&b"+d\r\n"[..], Durability::Disk),
            (b"+m\r\n", Durability::Mirror),
            (b"+e\r\n", Durability::Disk),
        ] {
            replies.buf.extend_from_slice(text);
            replies.seal(rest(durability, 5), disk(4));
        }
        replies.give_up(stuck(false), USUAL, disk(4), "UNKNOWN u");
        assert_eq!(sent(&mut replies), b"-UNKNOWN u\r\n");
        replies.release(disk(5), false);
        assert_eq!(sent(&mut replies), b"+m\r\n+e\r\n");
    }

    #[test]
    fn messages_wait_for_the_log_while_replies_pass_them() {
        let message = &b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"[..];
        let mut replies = Replies::default();
        push(&mut replies, message, 2, 1);
        push(&mut replies, b"+OK\r\n", 2, 1);
        replies.give_up(stuck(true), USUAL, disk(1), "UNKNOWN u");
        assert_eq!(sent(&mut replies), b"-UNKNOWN u\r\n");
        push(&mut replies, b"+PONG\r\n", 0, 1);
        push(&mut replies, b"$1\r\nv\r\n", 2, 1);
        replies.give_up(stuck(true), USUAL, disk(1), "UNKNOWN u");
        assert_eq!(sent(&mut replies), b"+PONG\r\n-UNKNOWN u\r\n");
        assert!(replies.waits(), "the message is not durable");
        push(&mut replies, b"+last\r\n", 0, 1);
        replies.release(disk(2), false);
        assert_eq!(sent(&mut replies), [message, b"+last\r\n"].concat());
    }

    #[test]
    fn what_is_not_made_of_whole_frames_is_not_touched() {
        let mut replies = Replies::default();
        push(&mut replies, b"+OK\r\n", 2, 1);
        push(&mut replies, b"$9\r\nhalf", 3, 1);
        replies.give_up(stuck(true), USUAL, disk(1), "UNKNOWN u");
        assert_eq!(sent(&mut replies), b"-UNKNOWN u\r\n");
        replies.buf.extend_from_slice(b"hello\r\n");
        replies.seal(rest(Durability::Disk, 3), disk(1));
        replies.release(disk(3), false);
        assert_eq!(sent(&mut replies), b"$9\r\nhalfhello\r\n");
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
        replies.release(disk(2), false);
        peer.1 = usize::MAX;
        assert_eq!(replies.flush(&mut peer).expect("fast"), Flushed::Drained);
        assert_eq!(peer.0, [body.as_slice(), b"tail"].concat());
    }
}
