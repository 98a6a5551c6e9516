//! Runs a data command in one transaction.

use super::data::{Claims, Observing, Outcome};
use super::wait::begin_wait;
use super::{After, Command, Data, Keys, Later, Run, Told, flag};
use crate::beside::Single;
use crate::blocking::Asking;
use crate::engine::{
    Attempt, Db, Error, Latching, PartitionId, PartitionSet, Ticket, Tx, error_text,
};
use crate::jobs::Stepping;
use crate::replies::Replies;
use crate::resp::parse::{Args, OwnedArgs};
use crate::resp::reply::Out;
use crate::session::Session;
use crate::state::{Stage, State};
use crate::tell::Message;
use crate::watch::Own;
use perdura_base::flaw::{Flaw, armed};
use std::cell::{Cell, RefCell};

/// The number of attempts to run a command in steps. If they all fail, the command runs as a single transaction.
const BEGINNINGS: u32 = 3;

/// A data command, and the number of its failed attempts to run in steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    /// The command.
    pub command: &'static Command,
    /// The number of attempts that had to begin again.
    pub vainly: u32,
}

/// Returns the partitions of a command's keys.
fn partitions_of(db: &Db, command: &Command, args: &Args<'_>) -> PartitionSet {
    let mut partitions = PartitionSet::empty();
    add_partitions(db, command, args, &mut partitions);
    partitions
}

/// Adds the partitions of a command's keys to `partitions`.
pub(crate) fn add_partitions(
    db: &Db,
    command: &Command,
    args: &Args<'_>,
    partitions: &mut PartitionSet,
) {
    if matches!(command.keys, Keys::All | Keys::Sort(_)) {
        partitions.union(&db.all_partitions());
    }
    for key in command.key_args(args) {
        partitions.insert(db.partition_of(key));
    }
}

/// Runs one command in one transaction, and serves the clients that wait for the changed keys. Returns the epochs that
/// the reply depends on, and the next action of the connection. The client may have to wait: for a key, for the log, or
/// for a command that runs in steps. After some failed attempts the command no longer runs in steps.
pub(crate) fn run_data(
    state: &mut State,
    session: &Session,
    replies: &mut Replies,
    begun: Begun,
    args: &Args<'_>,
) -> (Told, After) {
    let command = begun.command;
    let (Stage::Ready(db), Run::Data(_)) = (&state.stage, command.run) else {
        Out::new(&mut replies.buf, session.resp3).error("ERR the database is not open");
        return (Told::NOTHING, After::Continue);
    };
    let partitions = partitions_of(db, command, args);
    if begun.vainly == 0 && state.has_many_arguments(command, args) {
        return leave(state, session, begun, args, partitions);
    }
    let (start, mut kept, mut held, mut watched) = (replies.buf.len(), Vec::new(), None, None);
    let (observing, claims) = (
        Observing::of(state),
        RefCell::new(Claims::new(&state.common)),
    );
    let mut run = |tx: &mut Tx<'_>| {
        let claims = &mut claims.borrow_mut();
        claims.restart();
        // The engine may run this closure again. The reply of the earlier run is then discarded.
        replies.buf.truncate(start);
        let mut data = Data::new(state, db, tx, session.database);
        data.run_for(&session.user);
        let mut out = Out::new(&mut replies.buf, session.resp3);
        run_once(&mut data, begun, args, &mut out, &mut kept)?;
        held = data.leaves().then(|| data.tx.latched().collect());
        data.serve(claims)?;
        data.finish()
    };
    let mut publish = |outcome: &mut Outcome, ticket: Ticket| {
        outcome.publish(&observing, &mut claims.borrow_mut(), ticket.epoch);
        state.note_reads(session, command, args);
        if outcome.later.is_some() {
            let asking = Asking::of(session, command, ticket.epoch);
            watched = defer(state, asking, args, outcome);
        }
    };
    let met = Cell::new(None);
    let waits_on = |partition| !meets_long(state, partition, &met);
    let latching = Latching::new(&partitions, &waits_on);
    let result = Claims::complete(&claims, || {
        db.try_transact_while(latching, state.wall_ms(), &mut run, &mut publish)
    });
    state.end_long();
    drop(claims);
    let undone = match result {
        Ok(Some(Attempt::Committed(outcome, ticket))) => {
            let request = Committed {
                session,
                begun,
                args,
                held: held.unwrap_or(partitions),
                watched,
            };
            return follow(state, request, outcome, ticket);
        }
        Ok(Some(Attempt::Behind { bytes })) => Undone::Behind(bytes),
        Ok(None) => met
            .get()
            .map_or(Undone::Absent, |met| Undone::Held(partitions, met)),
        Err(error) => Undone::Failed(error),
    };
    replies.buf.truncate(start);
    undone.follow(state, &mut Out::new(&mut replies.buf, session.resp3))
}

/// A partition whose latch another transaction holds for long, and the number of landings before that was found.
type Met = (PartitionId, u64);

/// Returns whether another transaction holds the latch of this partition for long. Sets `met` in this case.
fn meets_long(state: &State, partition: PartitionId, met: &Cell<Option<Met>>) -> bool {
    let flights = &state.common.flights;
    let landings = flights.landings();
    let is_held = flights.holds_for(state.event_loop, partition);
    met.set(is_held.then_some((partition, landings)));
    is_held
}

/// The reasons why the transaction of a command was undone.
enum Undone {
    /// The log has no room for this number of bytes yet.
    Behind(usize),
    /// Another transaction holds a latch for long. Contains the partitions of the request's keys, and the held one.
    Held(PartitionSet, Met),
    /// A restart has not loaded a partition of the request yet.
    Absent,
    Failed(Error),
}

impl Undone {
    /// Postpones the request, or replies with the error.
    fn follow(self, state: &mut State, out: &mut Out<'_>) -> (Told, After) {
        match self {
            Undone::Behind(bytes) => (Told::NOTHING, After::Behind(bytes)),
            Undone::Absent => (Told::NOTHING, After::Absent),
            Undone::Held(mut partitions, (partition, landings)) => {
                partitions.insert(partition);
                state.want(&partitions, landings);
                (Told::NOTHING, After::Held(landings))
            }
            Undone::Failed(error) => {
                failed(state, &error, out);
                (told_by(state, &error), After::Continue)
            }
        }
    }
}

/// Makes the client of a command that has no reply yet wait for its keys, or watch the sources of the steps to come.
/// Returns the watched sources. The caller holds the latches of the transaction.
#[cold]
fn defer(
    state: &State,
    asking: Asking,
    args: &Args<'_>,
    outcome: &mut Outcome,
) -> Option<Box<Own>> {
    if let Some(Later::Steps(work)) = &outcome.later {
        return Some(Box::new(state.watch_sources(
            asking.database,
            args,
            &**work,
        )));
    }
    if let Some(wait) = outcome.take_wait() {
        begin_wait(state, asking, wait, args);
    }
    None
}

/// A data command whose transaction has committed.
struct Committed<'a> {
    session: &'a Session,
    begun: Begun,
    args: &'a Args<'a>,
    /// The partitions that the transaction has latched.
    held: PartitionSet,
    /// The watched sources of a command that will run in steps.
    watched: Option<Box<Own>>,
}

/// Does what follows the commit of a data command. Returns the epochs that the reply depends on, and the next action of
/// the connection.
fn follow(
    state: &mut State,
    request: Committed<'_>,
    mut outcome: Outcome,
    ticket: Ticket,
) -> (Told, After) {
    let Committed {
        session,
        begun,
        args,
        held,
        watched,
    } = request;
    match outcome.later.take() {
        None => {
            let told = outcome.told(ticket.epoch, state.reached);
            outcome.settle(state);
            (told, After::Continue)
        }
        Some(Later::Waits(timeout)) => {
            outcome.settle(state);
            state.note_deadline(session.seat.id, timeout);
            (Told::NOTHING, After::Block)
        }
        Some(Later::Steps(work)) => {
            let watched = watched.map_or_else(Own::new, |watched| *watched);
            let stepping = Stepping { work, watched };
            state.add_job(session, begun, args, stepping);
            (Told::NOTHING, After::Steps)
        }
        Some(Later::Beside | Later::Wait(_)) => leave(state, session, begun, args, held),
    }
}

/// Runs a command within a transaction. At the first and the last attempt, a command that runs no scripts may ask to
/// run beside the loop instead. `kept` holds messages of earlier runs. Only a seeded bug uses it.
fn run_once(
    data: &mut Data<'_, '_>,
    begun: Begun,
    args: &Args<'_>,
    out: &mut Out<'_>,
    kept: &mut Vec<Message>,
) -> Result<(), Error> {
    let is_last = begun.vainly >= BEGINNINGS;
    if is_last {
        data.hurry();
    }
    if (is_last || begun.vainly == 0) && !begun.command.has(flag::SCRIPTS) {
        data.may_leave();
    }
    let done = data.run(begun.command, args, out);
    if armed(Flaw::MessageOfRerunKept) {
        kept.append(&mut data.ran().messages);
        if done.is_ok() {
            data.ran().messages.append(kept);
        }
    }
    done
}

/// Returns the epochs that a reply with an error of the engine depends on. If a reply is refused for its size, the
/// error reveals something about the data, but the failed transaction has no epoch. So the error depends on the
/// newest epoch. Other errors describe the engine's state and must not wait for the disk.
pub(crate) fn told_by(state: &State, error: &Error) -> Told {
    match error {
        Error::Usage(_) if state.stopped.is_none() => Told::read(state.newest()),
        _ => Told::NOTHING,
    }
}

/// Runs a command beside the loop. If a command already runs beside any loop, postpones the request.
#[cold]
fn leave(
    state: &mut State,
    session: &Session,
    begun: Begun,
    args: &Args<'_>,
    held: PartitionSet,
) -> (Told, After) {
    let landings = state.common.flights.landings();
    if state.common.flights.any_beside() {
        return (Told::NOTHING, After::Held(landings));
    }
    let load = Single {
        command: begun.command,
        args: OwnedArgs::copy(args),
    };
    state.run_beside(session, session.database, held, Box::new(load));
    (Told::NOTHING, After::Beside)
}

/// Notes an error of the engine. If the engine has stopped, notes the reason in the state.
pub(crate) fn note(state: &mut State, error: &Error) {
    if let Error::Stopped(why) | Error::Fenced(why) | Error::Displaced(why) = error {
        state.stopped.get_or_insert_with(|| why.clone());
    }
    if matches!(error, Error::LogFull(_)) {
        state.common.note_refusal();
    }
}

/// Replies with an error of the engine. If the engine has stopped, also notes the reason in the state.
pub(crate) fn failed(state: &mut State, error: &Error, out: &mut Out<'_>) {
    note(state, error);
    state.stats.errors += 1;
    out.error(&error_text(error));
}
