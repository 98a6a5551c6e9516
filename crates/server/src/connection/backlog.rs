//! Requests that are read but not run, and mutual waits between a client and the server.
//!
//! A client may write any number of requests before it reads a reply. Requests are stored unchanged while the client's
//! replies pile up. They are also stored while the client waits for another client, the log, or the end of a pause. The
//! stored requests count as the client's buffers. Buffers are bounded by `client-query-buffer-limit` for one client and
//! by `maxmemory-clients` for all clients.
//!
//! The server does not read three kinds of clients:
//!
//! * Clients that have not authenticated and have too many unread replies.
//! * Clients that are closed as soon as they have read their last replies.
//! * Clients with large buffers, if all buffers together are near the limit and another client is chosen for reading.
//!
//! If such a client does not read its replies, the client and the server wait for each other. The loop checks once a
//! second for this mutual wait. After [`LOOKS_MAX`] consecutive checks that find it, the loop disconnects the client.

use std::io::{self, ErrorKind};

use super::{Connection, Input};
use crate::command::After;
use crate::session::Session;
use crate::state::State;

/// The number of consecutive checks that must find a mutual wait before the client is disconnected. 27 checks, 1.0 to
/// 1.1 s apart, take less than 30 s. The checks are counted, not the time, because time also passes while this process
/// is stopped.
pub(crate) const LOOKS_MAX: u32 = 27;

impl Connection {
    /// Returns whether this client's requests are read and stored while they may not run.
    pub(super) fn keeps_requests(&self) -> bool {
        self.session.authenticated && !self.closing && !self.doomed && !self.ended
    }

    /// Returns whether the client's requests wait only because the client has left replies unread.
    pub(crate) fn is_choked(&self, state: &State) -> bool {
        let waits = self.blocked || self.postponed || self.closing;
        !waits && !self.open(state)
    }

    /// Reads once and stores the bytes. `Err`: the connection is dead.
    pub(super) fn read_ahead(&mut self, state: &mut State, buffer: &mut [u8]) -> Result<After, ()> {
        debug_assert!(self.keeps_requests(), "the caller has asked");
        let read = self.read_once(buffer);
        self.keep_read(state, read, buffer)?;
        Ok(After::Continue)
    }

    fn keep_read(
        &mut self,
        state: &mut State,
        read: io::Result<usize>,
        buffer: &[u8],
    ) -> Result<(), ()> {
        match read {
            // The next read sees the end of the input again, once all requests before it have run.
            Ok(0) => self.ended = true,
            Ok(bytes) => {
                self.note_read(bytes, buffer.len());
                self.count_read(state, bytes);
                self.keep_input(&buffer[..bytes]);
                self.paused = true;
                self.check_input(state);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.readable = self.stream.stopped_early();
            }
            Err(_) => return Err(()),
        }
        Ok(())
    }

    /// Disconnects a client if the waiting requests take more memory than one client may use.
    #[cold]
    pub(super) fn end_backlog(&mut self, state: &mut State) {
        let (who, bytes) = (self.session.who(), self.input.len());
        tracing::warn!(
            "{who} is disconnected: its requests that have not run take {bytes} bytes \
             (client-query-buffer-limit)"
        );
        self.input = Input::default();
        self.doomed = true;
        state.stats.query_limit_disconnections += 1;
        self.unaccount(state);
    }

    /// Checks once for a mutual wait: the client does not read its replies, and the server does not read the client.
    /// Returns whether [`LOOKS_MAX`] consecutive checks have found this.
    pub(crate) fn is_stuck(&mut self, state: &State) -> bool {
        let unread = self.readable && !self.ready(state);
        match self.full && (self.closing || self.ended || unread) {
            true => self.stuck += 1,
            false => self.stuck = 0,
        }
        self.stuck >= LOOKS_MAX
    }

    /// Notes that a full socket has room again: the client has read something.
    pub(crate) fn has_taken(&mut self) {
        (self.full, self.stuck) = (false, 0);
    }

    /// Returns the reason why the server does not read a client that is stuck.
    pub(crate) fn why_unread(&self, state: &State) -> &'static str {
        if self.closing || self.ended {
            "it will be closed after it has read them"
        } else if self.held_off(state) {
            "it is not read, as the buffers of all clients are nearly full (maxmemory-clients)"
        } else {
            "it is not read until it has authenticated"
        }
    }
}

impl Session {
    /// Returns a description of the client for a line of the log.
    pub(crate) fn who(&self) -> String {
        let (id, peer, name) = (self.seat.id, &self.peer, self.name.escape_ascii());
        let user = self.user_name().escape_ascii();
        format!("Client {id} at {peer} (name \"{name}\", user \"{user}\")")
    }
}
