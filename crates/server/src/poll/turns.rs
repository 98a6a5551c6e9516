//! The turns of the connections that are ready.

use super::{EventLoop, HEAVY_SHARE, LIGHT_SHARE};
use crate::connection::early::{EARLY_READS, read_group};
use std::time::Instant;

impl EventLoop {
    /// Gives each of these connections its turn, or puts it behind the others. After each group it checks
    /// whether a write of the log has completed.
    pub(super) fn run_ready(&mut self, ready: &[usize]) {
        for group in ready.chunks(EARLY_READS) {
            // A late round defers its connections, so bytes that are read early would only be copied.
            if self.takes_requests() && !self.is_late() {
                read_group(&mut self.state, group, &mut self.early);
            }
            for index in group {
                self.take_turn(*index);
            }
            self.tend_log();
        }
    }

    /// Returns whether the round has no time for more turns. The duration of a turn is known only after it, and
    /// any connection may take long.
    fn is_late(&self) -> bool {
        self.state.clock > self.state.now + LIGHT_SHARE
    }

    /// Runs a connection, or puts it behind the others.
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

    /// Runs the connections whose last turn took long, and those for which the round had no time, behind all
    /// others. It runs at least one, and as many as fit into their share of the round: the time that the other
    /// connections took, or a little more. The remaining ones run in the next rounds.
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

    /// Lets commands that run in steps take one step each, as far as that fits into their share of the round.
    /// The remaining commands come first in the next round.
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
