//! Requests that are read and not run, and clients that wait for the server while the server waits for
//! them.
//!
//! A client may write any number of requests before it reads a reply. Its requests are stored unchanged
//! while its replies pile up, or while it waits for another client, for the log or for the end of a pause.
//! They count as its buffers, whose bounds are `client-query-buffer-limit` for one client and
//! `maxmemory-clients` for all.
//!
//! The server does not read three kinds of clients. The first are strangers with too many unread replies. The
//! second are to be closed once they have read their last replies. The third must wait while another client's
//! request is read. If such a client does not read its replies either, both sides wait for each other. The loop
//! looks once a second. It disconnects a client that waits like this at [`LOOKS_MAX`] looks in a row.

use std::io::{self, ErrorKind};

use super::{Connection, Input};
use crate::command::After;
use crate::session::Session;
use crate::state::State;

/// The number of looks in a row after which a client is disconnected. 27 looks, 1.0 to 1.1 s apart, take
/// less than 30 s. Looks are counted, not time, because time also passes while this process is stopped.
pub(crate) const LOOKS_MAX: u32 = 27;

impl Connection {
    /// Returns whether this client's requests are read and stored while they may not run.
    pub(super) fn keeps_requests(&self) -> bool {
        self.session.authenticated && !self.closing && !self.doomed && !self.ended
    }

    /// Returns whether its requests wait only because it has left replies unread.
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
            // The next read sees the end again, when all requests before it have run.
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

    /// Disconnects a client whose waiting requests take more memory than one client is allowed.
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

    /// Counts one look of the loop at this client. Returns whether the client and the server have waited for
    /// each other for too long: the client does not take the replies, and the server does not read the client.
    pub(crate) fn is_stuck(&mut self, state: &State) -> bool {
        let unread = self.readable && !self.ready(state);
        match self.full && (self.closing || self.ended || unread) {
            true => self.stuck += 1,
            false => self.stuck = 0,
        }
        self.stuck >= LOOKS_MAX
    }

    /// Notes that the socket, which was full, has room again: the client has read something.
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
