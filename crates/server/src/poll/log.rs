//! The loop's work for the log: it releases replies that may leave, and decides when the log writes.

use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mio::Interest;
use mio::unix::SourceFd;
use perdura_base::num::to_u64;

use super::{EventLoop, LOG};
use crate::engine::{Db, Durability, outcome_unknown};
use crate::stalled::Listener;

/// The longest time for which a busy loop lets clients wait for the log. After this time the loop wakes the flusher.
const PATIENCE: Duration = Duration::from_micros(1000);
/// The longest time for which a busy loop lets clients with pipelines wait for the log. After this time the loop begins
/// a write of the log that completes by itself.
const PATIENCE_WITH_PIPELINES: Duration = Duration::from_micros(250);
/// The loop assumes pipelines if at least this many requests have run for each waiting client.
const PIPELINE: u64 = 4;

impl EventLoop {
    /// Registers the completions of the log's writes with the poller, if the log can write without a thread.
    /// Completions then wake the loop.
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

    /// Releases the replies to writes that have become durable since the round began. Makes the log write the waiting
    /// records.
    pub(super) fn tend_log(&mut self) {
        let Some(db) = self
            .state
            .db()
            .filter(|_| self.log_completes && !self.waiting.is_empty())
        else {
            return;
        };
        // Another loop may have collected.
        if !db.collect() && !self.state.peers.several() {
            return;
        }
        self.state.reached = db.reached();
        if self.state.reached != self.flushed {
            self.flushed = self.state.reached;
            self.owe_from(self.state.now);
            self.flush_waiting();
        }
    }

    /// Answers waiting clients if the log cannot be written; see [`crate::stalled`].
    pub(super) fn answer_stalled(&mut self) {
        let Some(db) = self.state.db() else {
            return;
        };
        let is_stuck = !self.waiting.is_empty() && db.is_stuck();
        let reached = db.reached();
        let stuck = self.stalled.look(is_stuck, reached, self.state.now);
        if stuck.is_empty() {
            return;
        }
        let error = outcome_unknown(db.is_disk_full());
        let waiting: Vec<(usize, u64)> = self.waiting.clone();
        for (index, id) in waiting {
            let Some(mut connection) = self.state.connections.take(index) else {
                continue;
            };
            if connection.session.seat.id == id {
                let listener = Listener {
                    subscribes: connection.session.subscriptions.is_some(),
                    monitors: connection.session.monitors,
                };
                let replies = &mut connection.replies;
                replies.give_up(stuck, listener, reached, &error);
            }
            self.state.connections.put(index, connection);
        }
        self.flush_waiting();
    }

    /// Notes that the clients' present wait began at `then`. The clients wait until the durable epoch advances.
    pub(super) fn owe_from(&mut self, then: Instant) {
        self.owed_since = then;
        self.owed_from = self.state.stats.commands;
    }

    /// Starts a parallel write of the log if the loop is busy and clients have waited for long. An idle loop needs no
    /// parallel write: it writes the log itself before it sleeps, which costs least.
    ///
    /// If clients send one request at a time, the loop will soon be idle, because the clients wait for replies. If
    /// clients send pipelines, the loop stays busy. The kernel can then write in parallel, without a thread that must
    /// be woken.
    pub(super) fn keep_log_going(&mut self) {
        let Some(db) = self.state.db() else {
            return;
        };
        if !self.waiting.is_empty() {
            if self.log_completes {
                // Completions are collected first, so that the next write begins before the replies of the
                // completed write leave.
                db.collect();
            }
            db.ship();
            if !self.needs_disk(db) {
                self.state.reached = db.reached();
                return;
            }
            let ran = self.state.stats.commands.saturating_sub(self.owed_from);
            let pipelines = ran >= PIPELINE * to_u64(self.waiting.len());
            let owed = self.owed_since.elapsed();
            if self.log_completes && pipelines && owed > PATIENCE_WITH_PIPELINES {
                db.begin_log_write();
            } else if owed > PATIENCE {
                db.nudge();
            }
        }
        self.state.reached = db.reached();
    }

    pub(super) fn flush_waiting(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut disk_waits = false;
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
            disk_waits |= waits && connection.session.durability == Durability::Disk;
            self.put_back(*index, connection, flushed);
            waits
        });
        self.waiting = waiting;
        self.disk_waits = disk_waits;
    }

    /// Returns whether clients wait for the log's disk. Returns false only if the log is mirrored on nodes, no
    /// waiting reply needs the disk, and no client waits in WAITDUR.
    pub(super) fn needs_disk(&self, db: &Db) -> bool {
        self.disk_waits || !self.state.rung_waits.is_empty() || !db.is_mirrored()
    }
}
