//! The states of all loops, as one loop and the threads beside the loops reach them.
//!
//! A loop's state is locked while the loop runs a round, and unlocked while the loop sleeps. Three others lock it:
//! * A loop that runs a command alone locks all states: see [`crate::alone`]. It has unlocked its own state before.
//! * INFO locks each state for a moment. For those that are locked it waits at most [`PATIENCE`] in all.
//! * A thread beside a loop locks one state after another for a moment, to wait for the end of a round.
//!
//! A loop locks its state at the begin of a round and holds no other lock then. So no two wait for each other.

use crate::state::State;
use crate::state::figures::LoopFigures;
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A locked state.
pub(crate) type LockedState = ArcMutexGuard<RawMutex, State>;

/// A loop as the others see it.
#[derive(Debug)]
struct Peer {
    state: Weak<Mutex<State>>,
    /// The newest known figures of the loop, for the moments at which its state is locked.
    published: Mutex<LoopFigures>,
}

/// The time that INFO waits for the states of the other loops.
const PATIENCE: Duration = Duration::from_millis(2);

/// All loops of a server, in the order of their indexes. Empty if there is only one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peers {
    all: Arc<[Peer]>,
}

impl Peers {
    /// Introduces the loops of a server to each other.
    pub(crate) fn introduce(states: &[Arc<Mutex<State>>]) {
        if states.len() < 2 {
            return;
        }
        let peer = |state: &Arc<Mutex<State>>| Peer {
            state: Arc::downgrade(state),
            published: Mutex::default(),
        };
        let all: Arc<[Peer]> = states.iter().map(peer).collect();
        for state in states {
            let all = Arc::clone(&all);
            state.lock().peers = Peers { all };
        }
    }

    /// Returns whether there are several loops.
    #[inline]
    pub(crate) fn several(&self) -> bool {
        !self.all.is_empty()
    }

    fn others(&self, event_loop: usize) -> impl Iterator<Item = &Peer> {
        let each = self.all.iter().enumerate();
        each.filter(move |(at, _)| *at != event_loop)
            .map(|(_, peer)| peer)
    }

    /// Waits until each other loop is between two rounds. The caller holds no state and no latch.
    pub(crate) fn wait_for_rounds(&self, event_loop: usize) {
        for state in self.others(event_loop).filter_map(|p| p.state.upgrade()) {
            drop(state.lock());
        }
    }

    /// Locks the states of all other loops. The caller runs alone.
    pub(crate) fn hold_others(&self, event_loop: usize) -> Vec<LockedState> {
        let others = self.others(event_loop).filter_map(|p| p.state.upgrade());
        others.map(|state| state.lock_arc()).collect()
    }

    /// Publishes the figures of a loop.
    pub(crate) fn publish(&self, event_loop: usize, figures: LoopFigures) {
        if let Some(peer) = self.all.get(event_loop) {
            *peer.published.lock() = figures;
        }
    }

    /// Returns the figures of all other loops. The figures of a loop with a long round are at most a second old.
    pub(crate) fn figures_of_others(&self, event_loop: usize) -> Vec<LoopFigures> {
        let until = Instant::now() + PATIENCE;
        let of = |peer: &Peer| {
            let state = peer.state.upgrade();
            let held = state.as_ref().and_then(|state| state.try_lock_until(until));
            let mut published = peer.published.lock();
            if let Some(mut state) = held {
                *published = LoopFigures::of(&mut state);
            }
            published.clone()
        };
        self.others(event_loop).map(of).collect()
    }
}
