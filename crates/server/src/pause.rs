//! CLIENT PAUSE: requests that are kept back for a while.
//!
//! A request that is kept back stays unread in its connection's input, and nothing of it has
//! happened. When the pause ends, its connection is run again from there.

use crate::command::{Command, flag};
use crate::pubsub::Seat;
use crate::session::Session;
use crate::state::State;
use std::time::Instant;

/// What is kept back, until when, and whose.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    until: Option<Instant>,
    all: bool,
    kept: Vec<Seat>,
}

impl Pause {
    /// When it ends by itself, if there is one.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }
}

impl State {
    /// Keeps back writes, or everything. Of two pauses the longer time and the wider kind hold.
    pub(crate) fn pause(&mut self, until: Instant, all: bool) {
        let pause = &mut self.pause;
        pause.all |= all;
        pause.until = Some(pause.until.map_or(until, |before| before.max(until)));
    }

    /// Ends the pause.
    pub(crate) fn unpause(&mut self) {
        self.pause.until = None;
        self.pause.all = false;
        for seat in std::mem::take(&mut self.pause.kept) {
            let Some(mut connection) = self.connections.take(seat.index) else {
                continue;
            };
            if connection.session.seat == seat {
                connection.postponed = false;
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

    /// Whether a request is to be kept back, which is then noted.
    pub(crate) fn keeps_back(&mut self, session: &Session, command: &Command) -> bool {
        if self.pause.until.is_none() || !(self.pause.all || may_write(session, command)) {
            return false;
        }
        self.pause.kept.push(session.seat);
        true
    }
}

fn may_write(session: &Session, command: &Command) -> bool {
    let writes = |command: &Command| {
        command.has(flag::WRITE) || matches!(command.name, "publish" | "spublish" | "pfcount")
    };
    let block = session.block.as_ref();
    let queued = || block.is_some_and(|b| b.queue.iter().any(|(command, _)| writes(command)));
    writes(command) || (command.name == "exec" && queued())
}
