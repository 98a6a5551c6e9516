//! Splits a stream of bytes into frames.

use perdura_base::num::to_usize;

use crate::message::{FRAME_BYTES_MAX, FRAME_BYTES_MIN, Malformed};

/// The size in bytes to which the buffer shrinks after a long frame.
const KEEP_BYTES_MAX: usize = 512 * 1024;

/// A buffer for taking frames from the arrived bytes. An invalid length is refused on arrival, so the buffer never
/// grows beyond the longest frame.
#[derive(Debug, Default)]
pub struct Framer {
    buf: Vec<u8>,
    /// The index in `buf` after the last frame that was taken.
    at: usize,
    /// The index in `buf` after the last byte that has arrived.
    end: usize,
}

impl Framer {
    /// Returns a framer without bytes.
    #[must_use]
    pub fn new() -> Framer {
        Framer::default()
    }

    /// Returns space for `len` more bytes. The caller reads bytes into it and then calls [`filled`](Self::filled)
    /// with their number.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        if self.at > 0 {
            self.buf.copy_within(self.at..self.end, 0);
            self.end -= self.at;
            self.at = 0;
            if self.buf.len() > KEEP_BYTES_MAX && self.end + len <= KEEP_BYTES_MAX / 2 {
                self.buf.truncate(KEEP_BYTES_MAX);
                self.buf.shrink_to(KEEP_BYTES_MAX);
            }
        }
        if self.buf.len() < self.end + len {
            self.buf.resize(self.end + len, 0);
        }
        &mut self.buf[self.end..self.end + len]
    }

    /// Records that `read` bytes have arrived in the space that [`room`](Self::room) returned.
    pub fn filled(&mut self, read: usize) {
        self.end += read;
        assert!(
            self.end <= self.buf.len(),
            "what has arrived was read into the room"
        );
    }

    /// Appends bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// Returns the number of arrived bytes not yet taken.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.arrived().len()
    }

    /// Returns the arrived bytes not yet taken.
    #[must_use]
    pub fn arrived(&self) -> &[u8] {
        &self.buf[self.at..self.end]
    }

    /// Takes the next frame. `None`: the frame has not arrived completely.
    ///
    /// # Errors
    /// [`Malformed`] for a length that no frame can have. The connection cannot be used after that.
    pub fn take(&mut self) -> Result<Option<&[u8]>, Malformed> {
        let pending = &self.buf[self.at..self.end];
        let Some(len) = pending.first_chunk::<4>() else {
            return Ok(None);
        };
        let len = to_usize(u64::from(u32::from_le_bytes(*len)));
        if !(FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&len) {
            return Err(Malformed(format!(
                "a frame of {len} bytes; frames have {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX}"
            )));
        }
        if pending.len() < len {
            return Ok(None);
        }
        let begin = self.at;
        self.at += len;
        assert!(
            self.at <= self.end,
            "a frame is taken when all of it is there"
        );
        Ok(Some(&self.buf[begin..self.at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Generation;
    use crate::message::Request;

    #[test]
    fn frames_come_out_whole_however_their_bytes_arrive() {
        let frames = [
            Request::Ping.frame(),
            Request::Seal {
                generation: Generation(7),
            }
            .frame(),
            Request::Ping.frame(),
        ];
        let bytes = frames.concat();
        for step in 1..=bytes.len() {
            let (mut framer, mut got) = (Framer::new(), Vec::new());
            for part in bytes.chunks(step) {
                framer.push(part);
                while let Some(frame) = framer.take().unwrap() {
                    got.push(frame.to_vec());
                }
            }
            assert_eq!(got, frames, "{step} bytes at a time");
            assert_eq!(framer.pending(), 0);
        }
    }

    #[test]
    fn the_room_of_a_long_frame_is_given_back_and_its_bytes_never_come_again() {
        let long = Request::Append {
            generation: Generation(1),
            stream: perdura_base::StreamId(0),
            pos: perdura_base::Pos(0),
            low: perdura_base::Pos(0),
            bytes: &[9; 3 << 20],
            pad: 0,
        };
        let (long, short) = (long.frame(), Request::Ping.frame());
        let mut framer = Framer::new();
        for _ in 0..3 {
            for part in [&long[..], &short].concat().chunks(100_000) {
                framer.room(150_000)[..part.len()].copy_from_slice(part);
                framer.filled(part.len());
                assert!(framer.pending() <= long.len() + part.len());
                while let Some(frame) = framer.take().unwrap() {
                    assert!(frame == long || frame == short);
                }
            }
            assert_eq!(framer.pending(), 0);
            framer.push(&short);
            assert!(framer.buf.capacity() <= KEEP_BYTES_MAX);
            assert_eq!(framer.take().unwrap(), Some(&short[..]));
            assert_eq!(framer.take(), Ok(None));
        }
    }

    #[test]
    fn a_length_that_no_frame_has_is_refused_before_the_frame_arrives() {
        for len in [0_u32, 11, 4 << 30 >> 1, u32::MAX, 4_194_401] {
            let mut framer = Framer::new();
            framer.push(&len.to_le_bytes());
            let why = framer.take().unwrap_err();
            assert!(why.0.contains(&format!("a frame of {len} bytes")), "{why}");
        }
    }
}
