//! The turns of the connections that are ready.

use super::{EventLoop, HEAVY_SHARE, LIGHT_SHARE};
use crate::connection::early::{EARLY_READS, read_group};
use std::time::Instant;

impl EventLoop {
    /// Gives each ready connection a turn, or defers it. After each group of connections the loop checks whether a
    /// write of the log has completed.
    pub(super) fn run_ready(&mut self, ready: &[usize]) {
        for group in ready.chunks(EARLY_READS) {
            // A late round defers its connections, so reading their bytes early would only copy them once more.
            if self.takes_requests() && !self.is_late() {
                read_group(&mut self.state, group, &mut self.early);
            }
            for index in group {
                self.take_turn(*index);
            }
            self.tend_log();
        }
    }

    /// Returns whether the round has no time for more turns. It is checked before each turn, because a turn's
    /// duration is known only afterwards.
    fn is_late(&self) -> bool {
        self.state.clock > self.state.now + LIGHT_SHARE
    }

    /// Runs a connection, or puts it into the queue `heavy`.
    fn take_turn(&mut self, index: usize) {
        let late = self.is_late();
        match self.state.connections.take(index) {
            Some(mut connection) if connection.heavy || late => {
                connection.keep_early(&mut self.state, &self.early);
                self.state.connections.put(index, connection);
                self.heavy.push_back(index);
                self.keep_share();
            }
            Some(connection) => {
                self.state.connections.put(index, connection);
                self.advance(index);
            }
            None => {}
        }
    }

    /// Runs connections of the queue `heavy`, after all other connections. Runs at least one, and then more until a
    /// time limit. The limit is the time that the round's light connections took, but at least [`HEAVY_SHARE`] and at
    /// most [`LIGHT_SHARE`]. The remaining connections run in the next rounds.
    pub(super) fn advance_heavy(&mut self) {
        if self.heavy.is_empty() {
            return;
        }
        let begin = Instant::now();
        let share = begin.saturating_duration_since(self.state.now);
        while let Some(index) = self.heavy.pop_front() {
            self.advance(index);
            if begin.elapsed() > share.clamp(HEAVY_SHARE, LIGHT_SHARE) {
                break;
            }
        }
    }

    /// Lets each command that runs in steps take one step. Stops when the round's time for these commands is used. The
    /// remaining commands come first in the next round.
    pub(super) fn advance_jobs(&mut self) {
        if self.state.jobs.is_empty() {
            return;
        }
        if !self.takes_requests() {
            return self.state.drop_jobs();
        }
        let begin = Instant::now();
        for _ in 0..self.state.jobs.count() {
            self.state.step_job();
            self.keep_share();
            if begin.elapsed() > HEAVY_SHARE {
                break;
            }
        }
    }
}
