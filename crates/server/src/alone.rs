//! Commands that run alone: while no other loop runs a round.
//!
//! Such a command concerns the clients of all loops, or changes what each loop has a copy of: the settings, the users, the
//! libraries of functions, CLIENT PAUSE. Its request is postponed. When the round's
//! other requests have run, the loop waits until each other loop has ended its round, locks their states
//! ([`crate::state::peers`]) and runs the request. Then it gives the
//! others its copies and unlocks them. So the command takes effect at one moment for all clients.
//!
//! One loop runs alone at a time. It unlocks its own state before it waits for its turn.

use crate::command::{Command, Run, flag};
use crate::pubsub::Seat;
use crate::resp::parse::Args;
use crate::session::Session;
use crate::state::State;

/// Returns whether a command must run alone. `command` has the flag [`flag::ALONE`].
fn concerns_all(session: &Session, command: &Command, args: &Args<'_>) -> bool {
    let word = |words: &[&str]| {
        args.len() > 1
            && words
                .iter()
                .any(|word| args.at(1).eq_ignore_ascii_case(word.as_bytes()))
    };
    match command.name {
        "exec" => block_concerns_all(session),
        "client" => {
            // Only a client that REDIRECT names may belong to another loop.
            word(&["kill", "list", "pause", "unblock", "unpause"])
                || (word(&["tracking"]) && args.len() > 3)
        }
        "config" => word(&["resetstat", "rewrite", "set"]),
        "acl" => word(&["deluser", "load", "save", "setuser"]),
        "script" => word(&["flush"]),
        "function" => word(&["delete", "flush", "load", "restore"]),
        _ => true,
    }
}

/// Returns whether a MULTI block must run alone. It must if one of its commands must. It also must if it has commands that
/// run before its transaction, and watches keys: these commands may run only if no watched key changes until then.
fn block_concerns_all(session: &Session) -> bool {
    let Some(block) = &session.block else {
        return false;
    };
    let watches = !session.watched.is_empty();
    block.queue.iter().any(|(command, owned)| {
        let is_plain = matches!(command.run, Run::Plain(_));
        let concerns = command.has(flag::ALONE) && concerns_all(session, command, &owned.args());
        concerns || (is_plain && watches)
    })
}

impl State {
    /// Returns whether a request must wait until this loop runs alone. Such a request is postponed.
    #[inline]
    pub(crate) fn waits_to_be_alone(
        &mut self,
        session: &Session,
        command: &Command,
        args: &Args<'_>,
    ) -> bool {
        let may = command.has(flag::ALONE) && self.peers.several() && !self.runs_alone;
        may && self.is_crowded(session, command, args)
    }

    #[cold]
    fn is_crowded(&mut self, session: &Session, command: &Command, args: &Args<'_>) -> bool {
        // Within a block only EXEC runs.
        if session.block.is_some() && !command.has(flag::IMMEDIATE) {
            return false;
        }
        let waits = concerns_all(session, command, args);
        if waits {
            self.wants_alone.push(session.seat);
        }
        waits
    }

    /// Removes and returns the clients with requests that wait until this loop runs alone.
    pub(crate) fn take_wants_alone(&mut self) -> Vec<Seat> {
        std::mem::take(&mut self.wants_alone)
    }

    /// Returns this loop's state, and those of the other loops if this loop runs alone.
    pub(crate) fn each(&self) -> impl Iterator<Item = &State> {
        let others = self.others.iter().map(|other| &**other);
        std::iter::once(self).chain(others)
    }

    /// Calls `f` with the states of the other loops, if this loop runs alone, and then with this loop's state.
    pub(crate) fn each_mut(&mut self, mut f: impl FnMut(&mut State)) {
        let mut others = std::mem::take(&mut self.others);
        others.iter_mut().for_each(|other| f(other));
        self.others = others;
        f(self);
    }

    /// Returns the state of a loop. `None`: it is another loop, and this loop does not run alone.
    pub(crate) fn at_loop(&mut self, event_loop: usize) -> Option<&mut State> {
        if self.event_loop == event_loop {
            return Some(self);
        }
        let mut others = self.others.iter_mut().map(|other| &mut **other);
        others.find(|other| other.event_loop == event_loop)
    }

    /// Gives the other loops this loop's copies of what they share, and unlocks their states.
    pub(crate) fn end_alone(&mut self) {
        for mut other in std::mem::take(&mut self.others) {
            other.adopt(self);
        }
        (self.scripts.flushed, self.runs_alone) = (false, false);
        debug_assert!(self.others.is_empty(), "the others' states are unlocked");
        self.common.wake_others(self.event_loop);
    }

    /// Copies the settings, the users, the libraries of functions and the pause of another loop.
    pub(crate) fn adopt(&mut self, from: &State) {
        self.options.clone_from(&from.options);
        self.config.clone_from(&from.config);
        self.packing = from.packing;
        self.steps = from.steps;
        self.client_share = from.client_share;
        self.notes_accesses = from.notes_accesses;
        self.acl.adopt(&from.acl);
        self.scripts.adopt(&from.scripts);
        match from.pause.until() {
            Some(_) => self.pause.adopt(&from.pause),
            None if self.pause.until().is_some() => self.unpause(),
            None => {}
        }
    }
}
