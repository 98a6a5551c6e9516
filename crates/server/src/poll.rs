//! The event loop: one thread serves all sockets of its clients. A server may have several loops, each with its clients
//! ([`crate::crew`]).
//!
//! In a round the loop sleeps until something happens, then reads from and runs *every* ready connection. If a reply
//! waits, the loop makes the log write the new records. It then checks which epochs have become durable. Finally it
//! writes every reply that may leave.
//!
//! A loop with nothing left to run writes and syncs the log itself. If the loop is busy and clients wait for
//! the log, it has two ways to write in parallel. It makes the flusher write, or it begins a write that
//! completes by itself and wakes the loop like a socket.
//!
//! Polling is edge-triggered. A connection's turn may end before its socket is empty. The connection then remembers
//! that its socket is readable, and continues in the next round. So no client can block all clients.

mod alone;
mod ending;
mod handshakes;
mod log;
mod memory;
mod messages;
mod strangers;
mod stuck;
mod turns;
mod upkeep;

pub(crate) use ending::{Ended, Ending};

use crate::command::After;
use crate::command::wait::expire;
use crate::connection::Connection;
use crate::connection::early::EarlyBuffer;
use crate::control::Message;
use crate::crew::Crew;
use crate::engine::{Durability, Epoch, Reached};
use crate::gate::Gate;
use crate::net::Listener;
use crate::options::ServeError;
use crate::signals::Signals;
use crate::stalled::Stalled;
use crate::state::Stage;
use crate::state::peers::LockedState;
use crate::supervise::Supervisor;
use ending::Stopping;
use handshakes::Handshakes;
use mio::event::Event;
use mio::{Events, Poll, Token};
use parking_lot::ArcMutexGuard;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// The waker's token.
pub(crate) const WAKER: Token = Token(usize::MAX - 1);
const SIGNAL: Token = Token(usize::MAX - 2);
/// The token of the events that report completed writes of the log.
const LOG: Token = Token(usize::MAX - 3);
/// The token of the first connection. Lower tokens are listeners.
const CONNECTIONS: usize = 1024;
/// The maximum number of bytes of one read.
const READ_BYTES: usize = 128 * 1024;
/// The time that a round gives to commands that run in steps. The round gives handshakes the same amount of time, and
/// connections in `heavy` at least this amount.
const HEAVY_SHARE: Duration = Duration::from_millis(2);
/// The age of a round at which it defers its remaining connections. In the next round they run after the connections
/// that the poller reports.
const LIGHT_SHARE: Duration = Duration::from_millis(5);
/// The time between two ticks. At a tick the loop does its upkeep.
const TICK: Duration = Duration::from_millis(100);
/// The time that clients may take to read their last replies when the server ends.
const FAREWELL: Duration = Duration::from_millis(1500);

/// The loop and what it owns.
pub(crate) struct EventLoop {
    poll: Poll,
    listeners: Vec<Listener>,
    signals: Option<Signals>,
    /// The state of the loop. It is unlocked while the loop sleeps.
    state: LockedState,
    crew: Crew,
    messages: Receiver<Message>,
    gate: Arc<Gate>,
    buffer: Box<[u8]>,
    /// The bytes that connections sent before their turns.
    early: EarlyBuffer,
    /// Connections to run in the next round even if the poller does not report them.
    again: Vec<usize>,
    /// Connections that had a long last turn. They run in this order.
    heavy: VecDeque<usize>,
    /// Connections to flush in this round.
    touched: Vec<usize>,
    /// The index and the id of each connection whose replies wait for the disk. The id is needed because the index may
    /// meanwhile belong to a newer connection.
    waiting: Vec<(usize, u64)>,
    /// True if a connection in `waiting` waits for the log's disk.
    disk_waits: bool,
    /// The durable epochs at the last flush of the connections in `waiting`.
    flushed: Reached,
    /// The time at which the clients' present wait began. The clients wait until the durable epoch advances.
    owed_since: Instant,
    /// The number of commands run before `owed_since`.
    owed_from: u64,
    /// For each rung, the time since which the log has been stuck and the rung has not advanced.
    stalled: Stalled,
    /// True if the log's writes need no thread: their completion wakes the loop.
    log_completes: bool,
    accept_pending: bool,
    /// True if the last round had no time to accept all waiting newcomers.
    newcomers_left: bool,
    /// The time of the last log line about a failure to accept connections. `None`: no such line yet.
    complained: Option<Instant>,
    /// Connections in a TLS handshake.
    handshakes: Handshakes,
    /// The one client with large buffers that is still read when the clients' share is nearly full. `None`: no client
    /// is chosen.
    reader: Option<memory::Reader>,
    stopping: Option<Stopping>,
    ticked: Instant,
    /// The time at which the counters were last read, and their values at that time. The counters are the numbers of
    /// commands, bytes read and bytes written.
    counted: (Instant, [u64; 3]),
}

impl EventLoop {
    /// Returns a loop without listeners.
    pub(crate) fn new(
        poll: Poll,
        state: LockedState,
        crew: Crew,
        messages: Receiver<Message>,
    ) -> Self {
        let now = Instant::now();
        let gate = Arc::clone(&state.control.gate);
        let waker = Arc::clone(&gate);
        EventLoop {
            gate,
            poll,
            listeners: Vec::new(),
            signals: None,
            state,
            crew,
            messages,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            early: EarlyBuffer::new(),
            again: Vec::new(),
            heavy: VecDeque::new(),
            touched: Vec::new(),
            waiting: Vec::new(),
            disk_waits: false,
            flushed: Reached::new(|_| Epoch(0)),
            owed_since: now,
            owed_from: 0,
            stalled: Stalled::default(),
            log_completes: false,
            accept_pending: false,
            newcomers_left: false,
            complained: None,
            handshakes: Handshakes::new(Arc::new(move || waker.wake())),
            reader: None,
            stopping: None,
            ticked: now,
            counted: (now, [0; 3]),
        }
    }

    /// Makes the loop accept connections from bound listeners. `signals` has the signals that the loop acts on.
    pub(crate) fn lead(
        &mut self,
        mut listeners: Vec<Listener>,
        mut signals: Option<Signals>,
    ) -> io::Result<()> {
        let registry = self.poll.registry();
        for (i, listener) in listeners.iter_mut().enumerate() {
            listener.register(registry, Token(i))?;
        }
        if let Some(signals) = &mut signals {
            signals.register(registry, SIGNAL)?;
        }
        (self.listeners, self.signals) = (listeners, signals);
        Ok(())
    }

    /// Makes the loop report to the service manager that started this process, if there is one.
    pub(crate) fn supervise(&mut self) {
        self.state.supervisor = Supervisor::from_environment();
    }

    /// Runs the loop until a message, a signal or a client ends the loop.
    pub(crate) fn run(mut self) -> Result<Ended, ServeError> {
        let mut events = Events::with_capacity(1024);
        loop {
            self.sleep(&mut events)?;
            self.round(&events)?;
            if let Some(how) = self.ended() {
                let db = match self.state.stage {
                    Stage::Ready(ref db) => Some(db.clone()),
                    Stage::Loading(_) => None,
                };
                return Ok(Ended { db, how });
            }
        }
    }

    /// Serves the connections from the poller and the remaining connections of earlier rounds.
    fn round(&mut self, events: &Events) -> Result<(), ServeError> {
        self.state.begin_round();
        let mut ready = std::mem::take(&mut self.again);
        for event in events {
            self.note(event, &mut ready);
        }
        while let Ok(message) = self.messages.try_recv() {
            self.handle(message)?;
        }
        self.run_ready(&ready);
        ready.clear();
        self.collect_handshakes();
        self.advance_heavy();
        self.advance_jobs();
        self.run_alone();
        self.state.land();
        let now = Instant::now();
        expire(&mut self.state, now);
        self.state.end_pause(now);
        self.state.tend_passwords(now);
        self.state.end_wait_for_log();
        self.state.end_wait_for_loading();
        self.state.common.tell_prefixes();
        self.state.read_mail();
        self.flush_round();
        self.squeeze();
        self.accept();
        self.tick();
        self.note_crowd();
        self.state.end_round();
        Ok(())
    }

    /// Waits for something to do. If clients wait for the disk and no request is left to run, the loop flushes the log
    /// itself. To wake the flusher thread would take longer than the sync.
    fn sleep(&mut self, events: &mut Events) -> io::Result<()> {
        if let Some(db) = self.state.db().filter(|_| self.owes()) {
            let db = db.clone();
            self.look(events, Duration::ZERO)?;
            if !events.is_empty() || ArcMutexGuard::unlocked(&mut self.state, || db.ship_here()) {
                return Ok(());
            }
            if self.needs_disk(&db) {
                if ArcMutexGuard::unlocked(&mut self.state, || db.flush_here()) {
                    return Ok(());
                }
                db.begin_log_write();
            }
        }
        // A command in steps may wait for room in the log, too.
        let pause = &self.state.pause;
        let waits =
            pause.waits_for_log() || pause.waits_for_loading() || !self.state.jobs.is_empty();
        self.gate.lie_down(waits || self.is_waited_for());
        let advanced = self.is_waited_for()
            && self
                .state
                .db()
                .is_some_and(|db| db.reached() != self.flushed);
        let caught_up = self.state.pause.waits_for_log()
            && !self
                .state
                .db()
                .is_some_and(|db| self.state.pause.still_waits(db));
        let mail = !self.state.mailbox().is_empty();
        let landed = self.state.beside.has_landings(&self.state.common.flights);
        let loaded = self.state.has_loaded();
        let busy = advanced || caught_up || loaded || mail || landed || self.has_work();
        let timeout = if busy {
            Duration::ZERO
        } else {
            self.patience()
        };
        let result = self.look(events, timeout);
        self.gate.get_up();
        result
    }

    /// Returns the longest time that the loop may sleep without an event.
    fn patience(&self) -> Duration {
        let state = &self.state;
        let deadlines = [
            state.pause.until(),
            state.deadlines.next(),
            state.rung_waits.next_deadline(),
            state.prover.next_deadline(),
        ];
        match deadlines.into_iter().flatten().min() {
            Some(at) => at.saturating_duration_since(Instant::now()).min(TICK),
            None => TICK,
        }
    }

    /// Returns whether clients wait for an epoch that is not durable yet, and no connection has requests
    /// left.
    fn owes(&self) -> bool {
        self.is_waited_for() && !self.has_work()
    }

    /// Returns whether replies wait for the log, or clients wait in WAITDUR.
    fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty() || !self.state.rung_waits.is_empty()
    }

    /// Returns whether the loop has something to run even if the poller reports nothing.
    fn has_work(&self) -> bool {
        let queued = !self.again.is_empty() || !self.heavy.is_empty();
        queued || self.newcomers_left || self.handshakes.left || self.state.has_jobs()
    }

    fn look(&mut self, events: &mut Events, timeout: Duration) -> io::Result<()> {
        let poll = &mut self.poll;
        let polled = ArcMutexGuard::unlocked(&mut self.state, || poll.poll(events, Some(timeout)));
        match polled {
            Err(e) if e.kind() == ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            other => other,
        }
    }

    /// Handles an event of the poller. If a connection must run because of the event, adds its index to `ready`.
    fn note(&mut self, event: &Event, ready: &mut Vec<usize>) {
        match event.token() {
            WAKER => self.look_for_stop(),
            // This event has only woken the loop. The loop collects completions in every round.
            LOG => {}
            SIGNAL => self.heed_signals(),
            Token(token) if token < CONNECTIONS => self.accept_pending = true,
            Token(token) => {
                let index = token - CONNECTIONS;
                if let Some(mut connection) = self.state.connections.take(index) {
                    connection.readable |= event.is_readable() || event.is_read_closed();
                    connection.hung_up |= event.is_read_closed();
                    if event.is_writable() && connection.full {
                        connection.has_taken();
                        self.touched.push(index);
                    }
                    if !std::mem::replace(&mut connection.queued, true) {
                        ready.push(index);
                    }
                    self.state.connections.put(index, connection);
                }
            }
        }
    }

    /// Reads and runs one connection.
    fn advance(&mut self, index: usize) {
        if !self.takes_requests() {
            return;
        }
        let Some(mut connection) = self.state.connections.take(index) else {
            return;
        };
        connection.queued = false;
        if self.waits_in_vain(&connection) {
            return self.part(index, connection);
        }
        match connection.advance(&mut self.state, &mut self.buffer, &self.early) {
            // The client may have hung up right after it sent the request that now waits.
            Ok(After::Continue) if self.waits_in_vain(&connection) => {
                self.part(index, connection);
            }
            Ok(after) => {
                self.hand_over(&mut connection);
                connection.account(&self.state);
                self.state.connections.put(index, connection);
                self.touched.push(index);
                self.keep_share();
                if let After::Shutdown { checkpoint } = after {
                    self.stop(Ending::Asked { checkpoint });
                }
            }
            Err(()) => self.close(index, connection),
        }
    }

    /// Returns whether a client has hung up while it waits for another client or for the end of a pause. The waiting
    /// requests of such a client are not run. A client that waits for the log or for a password may have closed only
    /// the sending side. It still gets its replies.
    fn waits_in_vain(&self, connection: &Connection) -> bool {
        let id = connection.session.seat.id;
        let blocking = &self.state.common.blocking;
        let waits = || blocking.with(|blocking| blocking.get(id).is_some());
        connection.hung_up && (connection.session.in_pause || waits())
    }

    /// Ends the waiting of a client that has hung up. The connection is closed once its replies have left.
    fn part(&mut self, index: usize, mut connection: Box<Connection>) {
        if connection.replies.unsent() == 0 {
            return self.close(index, connection);
        }
        self.state.stop_waiting(&connection.session);
        connection.closing = true;
        connection.account(&self.state);
        self.state.connections.put(index, connection);
        self.touched.push(index);
    }

    /// Wakes the flusher. Then writes the replies that may leave, to the connections of this round and to the waiting
    /// connections.
    fn flush_round(&mut self) {
        // The other loops must know the epoch before a reply leaves that shows it.
        self.state.share_newest();
        if self.waiting.is_empty() {
            self.owe_from(self.state.now);
        }
        self.touched.append(&mut self.state.touched);
        for at in 0..self.touched.len() {
            self.list_if_waiting(self.touched[at]);
        }
        self.keep_log_going();
        let now = self.state.now;
        self.state.end_rung_waits(now);
        self.touched.append(&mut self.state.touched);
        if self.state.stopped.is_some() {
            self.abandon_waiting();
        }
        let mut touched = std::mem::take(&mut self.touched);
        for index in touched.drain(..) {
            self.flush(index);
        }
        self.touched = touched;
        if self.state.reached != self.flushed {
            self.flushed = self.state.reached;
            self.owe_from(self.state.now);
            self.flush_waiting();
        }
    }

    fn list_if_waiting(&mut self, index: usize) {
        if let Some(mut connection) = self.state.connections.take(index) {
            if connection.replies.waits_firmly() {
                self.list(index, &mut connection);
            }
            self.state.connections.put(index, connection);
        }
    }

    fn list(&mut self, index: usize, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.listed, true) {
            self.waiting.push((index, connection.session.seat.id));
            self.disk_waits |= connection.session.durability == Durability::Disk;
        }
    }

    fn flush(&mut self, index: usize) {
        if let Some(mut connection) = self.state.connections.take(index) {
            let flushed = connection.flush(&mut self.state);
            // A `mem` reply that could not leave in time waits for the disk from now on.
            if connection.replies.waits() {
                self.list(index, &mut connection);
            }
            self.put_back(index, connection, flushed);
        }
    }

    /// Puts a connection back after a flush, or closes it.
    fn put_back(&mut self, index: usize, mut connection: Box<Connection>, flushed: Result<(), ()>) {
        if flushed.is_err() {
            return self.close(index, connection);
        }
        let runs = connection.ready(&self.state) && self.takes_requests();
        if runs && !std::mem::replace(&mut connection.queued, true) {
            self.again.push(index);
        }
        self.state.connections.put(index, connection);
    }

    fn close(&mut self, index: usize, mut connection: Box<Connection>) {
        if connection.stream.handshaking() {
            self.handshakes.forget(connection.session.seat.id);
        }
        connection.stream.farewell();
        // Deregistering fails if the socket is gone. Closing the socket is enough.
        let _ = connection.stream.deregister(self.poll.registry());
        connection.unaccount(&self.state);
        self.state.forget(&mut connection.session);
        self.state.forget_stranger(connection.session.seat);
        self.release(index);
    }

    /// Frees the index of a client that has left.
    fn release(&mut self, index: usize) {
        self.state.connections.release(index);
        self.state.common.crowd.leave(self.state.event_loop);
    }
}
