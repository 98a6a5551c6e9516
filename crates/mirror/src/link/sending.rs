//! The requests that a link sends: it opens rings and appends blocks to them.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{Pos, StreamId};

use super::{Link, Progress};
use crate::handshake::Caller;
use crate::ids::Generation;
use crate::message::Request;
use crate::ring::Ring;

/// The maximum number of bytes of a stream in one append.
const CHUNK_BYTES_MAX: u64 = 1 << 20;
/// The number of padding bytes in one comparison.
const ZEROS_AT_ONCE: usize = 64;

impl Link {
    /// Sends the unsent bytes of a stream's tail, which is the writer's own ring of the stream. Stops when the
    /// connection takes no more or the limit of one call is reached. Returns whether another call may send more.
    pub fn send(&mut self, caller: &Caller, stream: StreamId, tail: &Ring, now_ns: u64) -> bool {
        let at = usize::from(stream.0);
        if let Progress::Open { sent, .. } = self.streams[at] {
            assert!(sent <= tail.end(), "what was sent is in the tail, or was");
        }
        while self.is_ready() {
            match self.streams[at] {
                Progress::Opening => return false,
                Progress::Open { sent, .. } if tail.low() <= sent && sent <= tail.end() => {
                    if sent == tail.end() {
                        return false;
                    }
                    if self.mapped[at].is_some() {
                        return self.write(at, tail).unwrap_or_else(|why| {
                            self.break_off(why, now_ns);
                            false
                        });
                    }
                    if !self.append(caller.generation, stream, tail, now_ns) {
                        return false;
                    }
                }
                // The ring is not open, or ends before the tail begins. The node must begin a ring at the tail's start.
                Progress::Closed | Progress::Open { .. } => {
                    if !self.ask_for_ring(caller.generation, stream, tail.low(), now_ns) {
                        return false;
                    }
                }
            }
        }
        false
    }

    /// Sends the next unsent bytes of the tail. Returns whether the connection took them.
    fn append(
        &mut self,
        generation: Generation,
        stream: StreamId,
        tail: &Ring,
        now_ns: u64,
    ) -> bool {
        let at = usize::from(stream.0);
        let Progress::Open { sent, held } = self.streams[at] else {
            unreachable!("the caller has found the ring open");
        };
        let (bytes, pad) = chunk(tail, sent);
        let low = if armed(Flaw::LowAtWrite) {
            sent
        } else {
            tail.low()
        };
        let append = Request::Append {
            generation,
            stream,
            pos: sent,
            low,
            bytes,
            pad,
        };
        if !self.say(&append, now_ns) {
            return false;
        }
        let sent = Pos(sent.0 + to_u64(bytes.len()) + u64::from(pad));
        assert!(sent <= tail.end(), "what is sent is in the tail");
        self.streams[at] = Progress::Open { sent, held };
        if armed(Flaw::SentCounts) {
            self.held[at] = sent;
        }
        true
    }

    /// Asks the node for a ring that begins at `start`. If the stream's ring is spoiled, the new ring replaces
    /// it. While a view has this node as a member, no replacement for a spoiled ring is requested. Returns whether the
    /// request was sent.
    fn ask_for_ring(
        &mut self,
        generation: Generation,
        stream: StreamId,
        start: Pos,
        now_ns: u64,
    ) -> bool {
        let at = usize::from(stream.0);
        let spoiled = self.spoiled[at].filter(|_| matches!(self.streams[at], Progress::Closed));
        let ask = match (spoiled, self.is_local) {
            (Some(_), _) if self.is_counted => return false,
            (Some(damage), _) => Request::Renew {
                generation,
                stream,
                start,
                damage,
            },
            (None, true) => Request::Map {
                generation,
                stream,
                start,
            },
            (None, false) => Request::Open {
                generation,
                stream,
                start,
            },
        };
        if !self.say(&ask, now_ns) {
            return false;
        }
        self.streams[at] = Progress::Opening;
        if spoiled.is_none() {
            self.mapped[at] = None;
        }
        true
    }

    /// Writes the tail of a stream into the node's memory. The node holds the written bytes if its process lives and
    /// has not closed the ring. Returns whether more bytes are left to write.
    fn write(&mut self, at: usize, tail: &Ring) -> Result<bool, String> {
        let (Some(ring), Some(connection)) = (&mut self.mapped[at], &mut self.connection) else {
            unreachable!("the caller has found the ring, and a ring has a connection");
        };
        let is_more_left = ring.follow(tail)?;
        let end = ring.end();
        match ring.closed() {
            Some(_) if armed(Flaw::ClosedRingCounts) => {}
            Some(Some(by)) => {
                self.seen = self.seen.max(by);
                return Err(format!("generation {by} has sealed the ring"));
            }
            Some(None) => return Err("the node has closed the ring".into()),
            None => {}
        }
        if !armed(Flaw::DeadRingCounts) {
            connection.stands()?;
        }
        assert!(self.held[at] <= end, "a ring in memory only grows");
        self.held[at] = end;
        self.streams[at] = Progress::Open {
            sent: end,
            held: end,
        };
        Ok(is_more_left)
    }
}

/// Returns the next bytes to send from a tail, and the number of zeros that follow them.
fn chunk(tail: &Ring, from: Pos) -> (&[u8], u32) {
    assert!(
        tail.low() <= from && from < tail.end(),
        "{from} is in the tail"
    );
    let to = tail.end().0.min(from.0 + CHUNK_BYTES_MAX);
    let [bytes, _around] = tail.parts(from, Pos(to));
    let (bytes, zeros) = bytes.split_at(bytes.len() - zeros_at_end(bytes));
    (bytes, u32::try_from(zeros.len()).expect("a chunk is short"))
}

/// Returns the number of zeros at the end of `bytes`. Compares [`ZEROS_AT_ONCE`] bytes at once, because a short block
/// is mostly padding.
fn zeros_at_end(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((before, last)) = rest.split_last_chunk::<ZEROS_AT_ONCE>()
        && *last == [0; ZEROS_AT_ONCE]
    {
        rest = before;
    }
    let end = rest.iter().rposition(|byte| *byte != 0);
    bytes.len() - end.map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_counted_at_the_end_alone() {
        for data in [&[][..], &[1], &[0, 1], &[1, 0, 0, 2], &[3; 70]] {
            for zeros in 0..200 {
                let mut bytes = data.to_vec();
                bytes.resize(data.len() + zeros, 0);
                assert_eq!(zeros_at_end(&bytes), zeros);
            }
        }
    }
}
