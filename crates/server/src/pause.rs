//! Deferred requests: all that CLIENT PAUSE defers, and writes while the log has no room.
//!
//! A deferred request stays in the connection's input, and no part of the request has run. When the pause ends, the
//! connection continues with that request.
//!
//! During CLIENT PAUSE nothing is appended to the log. The purge of expired keys stops. Commands that run in steps make
//! no progress (`jobs`). Clients that wait for a key are not served (`command::wait`). A copy of a running server's
//! directory relies on all this (docs/operate/back-up.md).

use crate::acl::catalog::CATALOG;
use crate::command::{Command, flag};
use crate::engine::{Db, Tx};
use crate::pubsub::Seat;
use crate::resp::parse::Args;
use crate::session::Session;
use crate::state::State;
use std::time::Instant;

/// The clients that are deferred, and the kind and the end of the pause.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    until: Option<Instant>,
    all: bool,
    kept: Vec<Seat>,
    /// The clients with writes that wait for room in the log.
    behind: Vec<Seat>,
    /// The number of bytes that must be free in the log before the clients in `behind` continue. It is the largest
    /// need of a single request of these clients.
    behind_bytes: usize,
    /// The clients with requests that wait for partitions, which a restart has not loaded yet.
    absent: Vec<Seat>,
    /// The count of ended loadings of partitions before the clients in `absent` last tried.
    loadings: u64,
}

impl Pause {
    /// Returns the time of the pause's end. `None`: there is no pause.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Takes over the kind and the end of another loop's pause.
    pub(crate) fn adopt(&mut self, from: &Pause) {
        (self.until, self.all) = (from.until, from.all);
    }

    /// Returns whether requests wait for partitions.
    pub(crate) fn waits_for_loading(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Returns whether writes wait for the log.
    pub(crate) fn waits_for_log(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Returns whether the log still lacks room for the clients in `behind`.
    pub(crate) fn still_waits(&self, db: &Db) -> bool {
        db.is_behind(self.behind_bytes)
    }
}

impl State {
    /// Defers writes, or every request if `all` is true. If two pauses overlap, the later end and the wider kind
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
        if self.common.blocking.is_in_use() {
            let places = self.common.blocking.with(|blocking| blocking.places());
            self.try_again.extend(places);
        }
    }

    /// Lets the clients in `behind` continue if the log has room again or accepts no more writes.
    pub(crate) fn end_wait_for_log(&mut self) {
        if self.pause.waits_for_log() && !self.db().is_some_and(|db| self.pause.still_waits(db)) {
            self.pause.behind_bytes = 0;
            let behind = std::mem::take(&mut self.pause.behind);
            self.let_on(behind);
        }
    }

    /// Lets clients with deferred requests continue.
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
        }
    }

    /// Defers a client until the log has room for `bytes`.
    pub(crate) fn keep_back_for_log(&mut self, seat: Seat, bytes: usize) {
        self.pause.behind.push(seat);
        self.pause.behind_bytes = self.pause.behind_bytes.max(bytes);
    }

    /// Defers a client until the restart has loaded more partitions.
    pub(crate) fn keep_back_for_loading(&mut self, seat: Seat) {
        self.pause.absent.push(seat);
    }

    /// Returns whether clients wait for partitions, and a loading has ended since they last tried.
    pub(crate) fn has_loaded(&self) -> bool {
        let more = |db: &Db| db.loadings_ended() != self.pause.loadings;
        self.pause.waits_for_loading() && self.db().is_some_and(more)
    }

    /// Lets the clients continue whose requests wait for partitions, if a loading has ended.
    pub(crate) fn end_wait_for_loading(&mut self) {
        if self.has_loaded() {
            // This count comes first. If a partition is loaded after it, the clients try again once more.
            self.pause.loadings = self.db().map_or(0, Db::loadings_ended);
            let absent = std::mem::take(&mut self.pause.absent);
            self.let_on(absent);
        }
    }

    /// Returns whether a request must be deferred, and notes the client of a deferred request.
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

/// Returns whether Redis defers a request while writes are paused. It defers writes, and requests that a replica may
/// have to repeat.
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
