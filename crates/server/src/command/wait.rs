//! Ends the waits of clients: when they are served, after the deadline, and on request.

use super::Told;
use super::data::{Claims, Observing, Outcome};
use super::dispatch::hush;
use super::{Data, run};
use crate::acl;
use crate::blocking::{Asking, Place, Wait};
use crate::connection::Connection;
use crate::engine::{Db, Error, Ticket, Tx};
use crate::mailbox::{Letter, Post};
use crate::pubsub::Seat;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use crate::session::Session;
use crate::state::{State, unix_ms};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Serves the clients that wait for these keys, each with its database. A transaction that changes a key serves them
/// itself. This is for changes that no transaction of a command made, and for the end of CLIENT PAUSE. If the engine
/// refuses, the clients are tried again at the next tick.
pub(crate) fn serve(state: &mut State, places: &[(u8, Box<[u8]>)]) {
    // All keys are tried again at the end of the pause.
    if state.pause.until().is_some() {
        return;
    }
    for (database, key) in places {
        let place = Place {
            database: *database,
            key,
        };
        let Some(db) = state.db().cloned() else {
            return;
        };
        match serve_place(state, &db, place) {
            Ok((outcome, told)) => {
                state.newest = state.newest.max(told.epoch);
                outcome.settle(state);
            }
            Err(error) => {
                run::note(state, &error);
                state.try_later.push((*database, key.clone()));
            }
        }
    }
}

fn serve_place(state: &State, db: &Db, place: Place<'_>) -> Result<(Outcome, Told), Error> {
    let partitions = std::iter::once(db.partition_of(place.key)).collect();
    let observing = Observing::of(state);
    let claims = RefCell::new(Claims::new(&state.common));
    let run = |tx: &mut Tx<'_>| {
        let claims = &mut claims.borrow_mut();
        claims.restart();
        let mut data = Data::new(state, db, tx, place.database);
        data.serve_place(place, claims)?;
        data.serve(claims)?;
        data.finish()
    };
    let publish = |outcome: &mut Outcome, ticket: Ticket| {
        outcome.publish(&observing, &mut claims.borrow_mut(), ticket.epoch);
    };
    let (outcome, ticket) = Claims::complete(&claims, || {
        db.transact_then(&partitions, unix_ms(), run, publish)
    })?;
    let told = outcome.told(ticket.epoch, state.reached);
    Ok((outcome, told))
}

/// Makes a client wait for its keys. The caller holds the latches of the keys' partitions.
#[cold]
pub(crate) fn begin_wait(state: &State, asking: Asking, wait: Wait, args: &Args<'_>) {
    state
        .common
        .blocking
        .with(|blocking| blocking.add(asking, wait, args));
}

impl State {
    /// Notes the deadline of a client that has begun to wait. `None`: the client waits without a limit.
    pub(crate) fn note_deadline(&mut self, id: u64, timeout: Option<Duration>) {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.deadlines.add(deadline, id);
    }

    /// Ends a client's wait if the letter does so. Returns false if it is another letter.
    pub(crate) fn end_wait(&mut self, letter: &Letter, connection: &mut Connection) -> bool {
        debug_assert_eq!(connection.session.seat, letter.to);
        let start = connection.replies.buf.len();
        let mut told = Told::read(letter.epoch);
        let error = match &*letter.post {
            Post::Answer { reply, written } => {
                connection.replies.buf.extend_from_slice(reply);
                told.written = *written;
                None
            }
            Post::Denied(denied) => Some(acl::deny(self, &connection.session, denied.clone())),
            Post::Gone(error) => Some(String::from(*error)),
            Post::Refused(error) => Some(error.clone()),
            _ => return false,
        };
        if let Some(error) = error {
            self.stats.errors += 1;
            Out::new(&mut connection.replies.buf, connection.session.resp3).error(&error);
        }
        self.newest = self.newest.max(told.epoch);
        answer(self, connection, start, told);
        connection.account(self);
        self.touch(letter.to.index);
        true
    }

    /// Ends a client's wait for a key without a reply, because the client leaves.
    pub(crate) fn stop_waiting(&mut self, session: &Session) {
        let id = session.seat.id;
        if self.common.blocking.is_in_use() {
            self.common.blocking.with(|blocking| blocking.leave(id));
        }
        self.deadlines.remove(id);
    }
}

/// Seals the reply of a client that waits no longer, and lets the client continue.
pub(crate) fn answer(state: &mut State, connection: &mut Connection, start: usize, told: Told) {
    // A command that has waited has put no pushes among its replies.
    debug_assert!(
        start <= connection.replies.buf.len(),
        "the reply stands behind those before"
    );
    let session = &mut connection.session;
    state.deadlines.remove(session.seat.id);
    hush(session, &mut connection.replies, start, &[]);
    session.note_write(told.written);
    let rest = session.rest(told.epoch);
    connection.replies.seal(rest, state.reached);
    connection.blocked = false;
    // The client was not idle while it waited.
    connection.session.active = state.now;
}

/// Ends the waits of the clients whose deadlines have passed. Their replies say that nothing was found.
pub(crate) fn expire(state: &mut State, now: Instant) {
    while let Some(id) = state.deadlines.next_late(now) {
        if unblock(state, id, None) {
            continue;
        }
        if state
            .common
            .blocking
            .with(|blocking| blocking.is_claimed(id))
        {
            // A transaction serves the client, which gets its reply soon.
            return;
        }
        // The letter with the reply has been posted.
        state.deadlines.remove(id);
    }
}

/// Ends a client's wait, with `error` or with the reply that nothing was found. CLIENT UNBLOCK uses it, too. Returns
/// whether the client was waiting and no transaction served it.
pub(crate) fn unblock(state: &mut State, id: u64, error: Option<&str>) -> bool {
    let blocking = &state.common.blocking;
    let Some(waiter) = blocking.with(|blocking| blocking.take(id)) else {
        return false;
    };
    let told = Told::read(waiter.asking.epoch);
    let seat = waiter.asking.seat;
    let state = state.at_loop(seat.event_loop);
    // A loop that has ended has no clients any more.
    if let Some(state) = state {
        answer_blocked(state, seat, told, |out| match error {
            Some(text) => out.error(text),
            None => out.null_array(),
        });
    }
    true
}

/// Answers a client that waits no longer, if the client is still connected.
pub(crate) fn answer_blocked(
    state: &mut State,
    seat: Seat,
    told: Told,
    write: impl FnOnce(&mut Out<'_>),
) {
    let Some(mut connection) = state.connections.take(seat.index) else {
        return;
    };
    if connection.session.seat == seat {
        let resp3 = connection.session.resp3;
        let start = connection.replies.buf.len();
        write(&mut Out::new(&mut connection.replies.buf, resp3));
        answer(state, &mut connection, start, told);
    }
    state.connections.put(seat.index, connection);
    state.touch(seat.index);
}
