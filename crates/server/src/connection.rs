//! A connection: it reads bytes, runs requests and writes replies.
//!
//! Requests are parsed in the buffer into which they were read. Only the rest of an unfinished request is
//! copied to the connection's own buffer, so that ten thousand idle clients hold no buffers.
//!
//! If a client sends faster than it reads, its requests wait while more than `output_bytes_pause` of replies are unsent
//! ([`backlog`]). Stored requests take less memory than their replies would. So a client can write all requests before
//! it reads a reply, and still finish.

use crate::ahead::{self, AHEAD_REQUESTS};
use crate::command::After;
use crate::command::dispatch::execute;
use crate::engine::MemoryUse;
use crate::net::Stream;
use crate::output::Patience;
use crate::pubsub::Seat;
use crate::replies::{Flushed, Replies, Rest};
use crate::resp::foreign::Foreign;
use crate::resp::parse::{Limits, ParseError, Parser};
use crate::resp::reply::Out;
use crate::session::Session;
use crate::state::State;
use std::time::Duration;

pub(crate) mod backlog;
pub(crate) mod early;
mod input;
mod read;

use early::{Early, EarlyBuffer};
use input::Input;

/// The maximum number of arguments of a request.
const ARGS_MAX: i64 = 1024 * 1024;
/// The maximum duration of a light turn. After a longer turn, the connection's next turn follows those of the light
/// connections.
const LONG_TURN: Duration = Duration::from_millis(1);
/// The maximum size of a light request, in bytes. While a connection receives a larger request, it runs after the light
/// connections.
const HEAVY_BYTES: usize = 1024 * 1024;
/// A turn ends once its requests have this many bytes in all.
const TURN_BYTES: usize = 64 * 1024;
/// The first bytes of an input's buffer, up to this number, count as memory even if they are not filled. Room beyond
/// them counts only once it is filled.
const RESERVED_BYTES: usize = 64 * 1024;
/// A client with buffers above this number of bytes is not read while the buffers of all clients are near the limit.
pub(crate) const HELD_OFF_BYTES: u64 = 64 * 1024;
/// A value that exceeds the longest allowed value by at most this number of bytes is answered with an error. A
/// longer value disconnects its client.
const SLACK_BYTES: usize = 1024 * 1024;

/// The maximum size, in bytes, of an unfinished request of a *stranger*: a client before AUTH. A stranger takes less
/// than 16 KiB of memory: these bytes, one more read, the parser's copy of a line, the replies and the connection
/// itself.
const STRANGER_INPUT_BYTES: usize = 4 * 1024;
/// The maximum number of unsent reply bytes of a stranger. A stranger with more is not read.
const STRANGER_OUTPUT_BYTES: usize = 1024;

/// A client.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The socket.
    pub stream: Stream,
    /// The client's session.
    pub session: Session,
    /// The replies that have not been sent.
    pub replies: Replies,
    parser: Parser,
    /// The start of an unfinished request, or requests not yet run.
    input: Input,
    /// True if the socket may have more to read. Edge-triggered polling reports it only once.
    pub readable: bool,
    /// True if the poller reported a hang-up: nothing follows the unread bytes.
    pub hung_up: bool,
    /// True if whole requests may wait in `input`.
    pub paused: bool,
    /// True if the end of the input has been read while earlier requests have not run.
    ended: bool,
    /// True if the last write was partial: the socket's send buffer is full.
    pub full: bool,
    /// The number of successive checks that found this client and the server waiting for each other.
    stuck: u32,
    /// True if the connection runs nothing more and closes once its replies have left.
    pub closing: bool,
    /// True if the connection runs nothing until an answer comes from another thread or client.
    pub blocked: bool,
    /// True if the connection is in the loop's list of connections that wait for the disk.
    pub listed: bool,
    /// True if the connection is in the loop's list of connections to run. It is then not added a second time.
    pub queued: bool,
    /// True if the connection's last turn took long, or its next turn may take long. Other connections run first.
    pub heavy: bool,
    /// True if the connection is to be closed at once, even with unsent replies.
    pub doomed: bool,
    /// True if the client's next request is deferred: by CLIENT PAUSE, a full log, a password check, or a command
    /// that runs on the thread beside the loop.
    pub postponed: bool,
    /// The bytes gathered so far by the client's command, which runs in steps.
    pub gathered: usize,
    /// The bytes of the request that runs in steps.
    pub under_way: usize,
    /// The start index, in the input, of the request that runs in steps.
    run_from: usize,
    /// The time when the client's unread replies began to exceed the soft limit.
    patience: Patience,
    /// The bytes that this connection has accounted to the database's memory.
    accounted: u64,
    /// The bytes that the client has sent so far.
    pub received: u64,
    /// The result of an early read, which the connection's next turn takes. `None`: the connection was not read
    /// early.
    early: Option<Early>,
}

/// Returns the limits for a client that has authenticated.
fn known_limits(state: &State) -> Limits {
    let value = i64::try_from(state.value_bytes_max + SLACK_BYTES).unwrap_or(i64::MAX);
    Limits {
        args_max: ARGS_MAX,
        bulk_bytes_max: value,
        authenticated: true,
    }
}

impl Connection {
    /// Returns a connection that has just been accepted.
    pub(crate) fn new(stream: Stream, session: Session) -> Self {
        Connection {
            // A handshake takes longer than most requests.
            heavy: stream.handshaking(),
            stream,
            session,
            replies: Replies::default(),
            parser: Parser::new(),
            input: Input::default(),
            readable: false,
            hung_up: false,
            paused: false,
            ended: false,
            full: false,
            stuck: 0,
            closing: false,
            blocked: false,
            listed: false,
            queued: false,
            doomed: false,
            postponed: false,
            gathered: 0,
            under_way: 0,
            run_from: 0,
            patience: Patience::default(),
            accounted: 0,
            received: 0,
            early: None,
        }
    }

    /// Returns whether requests may be run now.
    pub(crate) fn open(&self, state: &State) -> bool {
        let pause = if self.session.authenticated {
            state.options.output_bytes_pause
        } else {
            STRANGER_OUTPUT_BYTES
        };
        let rests = self.closing || self.blocked || self.postponed || self.doomed;
        !rests && self.replies.unsent() <= pause
    }

    /// Returns whether the connection has work that need not wait for the poller.
    #[inline]
    pub(crate) fn ready(&self, state: &State) -> bool {
        // Most connections have nothing left at the end of their turns.
        if !self.readable && !self.paused {
            return false;
        }
        let readable = self.readable && !self.held_off(state);
        match self.open(state) {
            true => self.paused || readable,
            false => readable && self.keeps_requests(),
        }
    }

    /// Returns whether the server must not read the socket for now. The reason is that all buffers together are near
    /// the limit, this client's buffers are large, and another client is chosen for reading.
    pub(crate) fn held_off(&self, state: &State) -> bool {
        let another = |id| id != self.session.seat.id;
        let squeezed = state.client_share.is_some() && state.squeezed.is_some_and(another);
        squeezed && self.accounted > HELD_OFF_BYTES
    }

    /// Runs the bytes of an early read. Without an early read, reads once and runs the new bytes. `Err`: the connection
    /// is dead.
    pub(crate) fn advance(
        &mut self,
        state: &mut State,
        buffer: &mut [u8],
        early_buffer: &EarlyBuffer,
    ) -> Result<After, ()> {
        if let Some(early) = self.early.take() {
            self.take_early(state, early, early_buffer)
        } else {
            let readable = self.readable && !self.held_off(state);
            match self.open(state) {
                true if self.paused => Ok(self.resume(state)),
                true if readable => self.read(state, buffer),
                false if readable && self.keeps_requests() => self.read_ahead(state, buffer),
                true | false => Ok(After::Continue),
            }
        }
    }

    /// Takes bytes from the client, and runs the complete requests.
    pub(crate) fn take(&mut self, state: &mut State, bytes: &[u8]) -> After {
        self.count_read(state, bytes.len());
        if !self.input.is_empty() {
            self.keep_input(bytes);
            return self.resume(state);
        }
        let (consumed, after) = self.run(state, bytes);
        if self.blocked && state.jobs.lack_bytes() {
            let request = bytes[self.run_from..consumed].to_vec();
            self.hand_over(state, request, 0);
        }
        if consumed < bytes.len() {
            self.keep_input(&bytes[consumed..]);
        }
        self.check_input(state);
        after
    }

    /// Stores bytes that are not run yet. The room for a large request grows in a few steps. The size of a step
    /// depends on the bytes that have arrived, so a client cannot reserve much memory by announcing a large
    /// size.
    fn keep_input(&mut self, bytes: &[u8]) {
        let len = self.input.len();
        if !self.session.authenticated {
            self.input.push_exact(bytes);
        } else if len == 0 {
            self.input.push(bytes, 0);
        } else {
            let wanted = self.parser.needed().min(16 * len.max(RESERVED_BYTES));
            self.input.push(bytes, wanted);
        }
    }

    fn resume(&mut self, state: &mut State) -> After {
        let mut input = std::mem::take(&mut self.input);
        let (consumed, after) = self.run(state, input.rest());
        if self.blocked && state.jobs.lack_bytes() {
            let (request, begin) = input.split(self.run_from, consumed);
            self.hand_over(state, request, begin);
        } else {
            input.consume(consumed);
        }
        self.input = input;
        self.check_input(state);
        after
    }

    /// Gives the buffer of a long request to the job that runs it in steps.
    fn hand_over(&mut self, state: &mut State, bytes: Vec<u8>, begin: usize) {
        self.under_way = bytes.capacity();
        state.jobs.take_over(bytes, begin);
    }

    /// Runs requests from `input` until the input ends, or until the connection may run no more for now.
    /// Returns the number of consumed bytes.
    fn run(&mut self, state: &mut State, input: &[u8]) -> (usize, After) {
        let mut consumed = 0;
        state.start_clock();
        let began = state.clock;
        let known = known_limits(state);
        let most = if state.looks_ahead { AHEAD_REQUESTS } else { 1 };
        while consumed < input.len().min(TURN_BYTES) && self.open(state) {
            let limits = if self.session.authenticated {
                &known
            } else {
                &Limits::STRANGER
            };
            let rest = &input[consumed..];
            let begins = self.parser.begins();
            match self.parser.parse(rest, limits, most) {
                Ok(None) => break,
                Ok(Some(bytes)) => {
                    if begins && !self.parser.is_at_end() {
                        let requests = self.parser.parsed(rest);
                        ahead::look(state, requests.map(|args| (&self.session, args)));
                    }
                    let args = self.parser.args(rest);
                    if args.len() == 0 {
                        consumed += bytes;
                        continue;
                    }
                    let before = consumed;
                    self.session.unread = input.len() - before;
                    consumed += bytes;
                    match execute(state, &mut self.session, &mut self.replies, &args) {
                        After::Continue => {}
                        After::Close => self.closing = true,
                        After::Block | After::Steps | After::Beside => {
                            self.blocked = true;
                            self.under_way = state.beside.bytes_of(self.session.seat);
                            self.run_from = before;
                        }
                        After::Postpone | After::Behind(_) | After::Held(_) | After::Absent => {
                            self.postponed = true;
                            consumed = before;
                            self.parser.forget_ahead();
                        }
                        After::Expel(foreign) => {
                            self.expel(state, foreign);
                            return (input.len(), After::Continue);
                        }
                        shutdown @ After::Shutdown { .. } => return (consumed, shutdown),
                    }
                    let ends = consumed >= TURN_BYTES || !self.goes_on(state);
                    if ends && !self.parser.is_at_end() {
                        self.parser.forget_ahead();
                    }
                }
                Err(ParseError::Protocol(text)) => {
                    self.refuse(state, &format!("ERR {text}"));
                    return (input.len(), After::Continue);
                }
                Err(ParseError::Foreign(foreign)) => {
                    self.expel(state, foreign);
                    return (input.len(), After::Continue);
                }
            }
        }
        self.paused = consumed < input.len() && (consumed >= TURN_BYTES || !self.open(state));
        let took = state.clock.saturating_duration_since(began);
        self.heavy = took > LONG_TURN || self.parser.needed() > HEAVY_BYTES;
        (consumed, After::Continue)
    }

    /// Returns whether the requests parsed together with a finished request may still run. They may not run after
    /// RESET, which makes the client a stranger. A stranger's requests must be parsed with stricter limits.
    fn goes_on(&self, state: &State) -> bool {
        self.session.authenticated && self.open(state)
    }

    /// Replies with an error and closes.
    pub(crate) fn refuse(&mut self, state: &State, error: &str) {
        Out::new(&mut self.replies.buf, self.session.resp3).error(error);
        self.replies.seal(Rest::NOTHING, state.reached);
        self.closing = true;
    }

    /// Closes a connection that does not speak Redis's protocol. No answer is sent, because only a web page would see
    /// it.
    fn expel(&mut self, state: &mut State, foreign: Foreign) {
        self.doomed = true;
        self.unaccount(state);
        let (id, peer) = (self.session.seat.id, &self.session.peer);
        state.note_foreign(foreign, id, peer);
    }

    /// Disconnects a client with input above the limit.
    fn check_input(&mut self, state: &mut State) {
        let bytes = self.input.len().max(self.parser.needed());
        let max = if self.session.authenticated {
            state.options.query_bytes_max
        } else {
            STRANGER_INPUT_BYTES
        };
        // A stranger that is postponed waits for its password check. Its request is complete, so the limit for
        // unfinished requests does not apply.
        let waits = self.postponed && !self.session.authenticated;
        if bytes > max && !waits && !self.closing {
            if self.paused && self.parser.needed() <= max {
                return self.end_backlog(state);
            }
            self.input = Input::default();
            self.refuse(
                state,
                "ERR the request is too big (client-query-buffer-limit)",
            );
        }
    }

    /// Writes the replies that may leave. `Err`: the connection is dead.
    pub(crate) fn flush(&mut self, state: &mut State) -> Result<(), ()> {
        if self.doomed {
            return Err(());
        }
        self.replies.release(state.reached, false);
        if self.replies.waits() && !self.replies.waits_firmly() && state.mem_in_time() {
            self.replies.release(state.reached, true);
        }
        if (self.replies.sendable() || self.stream.pending()) && !self.full {
            let before = self.replies.unsent();
            let flushed = self.replies.flush(&mut self.stream).map_err(|_| ())?;
            let sent = before - self.replies.unsent();
            state.stats.writes += 1;
            if sent > 0 {
                self.session.active = state.now;
            }
            state.stats.output_bytes += u64::try_from(sent).unwrap_or(0);
            self.full = flushed == Flushed::Full;
        }
        self.account(state);
        self.check_output(state);
        if self.doomed {
            return Err(());
        }
        if self.closing && self.replies.unsent() == 0 && !self.stream.pending() {
            Err(())
        } else {
            Ok(())
        }
    }

    /// Marks a client to be closed if it has left more replies unread than the limit of its class allows.
    pub(crate) fn check_output(&mut self, state: &mut State) {
        let limits = &state.options.output_limits;
        let pushed = self.session.monitors || self.session.subscriptions.is_some();
        let limit = if pushed { limits.pubsub } else { limits.normal };
        let unsent = self.replies.unsent();
        if !self.doomed && self.patience.is_over(limit, unsent, state.now) {
            self.doomed = true;
            state.stats.output_limit_disconnections += 1;
            let (who, class) = (self.session.who(), if pushed { "pubsub" } else { "normal" });
            tracing::warn!(
                "{who} is disconnected: it has left {unsent} bytes unread (client-output-buffer-limit {class})"
            );
            self.unaccount(state);
        }
    }

    /// Returns the bytes of requests that have not run, and the room for more.
    pub(crate) fn input_bytes(&self) -> (usize, usize) {
        let bytes = self.input.len();
        (bytes, self.input.capacity().saturating_sub(bytes))
    }

    /// Returns whether the connection is idle and holds empty buffers that [`Connection::rest`] would free.
    pub(crate) fn could_rest(&self) -> bool {
        let idle = self.replies.unsent() == 0 && !self.replies.waits();
        idle && (self.replies.buf.capacity() > 0
            || (self.input.is_empty() && self.input.capacity() > 0))
    }

    /// Frees the buffers of an idle client.
    pub(crate) fn rest(&mut self, state: &State) {
        self.input.rest_if_empty();
        if self.replies.unsent() == 0 && self.replies.buf.capacity() > 0 {
            self.replies = Replies::default();
        }
        self.account(state);
    }

    /// Returns the bytes that the client's unfinished request and queued transaction hold.
    pub(crate) fn input_held(&self) -> usize {
        // Room that is reserved for a large request and not filled yet takes no memory.
        let room = self.input.capacity().min(RESERVED_BYTES);
        let block = self.session.block.as_ref().map_or(0, |block| block.bytes);
        self.input.len().max(room) + self.parser.bytes() + block + self.under_way
    }

    /// Returns the number of bytes known to be missing from the unfinished request.
    pub(crate) fn input_wanted(&self) -> usize {
        self.parser.needed().saturating_sub(self.input.len())
    }

    /// Returns whether a complete request waits for the server: for the log, the end of a pause, the connection's turn,
    /// or the last step of the request's command.
    pub(crate) fn waits_for_server(&self, state: &State) -> bool {
        self.postponed || self.under_way > 0 || (self.paused && self.open(state))
    }

    /// Returns the bytes accounted to the database's memory.
    pub(crate) fn accounted(&self) -> u64 {
        self.accounted
    }

    /// Accounts the memory of the buffers to the database.
    pub(crate) fn account(&mut self, state: &State) {
        let held = self.input_held() + self.replies.buf.capacity() + self.gathered;
        let bytes = u64::try_from(held).unwrap_or(u64::MAX);
        if bytes == self.accounted {
            return;
        }
        if let Some(db) = state.db() {
            db.memory()
                .change(MemoryUse::Clients, self.accounted, bytes);
            self.accounted = bytes;
        }
    }

    /// Drops the buffers of a connection that ends, and subtracts their bytes from the accounted memory.
    pub(crate) fn unaccount(&mut self, state: &State) {
        self.replies = Replies::default();
        self.input = Input::default();
        self.parser = Parser::new();
        self.session.block = None;
        (self.gathered, self.under_way) = (0, 0);
        self.account(state);
    }
}

/// All connections. Each connection has a small index, which is also its token in the poller.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
}

impl Connections {
    /// Returns an index for a new connection.
    pub(crate) fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        })
    }

    /// Frees an index.
    pub(crate) fn release(&mut self, index: usize) {
        self.free.push(index);
    }

    /// Returns the number of slots, including free slots.
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the client of this seat is still connected, and its connection is in its slot.
    pub(crate) fn holds(&self, seat: Seat) -> bool {
        let connection = self.slots.get(seat.index).and_then(Option::as_deref);
        connection.is_some_and(|connection| connection.session.seat == seat)
    }

    /// Removes a connection from a slot, so that the connection can run while the state is borrowed mutably.
    pub(crate) fn take(&mut self, index: usize) -> Option<Box<Connection>> {
        self.slots.get_mut(index)?.take()
    }

    /// Returns the connection in a slot. `None`: the slot is empty, or its connection is taken out.
    pub(crate) fn get(&self, index: usize) -> Option<&Connection> {
        self.slots.get(index)?.as_deref()
    }

    /// Puts a connection back.
    pub(crate) fn put(&mut self, index: usize, connection: Box<Connection>) {
        debug_assert!(self.slots[index].is_none(), "the place was left empty");
        self.slots[index] = Some(connection);
    }

    /// Returns mutable references to the connections that are in their slots, with their indices.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Connection)> {
        self.slots
            .iter_mut()
            .enumerate()
            .filter_map(|(i, slot)| Some((i, slot.as_deref_mut()?)))
    }

    /// Returns the connections that are in their slots, with their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Connection)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(i, slot)| Some((i, slot.as_deref()?)))
    }
}
