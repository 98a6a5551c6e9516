//! Requests that are deferred for a while: by CLIENT PAUSE, and writes while the log is behind.
//!
//! A deferred request stays in its connection's input, and no part of it has run. When the pause ends, the
//! connection runs again from that request on.
//!
//! During CLIENT PAUSE nothing is appended to the log. The purge of expired keys stops. Commands that write in
//! steps take no step (`jobs`), and clients that wait for a key are not served (`command::wait`). Copying the
//! directory of a running server relies on all this (docs/operate/back-up.md).

use crate::acl::catalog::CATALOG;
use crate::command::wait::serve;
use crate::command::{Command, flag};
use crate::engine::{Db, Tx};
use crate::pubsub::Seat;
use crate::resp::parse::Args;
use crate::session::Session;
use crate::state::State;
use std::time::Instant;

/// The deferred clients, the kind of the pause, and its end.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    until: Option<Instant>,
    all: bool,
    kept: Vec<Seat>,
    /// The clients whose writes wait for the log.
    behind: Vec<Seat>,
    /// The most room in the log that a request of the clients in `behind` needs, bytes.
    behind_bytes: usize,
}

impl Pause {
    /// Returns the time at which the pause ends by itself. `None`: there is no pause.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Returns whether writes wait for the log.
    pub(crate) fn waits_for_log(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Returns whether the log still lacks the room for the clients in `behind`.
    pub(crate) fn still_waits(&self, db: &Db) -> bool {
        db.is_behind(self.behind_bytes)
    }
}

impl State {
    /// Defers writes, or with `all` every request. If two pauses overlap, the later end and the wider kind
    /// apply.
    pub(crate) fn pause(&mut self, until: Instant, all: bool) {
        if let Some(db) = self.db() {
            db.hold_purge(true);
        }
        let pause = &mut self.pause;
        pause.all |= all;
        pause.until = Some(pause.until.map_or(until, |before| before.max(until)));
        debug_assert!(pause.until >= Some(until), "a pause is never made shorter");
    }

    /// Ends the pause.
    pub(crate) fn unpause(&mut self) {
        self.pause.until = None;
        self.pause.all = false;
        if let Some(db) = self.db() {
            db.hold_purge(false);
        }
        let kept = std::mem::take(&mut self.pause.kept);
        self.let_on(kept);
    }

    /// Lets the clients continue whose writes waited for the log, if the log has caught up or takes no more
    /// writes.
    pub(crate) fn end_wait_for_log(&mut self) {
        if self.pause.waits_for_log() && !self.db().is_some_and(|db| self.pause.still_waits(db)) {
            self.pause.behind_bytes = 0;
            let behind = std::mem::take(&mut self.pause.behind);
            self.let_on(behind);
        }
    }

    /// Lets clients continue whose requests were postponed.
    pub(crate) fn let_on(&mut self, seats: Vec<Seat>) {
        for seat in seats {
            let Some(mut connection) = self.connections.take(seat.index) else {
                continue;
            };
            if connection.session.seat == seat {
                connection.postponed = false;
                connection.session.in_pause = false;
                self.touch(seat.index);
            }
            self.connections.put(seat.index, connection);
        }
    }

    /// Ends the pause if its time is over.
    pub(crate) fn end_pause(&mut self, now: Instant) {
        if self.pause.until.is_some_and(|until| until <= now) {
            self.unpause();
            serve(self);
        }
    }

    /// Defers a client until the log has room for `bytes`.
    pub(crate) fn keep_back_for_log(&mut self, seat: Seat, bytes: usize) {
        self.pause.behind.push(seat);
        self.pause.behind_bytes = self.pause.behind_bytes.max(bytes);
    }

    /// Returns whether a request must be deferred, and notes its client in that case.
    pub(crate) fn keeps_back(
        &mut self,
        session: &mut Session,
        command: &Command,
        args: &Args<'_>,
    ) -> bool {
        if command.has(flag::WRITE) || command.name == "exec" {
            let bytes = log_bytes(session, command, args);
            let behind = |db: &&Db| may_write(session, command, args) && db.is_behind(bytes);
            if let Some(db) = self.db().filter(behind) {
                // The loop must not wait for the disk, so this client waits.
                db.nudge();
                self.keep_back_for_log(session.seat, bytes);
                return true;
            }
        }
        if self.pause.until.is_none() || !(self.pause.all || may_write(session, command, args)) {
            return false;
        }
        session.in_pause = true;
        self.pause.kept.push(session.seat);
        true
    }
}

fn may_write(session: &Session, command: &Command, args: &Args<'_>) -> bool {
    let block = session.block.as_ref();
    let queued = || {
        let mut queue = block.into_iter().flat_map(|block| &block.queue);
        queue.any(|(command, owned)| writes(command, &owned.args()))
    };
    writes(command, args) || (command.name == "exec" && queued())
}

/// Returns whether Redis defers a request in a pause of writes: the request writes, or a replica may have to
/// repeat it.
fn writes(command: &Command, args: &Args<'_>) -> bool {
    let scripts = command.has(flag::SCRIPTS) && !command.has(flag::READ);
    scripts
        || command.has(flag::WRITE)
        || matches!(command.name, "publish" | "spublish" | "pfcount")
        || (!command.words.is_empty() && CATALOG.entry(command, args).is_write())
}

/// Returns roughly the bytes that a command needs in the log.
fn log_bytes(session: &Session, command: &Command, args: &Args<'_>) -> usize {
    let rows = match &session.block {
        Some(block) if command.name == "exec" => block.bytes + block.writes() * Tx::ROW_BYTES,
        _ if command.has(flag::DENY_OOM) => args.len() * Tx::ROW_BYTES,
        _ => args.len() * Tx::REMOVED_BYTES,
    };
    rows.saturating_add(args.extent())
}
