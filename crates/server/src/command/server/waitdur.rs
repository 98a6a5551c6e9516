//! WAITDUR: waits until everything that the client has read or written has the given durability, whatever CLIENT
//! DURABILITY says. Redis does not have this command.

use super::replication::parse_timeout;
use crate::command::connection::client::NO_DURABILITY;
use crate::command::spec::{Command, flag::APART, plain};
use crate::command::wait::answer_blocked;
use crate::command::{After, Cx, Told};
use crate::engine::Durability;
use crate::pubsub::Seat;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use crate::state::State;
use std::time::Instant;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[plain("waitdur", 3, APART, waitdur)];

/// `WAITDUR mem|mirror|disk milliseconds`
fn waitdur(cx: &mut Cx<'_>, args: &Args<'_>) {
    let Some(durability) = Durability::named(args.at(1)) else {
        return cx.out.error(NO_DURABILITY);
    };
    let timeout = match parse_timeout(args.at(2)) {
        Ok(timeout) => timeout,
        Err(error) => return cx.out.error(error),
    };
    let Some(db) = cx.state.db() else {
        return cx.out.error("ERR the database is not open");
    };
    if let Some(why) = &cx.state.stopped {
        return cx.out.error(&stopped(why));
    }
    let epoch = cx.session.told.max(cx.session.written);
    let is_reached = durability.is_reached(epoch, db.reached());
    if is_reached || cx.in_block {
        return cx.out.integer(i64::from(is_reached));
    }
    // The engine writes the log without delay, because a client waits for it.
    db.nudge();
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let waits = &mut cx.state.rung_waits;
    waits.add(cx.session.seat, durability, epoch, deadline);
    cx.effects.after = After::Block;
}

impl State {
    /// Replies to the clients whose WAITDUR is over: the durability has been reached, the deadline has passed, or the
    /// database has stopped.
    pub(crate) fn end_rung_waits(&mut self, now: Instant) {
        if self.rung_waits.is_empty() {
            return;
        }
        while let Some(seat) = self.rung_waits.next_reached(self.reached) {
            answer_wait(self, seat, 1);
        }
        while let Some(seat) = self.rung_waits.next_late(now) {
            answer_wait(self, seat, 0);
        }
        if let Some(why) = self.stopped.clone() {
            while let Some(seat) = self.rung_waits.next() {
                let error = |out: &mut Out<'_>| out.error(&stopped(&why));
                answer_blocked(self, seat, Told::NOTHING, error);
            }
        }
    }

    /// Ends a client's wait on behalf of CLIENT UNBLOCK. Replies with `error`. If `error` is `None`, replies as if the
    /// deadline had passed. Returns whether the client was waiting.
    pub(crate) fn end_rung_wait(&mut self, id: u64, error: Option<&str>) -> bool {
        let Some(seat) = self.rung_waits.take(id) else {
            return false;
        };
        match error {
            Some(text) => answer_blocked(self, seat, Told::NOTHING, |out| out.error(text)),
            None => answer_wait(self, seat, 0),
        }
        true
    }
}

fn answer_wait(state: &mut State, seat: Seat, reached: i64) {
    answer_blocked(state, seat, Told::NOTHING, |out| out.integer(reached));
}

fn stopped(why: &str) -> String {
    format!("ERR the database has stopped: {why}")
}
