//! The messages of other threads to the loop: see [`Message`].

use super::{Ending, EventLoop};
use crate::command::Told;
use crate::command::server::info::everything;
use crate::command::wait::answer;
use crate::control::Message;
use crate::engine::{Db, Durability, Error, error_text};
use crate::options::ServeError;
use crate::resp::reply::Out;
use crate::signals::Signals;
use crate::state::{Stage, unix_seconds};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl EventLoop {
    /// Does what the signals ask for.
    pub(super) fn heed_signals(&mut self) {
        let Some(wishes) = self.signals.as_mut().map(Signals::heed) else {
            return;
        };
        if wishes.reloads {
            self.state.reload_certificates();
        }
        if wishes.ends {
            self.stop(Ending::Asked { checkpoint: true });
        }
    }

    /// Carries out a message from a thread.
    pub(super) fn handle(&mut self, message: Message) -> Result<(), ServeError> {
        match message {
            Message::Opened(Ok(db)) => self.opened(db)?,
            Message::Opened(Err(error)) => return Err(error.into()),
            Message::Joined { db, at } => self.join(db, at)?,
            Message::Newcomer(newcomer) => self.greet(*newcomer),
            Message::Stop { checkpoint } => {
                // Another loop may have ended because the database has stopped.
                self.look_for_stop();
                self.stop(Ending::Asked { checkpoint });
            }
            // The figures include the keys of all partitions. A transaction holds some of these partitions for long.
            Message::Figures(sender) if self.state.common.flights.any() => {
                let landings = self.state.common.flights.landings();
                self.state.keep_figures(sender, landings);
            }
            // The thread that requested the figures may have stopped waiting for them.
            Message::Figures(sender) => drop(sender.send(everything(&mut self.state))),
            Message::Proved(proved) => self.state.proved(&proved),
            Message::Expired { keys, epoch } => {
                self.state.common.tell_expired(&keys, epoch);
                self.state.try_waiting(keys);
            }
            Message::Saved { client, result } => self.saved(client, &result),
        }
        Ok(())
    }

    /// Serves the database that was opened, and gives it to the other loops.
    fn opened(&mut self, db: Db) -> Result<(), ServeError> {
        debug_assert!(
            matches!(self.state.stage, Stage::Loading(_)),
            "a database opens once"
        );
        let common = Arc::clone(&self.state.common);
        db.on_durable(Box::new(move |durable| common.advanced(durable)));
        let control = self.state.control.clone();
        let common = Arc::clone(&self.state.common);
        db.on_expired(Box::new(move |keys, epoch| {
            common.count_expired(keys.len());
            if common.hears_expired() {
                let keys = keys.to_vec();
                control.send(Message::Expired { keys, epoch });
            }
        }));
        for line in db.report().to_string().lines() {
            tracing::info!("{line}");
        }
        for line in log_io_lines(&db) {
            tracing::info!("{line}");
        }
        for line in in_memory_lines(&db, self.state.options.durability) {
            tracing::warn!("{line}");
        }
        tracing::info!("Ready to accept commands");
        db.hold_purge(self.state.pause.until().is_some());
        let at = unix_seconds();
        self.crew.share(self.state.event_loop, &db, at);
        self.join(db, at)?;
        self.state.tell_supervisor();
        Ok(())
    }

    /// Runs commands with the database from now on. `at` is the time of its opening, seconds since 1970.
    fn join(&mut self, db: Db, at: u64) -> Result<(), ServeError> {
        self.hear_completions(&db)?;
        self.state.reached = db.reached();
        self.state.opened_at = at;
        self.state.stage = Stage::Ready(db);
        self.state.share_memory();
        self.state.note_accesses();
        self.state.load_functions()?;
        Ok(())
    }

    /// Answers the client that waits for SAVE, if it is still there.
    fn saved(&mut self, client: u64, result: &Result<(), Error>) {
        self.state.common.saves.store(false, Ordering::Release);
        let found = self
            .state
            .connections
            .iter()
            .find(|(_, c)| c.session.seat.id == client);
        let Some(index) = found.map(|(index, _)| index) else {
            return;
        };
        let Some(mut connection) = self.state.connections.take(index) else {
            return;
        };
        let resp3 = connection.session.resp3;
        let start = connection.replies.buf.len();
        let mut out = Out::new(&mut connection.replies.buf, resp3);
        match result {
            Ok(()) => out.ok(),
            Err(error) => out.error(&error_text(error)),
        }
        answer(&mut self.state, &mut connection, start, Told::NOTHING);
        self.state.connections.put(index, connection);
        self.touched.push(index);
    }
}

/// Returns log lines about log streams with files in memory. Returns none at the durability `mem`, because replies then
/// do not wait for a disk.
fn in_memory_lines(db: &Db, durability: Durability) -> Vec<String> {
    if durability == Durability::Mem {
        return Vec::new();
    }
    let ways = db.log_ways();
    let named = ways.iter().enumerate();
    let named = named.filter_map(|(stream, way)| way.in_memory.map(|kind| (stream, kind)));
    let line = |(stream, kind)| {
        format!(
            "log stream {stream} is on {kind}, in memory: acknowledged writes do not survive a \
             power cut or a restart of this machine. Give a directory on a disk (--data or \
             --log-dir)"
        )
    };
    named.map(line).collect()
}

/// Returns a log line for each log stream. The line names the kind of write that makes the stream durable, and the
/// reason for choosing that kind.
fn log_io_lines(db: &Db) -> Vec<String> {
    let ways = db.log_ways();
    let several = ways.len() > 1;
    let lines = ways.iter().enumerate().map(|(stream, way)| match several {
        true => format!("Log stream {stream}: {way}"),
        false => format!("Log: {way}"),
    });
    lines.collect()
}
