//! From a parsed request to a reply. First come the checks before every command, in Redis's order,
//! then the queue of MULTI, then the command itself.
//!
//! A command leaves [`Effects`] besides its reply. [`execute`] consumes them in this order:
//! 1. a command that the log had no room for is undone, and nothing else happens;
//! 2. the server's newest epoch and the client's newest write advance (`epoch`, `written`), and the
//!    durability that the reply waits for is determined (`epoch`, `least`);
//! 3. the command is counted and timed; the full reply shows whether the command failed;
//! 4. if the client wants no replies, the reply is dropped except for the pushes in it (`pushed`);
//! 5. the command is shown to monitors;
//! 6. the reply is sealed;
//! 7. letters are delivered ([`crate::mailbox`]); letters to the client itself are sealed after the reply.
//!
//! Observers of the changed keys, and clients that wait for them, are served at the commit, before the latches are
//! released.

use super::run::{Begun, run_data};
use super::{After, Command, Cx, Effects, Run, flag};
use crate::acl;
use crate::loading;
use crate::pubsub::Seat;
use crate::replies::Replies;
use crate::resp::foreign::Foreign;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use crate::session::{Mute, Session};
use crate::state::{Stage, State};
use crate::stats::Counted;
use perdura_base::limits::KEY_BYTES_MAX;
use std::time::Duration;

/// Runs or queues one request and appends its reply.
pub(crate) fn execute(
    state: &mut State,
    session: &mut Session,
    replies: &mut Replies,
    args: &Args<'_>,
) -> After {
    let found = state.lookup.find_slot(args.at(0));
    if found.is_none()
        && let Some(foreign) = Foreign::by_name(args.at(0))
    {
        return After::Expel(foreign);
    }
    let checked = check(state, session, found.map(|(_, command)| command), args);
    if let Ok(command) = checked
        && (state.waits_for_landing(session, command, args)
            || state.keeps_back(session, command, args)
            || state.waits_to_be_alone(session, command, args)
            || (session.may_prove(command) && acl::prove::gate(state, session, command, args)))
    {
        return After::Postpone;
    }
    // Letters that were posted before the request come before its reply.
    state.read_mail_behind(session, replies);
    state.stats.commands += 1;
    state.running = session.seat;
    let queues = session.block.is_some();
    let runs = |command: &&Command| !queues || command.has(flag::IMMEDIATE);
    let request = Request {
        found,
        ran: checked.as_ref().ok().copied().filter(runs),
        args,
        start: replies.buf.len(),
    };
    let effects = match checked {
        Ok(command) => carry_out(state, session, replies, command, args),
        Err(error) => {
            refuse(state, session, replies, args, error);
            Effects::NONE
        }
    };
    consume(state, session, replies, &request, effects)
}

/// A request whose command has run, was queued or was refused.
struct Request<'a> {
    /// The command that the request names, and its slot. `None`: the name is unknown.
    found: Option<(usize, &'static Command)>,
    /// The command, if it ran.
    ran: Option<&'static Command>,
    args: &'a Args<'a>,
    /// The start offset of the reply.
    start: usize,
}

/// Refuses a request that may not run now.
fn refuse(
    state: &mut State,
    session: &mut Session,
    replies: &mut Replies,
    args: &Args<'_>,
    error: String,
) {
    // A refused request needs no more password checks. The next request starts its checks anew.
    state.forget_proof(session);
    let error = super::connection::block::broken_by(state, session, args, error);
    state.stats.errors += 1;
    Out::new(&mut replies.buf, session.resp3).error(&error);
}

/// Runs a command, or queues it for EXEC.
#[inline]
fn carry_out(
    state: &mut State,
    session: &mut Session,
    replies: &mut Replies,
    command: &'static Command,
    args: &Args<'_>,
) -> Effects {
    session.last = Some(command);
    session.last_word = command.word_at(args);
    if session.block.is_some() && !command.has(flag::IMMEDIATE) {
        super::connection::block::enqueue(state, session, replies, command, args);
        return Effects::NONE;
    }
    match command.run {
        Run::Data(_) => {
            if command.has(flag::SCRIPTS) {
                state.scripts.enter(session, state.now);
            }
            let begun = Begun { command, vainly: 0 };
            let (told, after) = run_data(state, session, replies, begun, args);
            Effects::of(told, after)
        }
        Run::Plain(run) => {
            let out = Out::new(&mut replies.buf, session.resp3);
            let mut cx = Cx {
                state,
                session,
                out,
                effects: Effects::NONE,
                in_block: false,
            };
            run(&mut cx, args);
            cx.rest_on_writes(command);
            cx.effects
        }
    }
}

/// Consumes the effects of a request, in the order that the module's documentation gives.
#[inline]
fn consume(
    state: &mut State,
    session: &mut Session,
    replies: &mut Replies,
    request: &Request<'_>,
    effects: Effects,
) -> After {
    let Request {
        found,
        ran,
        args,
        start,
    } = *request;
    let Effects {
        epoch,
        written,
        after,
        least,
        pushed,
        held_back,
    } = effects;
    debug_assert!(held_back.is_empty(), "EXEC has sent them or dropped them");
    debug_assert!(
        start <= replies.buf.len(),
        "what was replied before this request stays"
    );
    if matches!(after, After::Behind(_) | After::Held(_) | After::Absent) {
        return keep_back(state, session, replies, start, after);
    }
    session.spent = Duration::ZERO;
    state.newest = state.newest.max(epoch);
    session.note_write(written);
    let rest = session.rest_at(least, epoch);
    let counted = found.map(|(slot, command)| Counted::new(slot, command, args));
    count(
        state,
        session,
        replies.buf.get(start..).unwrap_or(&[]),
        counted,
        &Request {
            // A command that runs in steps is counted when it has ended.
            ran: ran.filter(|_| !after.goes_on()),
            ..*request
        },
    );
    // A command that waits is answered later, and CLIENT REPLY SKIP then applies to that answer.
    if session.mute != Mute::No && after != After::Block && !after.goes_on() {
        hush(session, replies, start, &pushed);
    }
    if let Some(command) = ran {
        super::server::monitor::feed(state, session, command, args);
        if !after.goes_on() {
            session.end_caching(command);
        }
    }
    replies.seal(rest, state.reached);
    state.read_mail_behind(session, replies);
    state.running = Seat::NOBODY;
    after
}

/// Postpones a request, because the log has no room yet or a command already runs beside the loop. Removes the request
/// from the statistics.
#[cold]
fn keep_back(
    state: &mut State,
    session: &mut Session,
    replies: &mut Replies,
    start: usize,
    after: After,
) -> After {
    debug_assert!(
        after != After::Continue,
        "only a command that waits is kept back"
    );
    replies.buf.truncate(start);
    // The time that the request has taken counts toward its client's turn.
    state.tick();
    // A script's running time counts toward its limit. Other commands have no limit.
    session.spent = state.scripts.spent_by_all();
    state.stats.commands -= 1;
    state.running = Seat::NOBODY;
    match after {
        After::Behind(bytes) => state.keep_back_for_log(session.seat, bytes),
        After::Held(landings) => state.beside.keep(session.seat, landings),
        After::Absent => state.keep_back_for_loading(session.seat),
        _ => debug_assert!(false, "{after:?} does not postpone a request"),
    }
    After::Postpone
}

/// Returns the command if it may run now, and otherwise the error to reply with.
fn check(
    state: &mut State,
    session: &Session,
    found: Option<&'static Command>,
    args: &Args<'_>,
) -> Result<&'static Command, String> {
    let Some(command) = found else {
        return Err(unknown(args));
    };
    command.check_shape(args)?;
    if !session.authenticated && !command.has(flag::NO_AUTH) && !state.acl.open() {
        return Err(String::from("NOAUTH Authentication required."));
    }
    if !session.user.unlimited() {
        acl::check(state, session, command, args)?;
    }
    if let (Stage::Loading(progress), false) = (&state.stage, command.has(flag::LOADING)) {
        return Err(loading::text(
            progress,
            state.now.duration_since(state.common.started),
        ));
    }
    for key in command.key_args(args) {
        if key.len() > KEY_BYTES_MAX {
            let bytes = key.len();
            return Err(format!(
                "ERR a key has {bytes} bytes; the most is {KEY_BYTES_MAX}"
            ));
        }
    }
    if session.only_listens() && !LISTENING.contains(&command.name) {
        let name = command.full_name(args);
        return Err(format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context"
        ));
    }
    Ok(command)
}

/// Counts a command that ran or was refused. A command that ran slowly enters the slow log.
fn count(
    state: &mut State,
    session: &Session,
    reply: &[u8],
    counted: Option<Counted>,
    request: &Request<'_>,
) {
    let took = state.tick();
    match (counted, request.ran) {
        (Some(counted), Some(command)) => {
            let times = state.options.latency_tracking;
            state.stats.by_command.ran(counted, took, reply, times);
            note_slow(state, session, command, request.args, took);
        }
        // A queued command has neither succeeded nor failed.
        _ if reply.first() != Some(&b'-') => {}
        _ => state.stats.by_command.refused(counted, reply),
    }
}

#[inline]
fn note_slow(
    state: &mut State,
    session: &Session,
    command: &Command,
    args: &Args<'_>,
    took: Duration,
) {
    if state.is_slow(took) {
        super::server::slowlog::note(state, session, command, args, took);
    }
}

/// A command that ran in steps or beside the loop, and has ended.
pub(crate) struct Finished<'a> {
    /// The command.
    pub command: &'a Command,
    /// The command's arguments.
    pub args: &'a Args<'a>,
    /// The reply.
    pub reply: &'a [u8],
    /// The time that the command took.
    pub took: Duration,
}

/// Counts a command that ran in steps or beside the loop, and has ended. A slow command enters the slow log.
pub(crate) fn note_run(state: &mut State, session: &Session, finished: &Finished<'_>) {
    let Finished {
        command,
        args,
        reply,
        took,
    } = *finished;
    let Some((slot, _)) = state.lookup.find_slot(command.name.as_bytes()) else {
        return;
    };
    let counted = Counted::new(slot, command, args);
    let times = state.options.latency_tracking;
    state.stats.by_command.ran(counted, took, reply, times);
    note_slow(state, session, command, args, took);
}

/// The commands that a client may send while it listens to channels and speaks RESP2.
const LISTENING: [&str; 9] = [
    "ping",
    "psubscribe",
    "punsubscribe",
    "quit",
    "reset",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
];

/// Removes the reply of a client that wants no replies, but keeps the pushes in the reply.
#[cold]
pub(crate) fn hush(session: &mut Session, replies: &mut Replies, start: usize, pushed: &[u8]) {
    match session.mute {
        Mute::No => return,
        Mute::All => {}
        Mute::SkipNext => {
            session.mute = Mute::Skip;
            return;
        }
        Mute::Skip => session.mute = Mute::No,
    }
    debug_assert!(start <= replies.buf.len(), "what was replied before stays");
    replies.buf.truncate(start);
    replies.buf.extend_from_slice(pushed);
}

/// Returns Redis's text for an unknown command, with the first arguments.
fn unknown(args: &Args<'_>) -> String {
    let shown = |arg: &[u8], max: usize| {
        let shown = &arg[..arg.len().min(max)];
        // Redis shows the word as a C string, which ends at its first zero byte.
        let end = shown.iter().position(|b| *b == 0).unwrap_or(shown.len());
        String::from_utf8_lossy(&shown[..end]).into_owned()
    };
    let mut list = String::new();
    for arg in args.from(1) {
        if list.len() >= 128 {
            break;
        }
        list += &format!("'{}' ", shown(arg, 128 - list.len()));
    }
    let name = shown(args.at(0), 128);
    format!("ERR unknown command '{name}', with args beginning with: {list}")
}

#[cfg(test)]
mod tests;
