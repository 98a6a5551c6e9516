//! Reads from a client's socket into the loop's buffer.

use std::io::{self, ErrorKind, Read};

use super::Connection;
use crate::command::After;
use crate::state::State;

/// The maximum number of bytes of one read, unless the rest of a longer request is expected.
const PIPELINE_BYTES: usize = 32 * 1024;
/// The maximum number of bytes of one read from a client that has not authenticated.
const STRANGER_READ_BYTES: usize = 4 * 1024;

impl Connection {
    pub(super) fn read(&mut self, state: &mut State, buffer: &mut [u8]) -> Result<After, ()> {
        // A read of the rest of a long request may fill the whole buffer. Other reads are short, so that a pipeline
        // of thousands of requests does not delay the other clients.
        let window = if !self.session.authenticated {
            STRANGER_READ_BYTES.min(buffer.len())
        } else if self.parser.needed() > PIPELINE_BYTES {
            buffer.len()
        } else {
            PIPELINE_BYTES.min(buffer.len())
        };
        let buffer = &mut buffer[..window];
        let handshaking = self.stream.handshaking();
        let read = self.read_once(buffer);
        self.take_read(state, read, buffer, handshaking)
    }

    pub(super) fn read_once(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(buffer) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    /// Processes the result of a read into `buffer`.
    pub(super) fn take_read(
        &mut self,
        state: &mut State,
        read: io::Result<usize>,
        buffer: &[u8],
        handshaking: bool,
    ) -> Result<After, ()> {
        let read = match read {
            Ok(read) => read,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.readable = self.stream.stopped_early();
                if handshaking {
                    self.heavy = self.stream.handshaking();
                }
                return Ok(After::Continue);
            }
            Err(_) => return Err(()),
        };
        if read == 0 {
            // The peer has closed its sending side. If replies are still unsent, the peer gets them first.
            // Otherwise the connection is closed now, before another client's request runs.
            self.readable = false;
            self.closing = true;
            return match self.replies.unsent() {
                0 => Err(()),
                _ => Ok(After::Continue),
            };
        }
        self.note_read(read, buffer.len());
        Ok(self.take(state, &buffer[..read]))
    }

    /// Notes whether the socket may have more to read. A read shorter than `window` has emptied the socket, unless
    /// the socket speaks TLS. After a hang-up the socket is always read again.
    pub(super) fn note_read(&mut self, read: usize, window: usize) {
        self.readable = read == window || self.hung_up || !self.stream.short_read_empties();
    }

    pub(super) fn count_read(&mut self, state: &mut State, bytes: usize) {
        self.session.active = state.now;
        state.stats.reads += 1;
        let count = u64::try_from(bytes).unwrap_or(0);
        state.stats.input_bytes += count;
        self.received += count;
    }
}
