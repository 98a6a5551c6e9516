//! Serves clients that wait for a key, and ends waits after the deadline.

use super::data::Outcome;
use super::dispatch::{add_partitions, failed, hush, told_by};
use super::{Data, Run, Told};
use crate::acl;
use crate::blocking::Waiter;
use crate::connection::Connection;
use crate::engine::{Epoch, Error, Kind, PartitionSet, Shape, TableId, Tx};
use crate::pubsub::Seat;
use crate::resp::reply::Out;
use crate::state::{Stage, State};
use perdura_base::flaw::{Flaw, armed};
use std::time::Instant;

/// The result of running the command of a waiting client again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Try {
    /// The client has its reply.
    Served,
    /// The key holds nothing for this client, but perhaps for the next client.
    Passed,
    /// The key holds nothing for any client.
    Gone,
}

/// Runs the commands of the clients that wait for changed keys. Serving a client may change keys that other clients
/// wait for. During CLIENT PAUSE all clients continue to wait, because serving a client may write.
pub(crate) fn serve(state: &mut State) {
    if state.pause.until().is_some() {
        return;
    }
    while let Some((database, key)) = state.blocking.next_ready() {
        let mut after = 0;
        while let Some((ticket, id)) = state.blocking.next_waiter(database, &key, after) {
            after = ticket;
            if retry(state, id, &key) == Try::Gone {
                break;
            }
        }
        end_with(state, database, &key);
    }
}

/// Ends the wait of the clients that stop waiting when this key is gone or its type changes.
fn end_with(state: &mut State, database: u8, key: &[u8]) {
    let Some(mut next) = state.blocking.next_ending(database, key) else {
        return;
    };
    let Some((held, epoch)) = look(state, database, key) else {
        return;
    };
    // All these clients wait for the same shape: a stream.
    let waits = |waiter: &Waiter| held == Some(Some(waiter.wait.shape));
    while !state.blocking.get(next).is_none_or(waits) {
        if let Some(waiter) = state.blocking.take(next) {
            debug_assert!(
                waiter.wait.gone.is_some(),
                "only waiting that ends with its key is ended"
            );
            end(state, &waiter, key, epoch);
        }
        match state.blocking.next_ending(database, key) {
            Some(id) => next = id,
            None => return,
        }
    }
}

/// Ends a client's wait because of the value of `key`. The reply depends on `epoch`.
fn end(state: &mut State, waiter: &Waiter, key: &[u8], epoch: Epoch) {
    let index = waiter.seat.index;
    if let Some(mut connection) = state.connections.take(index) {
        let denied =
            connection.session.seat == waiter.seat && denied(state, &mut connection, waiter, key);
        state.connections.put(index, connection);
        if denied {
            return state.touch(index);
        }
    }
    state.stats.errors += 1;
    let told = Told::read(epoch.max(waiter.epoch));
    release_as(state, waiter, told, waiter.wait.gone);
}

fn retry(state: &mut State, id: u64, key: &[u8]) -> Try {
    // The cost of taking a client out of the queues grows with the number of its keys. So this key is checked
    // first: it must have something for the client.
    let Some(waiter) = state.blocking.get(id) else {
        return Try::Passed;
    };
    let wanted = waiter.wait.shape;
    match look(state, waiter.database, key) {
        Some((Some(shape), _)) if shape == Some(wanted) => {}
        Some((Some(_), _)) => return Try::Passed,
        Some((None, _)) => return Try::Gone,
        None => {}
    }
    let Some(waiter) = state.blocking.take(id) else {
        return Try::Passed;
    };
    debug_assert_eq!(waiter.seat.id, id, "a client waits under its id");
    let index = waiter.seat.index;
    let Some(mut connection) = state.connections.take(index) else {
        state.blocking.put_back(waiter);
        return Try::Passed;
    };
    let (tried, outcome) = if connection.session.seat.id != id {
        (Try::Passed, None)
    } else if denied(state, &mut connection, &waiter, key) {
        (Try::Served, None)
    } else {
        attempt(state, &mut connection, &waiter, key)
    };
    state.connections.put(index, connection);
    // The client must be back among the connections, so that it can receive messages about its own changes.
    if let Some((outcome, epoch)) = outcome {
        outcome.settle(state, epoch);
    }
    if tried == Try::Served {
        state.touch(index);
    } else {
        state.blocking.put_back(waiter);
    }
    tried
}

/// Returns the shape of a key's current value, and the epoch that this shape depends on; `None` if the database
/// cannot be read.
fn look(state: &State, database: u8, key: &[u8]) -> Option<(Option<Option<Shape>>, Epoch)> {
    let db = state.db()?;
    let partitions = std::iter::once(db.partition_of(key)).collect();
    let looked = db.transact(&partitions, |tx| shape_of(tx, db.database(database), key));
    looked.ok().map(|(shape, ticket)| (shape, ticket.epoch))
}

/// Checks again whether a waiting client may use the key, because the user's rules may have
/// changed. If not, the client gets its error and stops waiting. Returns whether the client was
/// denied.
fn denied(state: &mut State, connection: &mut Connection, waiter: &Waiter, key: &[u8]) -> bool {
    if connection.session.user.unlimited() {
        return false;
    }
    let narrowed = waiter.narrowed(key);
    let args = narrowed.args();
    let Err(text) = acl::check(state, &connection.session, waiter.command, &args) else {
        return false;
    };
    state.stats.errors += 1;
    let start = connection.replies.buf.len();
    let resp3 = connection.session.resp3;
    Out::new(&mut connection.replies.buf, resp3).error(&text);
    answer(state, connection, start, Told::NOTHING);
    true
}

/// Runs the command of a client that waits. If the client was served, also returns the command's outcome and
/// epoch. The caller must then settle the outcome.
fn attempt(
    state: &mut State,
    connection: &mut Connection,
    waiter: &Waiter,
    key: &[u8],
) -> (Try, Option<(Outcome, Epoch)>) {
    let (Stage::Ready(db), Run::Data(_)) = (&state.stage, waiter.command.run) else {
        return (Try::Passed, None);
    };
    let narrowed = waiter.narrowed(key);
    let args = narrowed.args();
    let mut partitions = PartitionSet::empty();
    add_partitions(db, waiter.command, &args, &mut partitions);
    let (resp3, user) = (connection.session.resp3, &connection.session.user);
    let replies = &mut connection.replies;
    let start = replies.buf.len();
    let result = db.transact(&partitions, |tx| {
        replies.buf.truncate(start);
        let mut data = Data::new(state, db, tx, waiter.database);
        data.run_for(user);
        data.retry();
        match shape_of(data.tx, data.table, key)? {
            Some(shape) if shape == Some(waiter.wait.shape) => {}
            Some(_) => return Ok((Try::Passed, None)),
            None => return Ok((Try::Gone, None)),
        }
        data.run(
            waiter.command,
            &args,
            &mut Out::new(&mut replies.buf, resp3),
        )?;
        if data.waits() {
            return Ok((Try::Passed, None));
        }
        Ok((Try::Served, Some(data.finish()?)))
    });
    let (told, outcome) = match result {
        Ok(((tried, None), _)) => {
            replies.buf.truncate(start);
            return (tried, None);
        }
        Ok(((_, Some(outcome)), ticket)) => {
            let told = outcome.told(ticket.epoch, state.reached);
            (told, Some((outcome, ticket.epoch)))
        }
        Err(error) => {
            replies.buf.truncate(start);
            failed(state, &error, &mut Out::new(&mut replies.buf, resp3));
            (told_by(state, &error), None)
        }
    };
    state.newest = state.newest.max(told.epoch);
    let shown = if armed(Flaw::DeliveryShownEarly) {
        Told::NOTHING
    } else {
        told
    };
    answer(state, connection, start, shown);
    (Try::Served, outcome)
}

/// Seals the reply of a client that waits no longer, and lets the client continue.
pub(crate) fn answer(state: &mut State, connection: &mut Connection, start: usize, told: Told) {
    // A command that has waited has put no pushes among its replies.
    debug_assert!(
        start <= connection.replies.buf.len(),
        "the reply stands behind those before"
    );
    hush(&mut connection.session, &mut connection.replies, start, &[]);
    connection.session.note_write(told.written);
    let rest = connection.session.rest(told.epoch);
    connection.replies.seal(rest, state.reached);
    connection.blocked = false;
    // The client was not idle while it waited.
    connection.session.active = state.now;
}

/// Returns the shape of a key's value: `None` if the key does not exist, `Some(None)` for a string.
fn shape_of(tx: &Tx<'_>, table: TableId, key: &[u8]) -> Result<Option<Option<Shape>>, Error> {
    let row = tx.peek(table, key)?;
    Ok(row.map(|row| match row.kind() {
        Kind::Small(shape) | Kind::Header(shape) => Some(shape),
        Kind::String | Kind::Element(_) => None,
    }))
}

/// Ends the waits of the clients whose deadlines have passed. Their replies say that nothing was found.
pub(crate) fn expire(state: &mut State, now: Instant) {
    while let Some(waiter) = state.blocking.next_late(now) {
        release(state, &waiter, None);
    }
}

/// Ends a client's wait on behalf of CLIENT UNBLOCK. Replies with `error`, or as after the deadline if `error` is
/// `None`. Returns whether the client was waiting.
pub(crate) fn unblock(state: &mut State, id: u64, error: Option<&str>) -> bool {
    match state.blocking.take(id) {
        Some(waiter) => {
            release(state, &waiter, error);
            true
        }
        None => false,
    }
}

fn release(state: &mut State, waiter: &Waiter, error: Option<&str>) {
    release_as(state, waiter, Told::read(waiter.epoch), error);
}

fn release_as(state: &mut State, waiter: &Waiter, told: Told, error: Option<&str>) {
    answer_blocked(state, waiter.seat, told, |out| match error {
        Some(text) => out.error(text),
        None => out.null_array(),
    });
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
