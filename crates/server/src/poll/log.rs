//! The loop and the log: whose replies may leave, and when the log writes.

use std::io;
use std::os::fd::AsRawFd;

use mio::Interest;
use mio::unix::SourceFd;

use super::{EventLoop, LOG};
use crate::engine::Db;

impl EventLoop {
    /// Has completions of the log's writes wake the loop, if they complete by themselves.
    pub(super) fn hear_completions(&mut self, db: &Db) -> io::Result<()> {
        if let Some(ring) = db.completions() {
            let mut source = SourceFd(&ring.as_raw_fd());
            self.poll
                .registry()
                .register(&mut source, LOG, Interest::READABLE)?;
            self.log_completes = true;
        }
        Ok(())
    }

    /// Lets replies leave that have become durable while the loop serves others, and has written what waits.
    pub(super) fn tend_log(&mut self) {
        let Some(db) = self
            .state
            .db()
            .filter(|_| self.log_completes && !self.waiting.is_empty())
        else {
            return;
        };
        if !db.collect() {
            return;
        }
        self.state.reached = db.reached();
        if self.state.reached != self.flushed {
            self.flushed = self.state.reached;
            self.owed_since = self.state.now;
            self.flush_waiting();
        }
    }

    pub(super) fn flush_waiting(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|(index, id)| {
            let Some(mut connection) = self.state.connections.take(*index) else {
                return false;
            };
            let same = connection.session.seat.id == *id;
            if !same || !connection.listed {
                self.state.connections.put(*index, connection);
                return false;
            }
            let flushed = connection.flush(&mut self.state);
            let waits = flushed.is_ok() && connection.replies.waits();
            connection.listed = waits;
            self.put_back(*index, connection, flushed);
            waits
        });
        self.waiting = waiting;
    }
}
