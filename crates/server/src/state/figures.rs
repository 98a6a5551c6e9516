//! The figures of the loops, which INFO adds up.

use crate::state::State;
use crate::stats::Stats;
use std::mem::size_of_val;

/// The figures of one loop.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoopFigures {
    /// The index of the loop.
    pub event_loop: usize,
    /// The counters.
    pub stats: Stats,
    /// The size of the largest input buffer of a client, bytes.
    pub input_max: usize,
    /// The size of the largest output buffer of a client, bytes.
    pub output_max: usize,
    /// The memory of all clients, bytes.
    pub client_bytes: usize,
    /// The number of clients that wait in WAITDUR.
    pub rung_waits: usize,
    /// The number of clients that wait with a deadline.
    pub timeouts: usize,
    /// The number of passwords that argon2id had to try.
    pub tries: u64,
    /// The number of changes that the newest checkpoint does not hold.
    pub unsaved: u64,
    /// The duration of the longest round, microseconds.
    pub longest_us: u64,
    /// The longest processor time of a round, microseconds.
    pub longest_cpu_us: u64,
    /// The duration of all rounds, microseconds.
    pub busy_us: u64,
    /// The number of letters that wait for the loop.
    pub letters: usize,
}

impl LoopFigures {
    /// Returns the figures of a loop.
    pub(crate) fn of(state: &mut State) -> LoopFigures {
        state.look_at_checkpoints();
        let clients = || state.connections.iter().map(|(_, client)| client);
        let input = clients().map(|client| client.input_bytes());
        let output = clients().map(|client| client.replies.buf.capacity());
        let bytes =
            clients().map(|c| size_of_val(c) + c.replies.buf.capacity() + c.input_bytes().0);
        LoopFigures {
            event_loop: state.event_loop,
            stats: state.stats.clone(),
            input_max: input.map(|(held, free)| held + free).max().unwrap_or(0),
            output_max: output.max().unwrap_or(0),
            client_bytes: bytes.sum(),
            rung_waits: state.rung_waits.count(),
            timeouts: state.deadlines.count() + state.rung_waits.timeouts(),
            tries: state.prover.tries(),
            unsaved: state.changes.unsaved(),
            longest_us: state.rounds.longest_us,
            longest_cpu_us: state.rounds.longest_cpu_us,
            busy_us: state.rounds.busy_us(),
            letters: state.mailbox().len(),
        }
    }

    /// Returns the figures of several loops together.
    pub(crate) fn sum(all: &[LoopFigures]) -> LoopFigures {
        let mut sum = LoopFigures::default();
        all.iter().for_each(|one| sum.add(one));
        sum
    }

    /// Adds the figures of another loop.
    fn add(&mut self, other: &LoopFigures) {
        self.stats.add(&other.stats);
        self.input_max = self.input_max.max(other.input_max);
        self.output_max = self.output_max.max(other.output_max);
        self.client_bytes += other.client_bytes;
        self.rung_waits += other.rung_waits;
        self.timeouts += other.timeouts;
        self.tries += other.tries;
        self.unsaved += other.unsaved;
        self.longest_us = self.longest_us.max(other.longest_us);
        self.longest_cpu_us = self.longest_cpu_us.max(other.longest_cpu_us);
        self.busy_us += other.busy_us;
        self.letters += other.letters;
    }
}

impl State {
    /// Returns the figures of each loop, in the order of the loops.
    pub(crate) fn figures_of_loops(&mut self) -> Vec<LoopFigures> {
        // A loop that runs alone has locked the others' states itself.
        let mut all: Vec<LoopFigures> = match self.runs_alone {
            false => self.peers.figures_of_others(self.event_loop),
            true => {
                let held = self.others.iter_mut();
                held.map(|other| LoopFigures::of(other)).collect()
            }
        };
        all.push(LoopFigures::of(self));
        all.sort_by_key(|one| one.event_loop);
        debug_assert!(all.len() <= self.common.loops(), "a loop has figures once");
        all
    }

    /// Returns the figures of all loops together.
    pub(crate) fn figures(&mut self) -> LoopFigures {
        LoopFigures::sum(&self.figures_of_loops())
    }

    /// Publishes this loop's figures for the others, if there are others.
    pub(crate) fn publish_figures(&mut self) {
        if self.peers.several() {
            let figures = LoopFigures::of(self);
            self.peers.publish(self.event_loop, figures);
        }
    }
}
