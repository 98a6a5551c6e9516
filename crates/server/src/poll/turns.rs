//! The turns of the connections that are ready.

use super::{EventLoop, LIGHT_SHARE};
use crate::connection::early::{EARLY_READS, read_group};

impl EventLoop {
    /// Gives each of these connections its turn, or puts it behind the others. After each group it looks
    /// whether a write of the log has completed.
    pub(super) fn run_ready(&mut self, ready: &[usize]) {
        for group in ready.chunks(EARLY_READS) {
            // What is read in a late round would only be kept.
            if self.takes_requests() && !self.is_late() {
                read_group(&mut self.state, group, &mut self.early);
            }
            for index in group {
                self.take_turn(*index);
            }
            self.tend_log();
        }
    }

    /// Whether the round has no time for more turns. How long a client's requests take shows only when
    /// they have run: all that have their first turn in this round may be long.
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
}
