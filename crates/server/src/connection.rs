//! A connection: it reads bytes, runs requests and writes replies.
//!
//! Requests are parsed where the read put them. Only the rest of an unfinished request is copied to the
//! connection's own buffer, so that ten thousand idle clients hold no buffers.
//!
//! If a client sends faster than it reads, its requests wait while more than `output_bytes_pause` of replies
//! are unsent ([`backlog`]). Stored requests take less memory than their replies would. So a client that writes
//! all its requests before it reads a reply can finish.

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

/// The most arguments of a request.
const ARGS_MAX: i64 = 1024 * 1024;
/// A connection whose turn took longer than this is run behind the others.
const LONG_TURN: Duration = Duration::from_millis(1);
/// A connection that is sending a request longer than this is run behind the others too, bytes.
const HEAVY_BYTES: usize = 1024 * 1024;
/// A turn ends once its requests have this many bytes in all.
const TURN_BYTES: usize = 64 * 1024;
/// Room that an input has reserved and not filled counts as memory up to this many bytes.
const RESERVED_BYTES: usize = 64 * 1024;
/// A client whose buffers are larger than this is not read while the buffers of all clients are near their
/// limit, bytes.
pub(crate) const HELD_OFF_BYTES: u64 = 64 * 1024;
/// A value may exceed the longest allowed one by this many bytes and still be answered with an error. A
/// longer one disconnects its client.
const SLACK_BYTES: usize = 1024 * 1024;

/// The most bytes that a client may send before AUTH without completing a request. Such a client, a *stranger*,
/// costs less than 16 KiB: these bytes, one more read, the parser's copy of a line, the replies and the
/// connection itself.
const STRANGER_INPUT_BYTES: usize = 4 * 1024;
/// A stranger with more unsent replies than this is not read, bytes.
const STRANGER_OUTPUT_BYTES: usize = 1024;

/// A client.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The socket.
    pub stream: Stream,
    /// The state that the client has chosen.
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
    /// The number of the loop's looks in a row at which this client and the server waited for each other.
    stuck: u32,
    /// True if it runs nothing more and closes once its replies have left.
    pub closing: bool,
    /// True if it runs nothing until another thread or another client has an answer for it.
    pub blocked: bool,
    /// True if it is in the loop's list of connections that wait for the disk.
    pub listed: bool,
    /// True if it is in the loop's list of connections to run. Announcing it again does not add it a second
    /// time.
    pub queued: bool,
    /// True if its last turn took long or its next turn may. Other connections run first.
    pub heavy: bool,
    /// True if it is to be closed at once, whatever replies it still has.
    pub doomed: bool,
    /// True if its next request is deferred: during CLIENT PAUSE, until the log has room, until a password is
    /// checked, or until the command beside the loop has landed.
    pub postponed: bool,
    /// Bytes that its command, which runs in steps, has gathered so far.
    pub gathered: usize,
    /// Bytes of the request that is run in steps.
    pub under_way: usize,
    /// The index in the input at which the request that runs in steps began.
    run_from: usize,
    /// The time since which its unread replies exceed the soft limit.
    patience: Patience,
    /// Bytes accounted to the database's memory.
    accounted: u64,
    /// Bytes it has sent so far.
    pub received: u64,
    /// The result of an early read, which its next turn takes. `None`: it has not been read early.
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

    /// Returns whether there is something to do without waiting for the poller.
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

    /// Returns whether its socket is not read for now. That is so if the buffers of all clients are near their
    /// limit, its own are large, and another client has been chosen to be read.
    pub(crate) fn held_off(&self, state: &State) -> bool {
        let another = |id| id != self.session.seat.id;
        let squeezed = state.client_share.is_some() && state.squeezed.is_some_and(another);
        squeezed && self.accounted > HELD_OFF_BYTES
    }

    /// Runs the bytes of an early read. If there was no early read, reads once and runs those bytes. `Err`: the
    /// connection is dead.
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

    /// Takes bytes that were read from the client, and runs the complete requests.
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

    /// Stores bytes that are not run yet. The room for a large request grows in a few steps. A step depends on
    /// the bytes that have arrived, so a client cannot reserve much memory by announcing a large size.
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

    /// Runs requests from `input` until it ends, or until a condition forbids more. Returns the number of
    /// consumed bytes.
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
                        After::Postpone | After::Behind(_) | After::Held => {
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

    /// Returns whether the requests that were parsed together with the last one may still run. After RESET the
    /// client is a stranger, whose requests must be parsed with stricter limits.
    fn goes_on(&self, state: &State) -> bool {
        self.session.authenticated && self.open(state)
    }

    /// Replies with an error and closes.
    pub(crate) fn refuse(&mut self, state: &State, error: &str) {
        Out::new(&mut self.replies.buf, self.session.resp3).error(error);
        self.replies.seal(Rest::NOTHING, state.reached);
        self.closing = true;
    }

    /// Closes a connection that speaks another protocol. No answer is sent, because only a web page would see
    /// it.
    fn expel(&mut self, state: &mut State, foreign: Foreign) {
        self.doomed = true;
        self.unaccount(state);
        let (id, peer) = (self.session.seat.id, &self.session.peer);
        state.note_foreign(foreign, id, peer);
    }

    /// Disconnects a client whose input exceeds the client's limit.
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

    /// Returns whether it is idle and holds empty buffers that [`Connection::rest`] would free.
    pub(crate) fn could_rest(&self) -> bool {
        let idle = self.replies.unsent() == 0 && !self.replies.waits();
        idle && (self.replies.buf.capacity() > 0
            || (self.input.is_empty() && self.input.capacity() > 0))
    }

    /// Frees the buffers of a client that has been idle for a while.
    pub(crate) fn rest(&mut self, state: &State) {
        self.input.rest_if_empty();
        if self.replies.unsent() == 0 && self.replies.buf.capacity() > 0 {
            self.replies = Replies::default();
        }
        self.account(state);
    }

    /// Returns the bytes that its unfinished request and its queued transaction hold.
    pub(crate) fn input_held(&self) -> usize {
        // Room that is reserved for a large request and not filled yet takes no memory.
        let room = self.input.capacity().min(RESERVED_BYTES);
        let block = self.session.block.as_ref().map_or(0, |block| block.bytes);
        self.input.len().max(room) + self.parser.bytes() + block + self.under_way
    }

    /// Returns the number of bytes that are known to be missing from the unfinished request.
    pub(crate) fn input_wanted(&self) -> usize {
        self.parser.needed().saturating_sub(self.input.len())
    }

    /// Returns whether a request that was read whole waits for the server: for the log, for the end of a
    /// pause, for its turn, or for its last step.
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

    /// Drops the buffers of a connection that ends, and takes their bytes off the account.
    pub(crate) fn unaccount(&mut self, state: &State) {
        self.replies = Replies::default();
        self.input = Input::default();
        self.parser = Parser::new();
        self.session.block = None;
        (self.gathered, self.under_way) = (0, 0);
        self.account(state);
    }
}

/// All connections, by a small index that becomes the poller's token.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    count: usize,
}

impl Connections {
    /// Returns the number of connections, the running one included.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns an index for a new connection.
    pub(crate) fn reserve(&mut self) -> usize {
        self.count += 1;
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        })
    }

    /// Frees an index.
    pub(crate) fn release(&mut self, index: usize) {
        self.count -= 1;
        self.free.push(index);
    }

    /// Returns the number of slots, the free ones included.
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the client of this seat is still connected and is not taken out.
    pub(crate) fn holds(&self, seat: Seat) -> bool {
        let connection = self.slots.get(seat.index).and_then(Option::as_deref);
        connection.is_some_and(|connection| connection.session.seat == seat)
    }

    /// Takes a connection out of its slot, so that it can run while the state is borrowed mutably.
    pub(crate) fn take(&mut self, index: usize) -> Option<Box<Connection>> {
        self.slots.get_mut(index)?.take()
    }

    /// Returns a connection that is not taken out.
    pub(crate) fn get(&self, index: usize) -> Option<&Connection> {
        self.slots.get(index)?.as_deref()
    }

    /// Puts a connection back.
    pub(crate) fn put(&mut self, index: usize, connection: Box<Connection>) {
        debug_assert!(self.slots[index].is_none(), "the place was left empty");
        self.slots[index] = Some(connection);
    }

    /// Returns the connections that are not taken out, mutably, with their indices.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Connection)> {
        self.slots
            .iter_mut()
            .enumerate()
            .filter_map(|(i, slot)| Some((i, slot.as_deref_mut()?)))
    }

    /// Returns the connections that are not taken out, with their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Connection)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(i, slot)| Some((i, slot.as_deref()?)))
    }
}
