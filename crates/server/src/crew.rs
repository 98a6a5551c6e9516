//! The loops of a server, as each loop reaches the others.
//!
//! Loop 0 leads: it accepts connections, acts on signals, opens the database, and reports the conditions of the whole
//! server. It gives each connection to the loop with the fewest clients. From then on only that loop serves the client.

use crate::control::{Control, Message};
use crate::engine::Db;
use crate::net::Newcomer;
use parking_lot::Mutex;
use std::sync::Arc;

/// All loops of a server.
#[derive(Clone)]
pub(crate) struct Crew {
    /// The sender of messages to each loop.
    controls: Arc<[Control]>,
    /// The loop that runs a command alone holds this mutex.
    pub alone: Arc<Mutex<()>>,
}

impl Crew {
    /// Returns the loops with these senders of messages.
    pub(crate) fn new(controls: Vec<Control>) -> Crew {
        Crew {
            controls: controls.into(),
            alone: Arc::default(),
        }
    }

    fn others(&self, event_loop: usize) -> impl Iterator<Item = &Control> {
        let each = self.controls.iter().enumerate();
        each.filter(move |(at, _)| *at != event_loop)
            .map(|(_, control)| control)
    }

    /// Gives a connection to a loop.
    pub(crate) fn give(&self, event_loop: usize, newcomer: Newcomer) {
        self.controls[event_loop].send(Message::Newcomer(Box::new(newcomer)));
    }

    /// Gives the opened database to all loops but one. `at` is the time of opening, seconds since 1970.
    pub(crate) fn share(&self, event_loop: usize, db: &Db, at: u64) {
        for control in self.others(event_loop) {
            control.send(Message::Joined { db: db.clone(), at });
        }
    }

    /// Asks all loops but one to end.
    pub(crate) fn stop_others(&self, event_loop: usize, checkpoint: bool) {
        for control in self.others(event_loop) {
            control.send(Message::Stop { checkpoint });
        }
    }
}
