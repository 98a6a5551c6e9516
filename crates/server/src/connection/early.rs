//! Early reads: a few ready connections are read before the first connection runs.
//!
//! A client that sends one request at a time offers no later keys to fetch ahead. But many of these clients together
//! offer many requests. These requests are parsed before the first one runs, and their keys are fetched together (see
//! [`ahead`](crate::ahead)). The order of the connections' turns is unchanged. A connection's early bytes run in the
//! connection's turn.
//!
//! # Invariants
//! * Until the connection's turn, its early bytes lie only in the buffer for early reads. That turn comes before the
//!   next group is read, or else the connection keeps a copy ([`Connection::keep_early`]).
//! * A connection is read early only if the turn would begin with that read: the connection has no input left, and
//!   nothing forbids it to run. In the connection's turn the loop checks again whether the connection may run.

use std::io;

use super::{Connection, known_limits};
use crate::ahead::{self, AHEAD_REQUESTS};
use crate::command::After;
use crate::resp::parse::Args;
use crate::session::Session;
use crate::state::State;

/// The maximum number of connections read before the first connection runs.
pub(crate) const EARLY_READS: usize = 8;

/// The maximum number of bytes that an early read takes.
pub(crate) const EARLY_BYTES: usize = 16 * 1024;

/// The buffer of early reads, with a window for each connection of a group.
pub(crate) struct EarlyBuffer(Box<[u8]>);

impl EarlyBuffer {
    /// Returns a buffer that holds nothing yet.
    pub(crate) fn new() -> Self {
        EarlyBuffer(vec![0; EARLY_READS * EARLY_BYTES].into_boxed_slice())
    }

    fn window(&self, turn: usize) -> &[u8] {
        &self.0[turn * EARLY_BYTES..(turn + 1) * EARLY_BYTES]
    }
}

/// The result of an early read.
#[derive(Debug)]
pub(super) struct Early {
    /// The index of the window that holds the bytes.
    turn: usize,
    read: io::Result<usize>,
}

impl Early {
    /// Returns the bytes that were read.
    fn bytes<'a>(&self, buffer: &'a EarlyBuffer) -> &'a [u8] {
        let read = *self.read.as_ref().unwrap_or(&0);
        debug_assert!(read <= EARLY_BYTES, "a read fits its window");
        &buffer.window(self.turn)[..read]
    }
}

/// Reads the connections of `group` that may be read early, and fetches the requests' keys. The turns of the group's
/// connections come next.
pub(crate) fn read_group(state: &mut State, group: &[usize], buffer: &mut EarlyBuffer) {
    debug_assert!(group.len() <= EARLY_READS, "each has its window");
    if group.len() < 2 {
        return;
    }
    let windows = buffer.0.chunks_exact_mut(EARLY_BYTES);
    for (turn, (index, window)) in group.iter().zip(windows).enumerate() {
        let Some(mut connection) = state.connections.take(*index) else {
            continue;
        };
        if connection.may_read_early(state) {
            connection.read_early(state, window, turn);
        }
        state.connections.put(*index, connection);
    }
    if state.looks_ahead {
        let connections = group.iter().filter_map(|i| state.connections.get(*i));
        let lone = connections.filter_map(|one| one.lone_early(buffer));
        ahead::look(state, lone);
    }
}

impl Connection {
    /// Returns whether the connection may be read before its turn.
    fn may_read_early(&self, state: &State) -> bool {
        let plain = self.session.authenticated && self.stream.short_read_empties();
        let rests = self.paused || self.heavy || !self.input.is_empty() || self.early.is_some();
        plain && !rests && self.open(state) && self.ready(state)
    }

    /// Reads bytes into `window`, and parses them. `turn` is the number of this window in the buffer for early reads.
    fn read_early(&mut self, state: &State, window: &mut [u8], turn: usize) {
        debug_assert!(self.may_read_early(state), "its turn begins with a read");
        let read = self.read_once(window);
        if let Ok(read @ 1..) = read {
            let limits = known_limits(state);
            let most = if state.looks_ahead { AHEAD_REQUESTS } else { 1 };
            self.parser.parse_early(&window[..read], &limits, most);
        }
        self.early = Some(Early { turn, read });
    }

    /// Returns the request from the early read, if there is exactly one. The keys of a pipeline are fetched when the
    /// connection's turn comes.
    fn lone_early<'a>(&'a self, buffer: &'a EarlyBuffer) -> Option<(&'a Session, Args<'a>)> {
        let bytes = self.early.as_ref()?.bytes(buffer);
        if bytes.is_empty() || !self.parser.begins() {
            return None;
        }
        let mut requests = self.parser.parsed(bytes);
        let first = requests.next()?;
        requests.next().is_none().then_some((&self.session, first))
    }

    /// Runs the early bytes.
    pub(super) fn take_early(
        &mut self,
        state: &mut State,
        early: Early,
        buffer: &EarlyBuffer,
    ) -> Result<After, ()> {
        if !self.open(state) {
            self.keep(state, &early, buffer);
            return Ok(After::Continue);
        }
        self.take_read(state, early.read, buffer.window(early.turn), false)
    }

    /// Copies the early bytes for a later turn.
    pub(crate) fn keep_early(&mut self, state: &mut State, buffer: &EarlyBuffer) {
        if let Some(early) = self.early.take() {
            self.keep(state, &early, buffer);
        }
    }

    /// Copies the bytes of an early read. An end of the input or an error is not kept: the next read of the
    /// socket reports it again.
    fn keep(&mut self, state: &mut State, early: &Early, buffer: &EarlyBuffer) {
        let bytes = early.bytes(buffer);
        if bytes.is_empty() {
            return;
        }
        debug_assert!(self.input.is_empty(), "what is kept comes behind nothing");
        self.note_read(bytes.len(), EARLY_BYTES);
        self.count_read(state, bytes.len());
        self.keep_input(bytes);
        self.paused = true;
        self.account(state);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::engine::{Db, Options};
    use crate::net::Stream;
    use crate::options::ServerOptions;
    use crate::state::Stage;
    use crate::testbed::{self, Testbed};

    /// Checks that requests read early from a client do not run if another client disconnects it before its turn.
    #[test]
    fn what_was_read_early_does_not_run_when_an_earlier_turn_forbids_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = Db::open(Options::new(dir.path())).expect("a database");
        let around = Testbed::new();
        let options = Options::new(dir.path());
        let mut state = around.state(ServerOptions::default(), options);
        state.stage = Stage::Ready(db.clone());
        let inputs = ["CLIENT KILL ID 2\r\n", "SET k v\r\n", "DBSIZE\r\n"];
        let mut ends = Vec::new();
        for (id, input) in (1..).zip(inputs) {
            let index = state.connections.reserve();
            let (ours, mut end) = UnixStream::pair().expect("a pair of sockets");
            ours.set_nonblocking(true).expect("a socket");
            let stream = Stream::Unix(mio::net::UnixStream::from_std(ours));
            let mut connection = testbed::connection(&state, stream, index, id);
            connection.readable = true;
            state.connections.put(index, connection);
            end.write_all(input.as_bytes()).expect("room");
            ends.push(end);
        }
        let (mut buffer, mut early) = (vec![0; 1024], EarlyBuffer::new());
        read_group(&mut state, &[0, 1, 2], &mut early);
        for index in 0..3 {
            let mut connection = state.connections.take(index).expect("a client");
            assert!(connection.early.is_some(), "client {index} was read");
            let after = connection.advance(&mut state, &mut buffer, &early);
            assert!(matches!(after, Ok(After::Continue)));
            state.connections.put(index, connection);
        }
        let [killer, killed, witness] = [0, 1, 2].map(|i| state.connections.get(i).expect("one"));
        assert_eq!(killer.replies.buf, b":1\r\n");
        assert!(killed.doomed && killed.replies.buf.is_empty());
        assert_eq!(
            killed.input.rest(),
            b"SET k v\r\n",
            "nothing is lost silently"
        );
        assert_eq!(witness.replies.buf, b":0\r\n");
        drop(state);
        db.close().expect("closed");
    }
}
