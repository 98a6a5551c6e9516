//! The requests that run while no other loop runs a round: see [`crate::alone`].

use super::EventLoop;
use parking_lot::ArcMutexGuard;
use std::sync::Arc;

impl EventLoop {
    /// Runs the postponed requests that must run alone, if there are any. Waits until the other loops have ended their
    /// rounds.
    pub(super) fn run_alone(&mut self) {
        let seats = self.state.take_wants_alone();
        if seats.is_empty() {
            return;
        }
        let alone = Arc::clone(&self.crew.alone);
        // Another loop that runs alone needs this loop's state.
        let _turn = ArcMutexGuard::unlocked(&mut self.state, || alone.lock());
        let (own, peers) = (self.state.event_loop, self.state.peers.clone());
        let others = peers.hold_others(own);
        others.iter().for_each(|other| other.share_newest());
        (self.state.others, self.state.runs_alone) = (others, true);
        for seat in seats {
            self.state.let_on(vec![seat]);
            if self.state.connections.holds(seat) {
                self.advance(seat.index);
            }
        }
        self.state.end_alone();
    }
}
