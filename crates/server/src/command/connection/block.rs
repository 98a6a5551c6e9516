//! MULTI, EXEC and DISCARD.
//!
//! EXEC runs a block in two steps. First the plain commands (SELECT, CLIENT, PING …) run once, in order, into a
//! side buffer. They determine the database and the protocol of each data command. Then the data commands run
//! in one engine transaction over the partitions of all their keys. The engine may run that transaction more
//! than once. At the end all replies are joined in order. A command that fails at run time replies with its
//! error and changes nothing. The other commands keep their effects, as in Redis. If the engine refuses the
//! transaction for lack of memory or log space, the whole block has no effect.
//!
//! The watched keys are compared twice: before the first step, and in the transaction under the latches of the keys'
//! partitions. A watched key's expiry after the first comparison does not abort the block.

use crate::acl;
use crate::ahead::AHEAD_KEYS;
use crate::beside::Load;
use crate::command::data::{Claims, Observing, Outcome};
use crate::command::flag::{ALONE, APART, FAST, IMMEDIATE, LOADING, PROVES};
use crate::command::run::{add_partitions, failed, told_by};
use crate::command::spec::{Command, plain};
use crate::command::{After, Cx, Data, Effects, Keys, PlainFn, Run, flag};
use crate::engine::{Error, PartitionSet, Ticket, Tx};
use crate::replies::Replies;
use crate::resp::parse::{Args, OwnedArgs};
use crate::resp::reply::Out;
use crate::session::{Block, Session};
use crate::state::{Stage, State, unix_ms};
use crate::stats::Counted;
use crate::watch::{self, Watching};
use perdura_base::num::to_u64;
use perdura_script::LONG_RUN;
use std::cell::RefCell;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    plain("discard", 1, LOADING | IMMEDIATE | FAST | APART, discard),
    plain(
        "exec",
        1,
        LOADING | IMMEDIATE | PROVES | APART | ALONE,
        exec,
    ),
    plain("multi", 1, LOADING | IMMEDIATE | FAST | APART, multi),
];

/// The bytes that a queued command takes besides its arguments: two slots of the queue, and the allocator's headers of
/// two buffers. A command counts for two slots because half of the queue may be free.
const QUEUED_BYTES: usize = 2 * size_of::<(&Command, OwnedArgs)>() + 32;

/// Queues a command for EXEC.
pub(crate) fn enqueue(
    state: &State,
    session: &mut Session,
    replies: &mut Replies,
    command: &'static Command,
    args: &Args<'_>,
) {
    let mut out = Out::new(&mut replies.buf, session.resp3);
    let Some(block) = &mut session.block else {
        return;
    };
    if command.has(flag::NO_MULTI) {
        block.broken = true;
        return out.error("ERR Command not allowed inside a transaction");
    }
    block.proves |= command.has(PROVES);
    block.words += args.len();
    let is_narrow = matches!(command.run, Run::Data(_)) && !matches!(command.keys, Keys::All);
    block.is_wide |= !is_narrow || command.has(flag::SCRIPTS);
    let owned = OwnedArgs::copy(args);
    block.bytes += owned.bytes() + QUEUED_BYTES;
    if block.bytes > state.options.query_bytes_max {
        block.broken = true;
        block.queue.clear();
        block.bytes = 0;
        return out.error("ERR the transaction is too big (client-query-buffer-limit)");
    }
    block.queue.push((command, owned));
    out.simple("QUEUED");
}

/// Marks an open block as broken by a refused command, or ends the block if the command was EXEC. Returns the
/// error to reply with.
pub(crate) fn broken_by(
    state: &mut State,
    session: &mut Session,
    args: &Args<'_>,
    error: String,
) -> String {
    if !args.at(0).eq_ignore_ascii_case(b"EXEC") {
        if let Some(block) = &mut session.block {
            block.broken = true;
        }
        return error;
    }
    session.block = None;
    state.common.watches.forget(&mut session.watched);
    let why = error.strip_prefix("ERR ").unwrap_or(&error);
    format!("EXECABORT Transaction discarded because of: {why}")
}

/// `MULTI`
pub(crate) fn multi(cx: &mut Cx<'_>, _: &Args<'_>) {
    if cx.session.block.is_some() {
        return cx.out.error("ERR MULTI calls can not be nested");
    }
    cx.session.block = Some(Block::default());
    cx.out.ok();
}

/// `DISCARD`
pub(crate) fn discard(cx: &mut Cx<'_>, _: &Args<'_>) {
    match cx.session.block.take() {
        Some(_) => {
            cx.state.common.watches.forget(&mut cx.session.watched);
            cx.out.ok();
        }
        None => cx.out.error("ERR DISCARD without MULTI"),
    }
}

/// Returns whether a block has more arguments than a round of the loop should handle.
fn is_long(state: &State, block: &Block) -> bool {
    !block.broken && !block.is_wide && to_u64(block.words) > state.steps.long
}

/// One command's result in the first step of EXEC.
struct Step {
    database: u8,
    resp3: bool,
    /// The reply of a plain command, in the side buffer.
    reply: Option<Range<usize>>,
}

/// `EXEC`
pub(crate) fn exec(cx: &mut Cx<'_>, _: &Args<'_>) {
    let next = cx.session.block.as_ref();
    let landings = cx.state.common.flights.landings();
    if cx.state.common.flights.any_beside() && next.is_some_and(|block| is_long(cx.state, block)) {
        cx.effects.after = After::Held(landings);
        return;
    }
    let Some(block) = cx.session.block.take() else {
        return cx.out.error("ERR EXEC without MULTI");
    };
    let watched = Watching::new(&mut cx.session.watched, &cx.state.common.watches);
    if block.broken {
        let text = "EXECABORT Transaction discarded because of previous errors.";
        return cx.out.error(text);
    }
    // The plain commands must have no effect if a watched key has changed.
    let expired = || watch::expired(&watched.own, unix_ms()).then_some(cx.state.newest());
    if let Some(epoch) = watched.changed().or_else(expired) {
        // The null reply shows that a watched key has changed, and that change may not be durable yet.
        cx.effects.epoch = epoch;
        return cx.out.null_array();
    }
    let before = (cx.session.database, cx.session.resp3);
    let (ready, partitions) = run_plain_commands(cx, block, watched);
    if is_long(cx.state, &ready.block) && matches!(cx.state.stage, Stage::Ready(_)) {
        return leave(cx, ready, partitions);
    }
    let start = cx.out.buf.len();
    let done = run_steps(cx, ready, partitions);
    if !matches!(done, Ok(true)) {
        // The block had no effect, so a SELECT in it must have none.
        (cx.session.database, cx.session.resp3) = before;
        cx.effects.held_back.clear();
    }
    if let Ok(false) = done {
        cx.out.buf.truncate(start);
        Out::new(cx.out.buf, before.1).null_array();
    }
    if let Err(error) = done {
        cx.out.buf.truncate(start);
        cx.effects.epoch = cx.effects.epoch.max(told_by(cx.state, &error).epoch);
        failed(cx.state, &error, &mut cx.out);
    }
}

/// Runs the plain commands of a block. Returns the block with their replies, and the partitions of
/// the data commands' keys and of the watched keys.
fn run_plain_commands(cx: &mut Cx<'_>, block: Block, watched: Watching) -> (Ready, PartitionSet) {
    let mut partitions = PartitionSet::empty();
    if let Some(db) = cx.state.db() {
        let watched = watched.own.keys().map(|(_, key)| db.partition_of(key));
        watched.for_each(|partition| partitions.insert(partition));
    }
    let mut aside = Vec::new();
    let mut steps = Vec::with_capacity(block.queue.len());
    for (command, owned) in &block.queue {
        let (database, resp3) = (cx.session.database, cx.session.resp3);
        let judged = acl::check_again(cx.state, cx.session, command, &owned.args());
        let reply = match command.run {
            _ if judged.is_err() => {
                let start = aside.len();
                if let Err(error) = judged {
                    Out::new(&mut aside, resp3).error(&error);
                }
                Some(start..aside.len())
            }
            Run::Plain(run) => {
                let start = aside.len();
                run_plain(cx, &mut aside, command, run, &owned.args());
                Some(start..aside.len())
            }
            Run::Data(_) => {
                if let Stage::Ready(db) = &cx.state.stage {
                    add_partitions(db, command, &owned.args(), &mut partitions);
                }
                None
            }
        };
        steps.push(Step {
            database,
            resp3,
            reply,
        });
    }
    if block
        .queue
        .iter()
        .any(|(command, _)| command.has(flag::SCRIPTS))
    {
        cx.state.scripts.enter(cx.session, cx.state.now);
    }
    let ready = Ready {
        block,
        steps,
        aside,
        ran: Vec::new(),
        failed: Vec::new(),
        watched,
        is_void: false,
    };
    (ready, partitions)
}

/// Runs a plain command and adds its reply to `aside`.
fn run_plain(
    cx: &mut Cx<'_>,
    aside: &mut Vec<u8>,
    command: &Command,
    run: PlainFn,
    args: &Args<'_>,
) {
    let out = Out::new(aside, cx.session.resp3);
    let mut inner = Cx {
        state: cx.state,
        session: cx.session,
        out,
        effects: Effects::NONE,
        in_block: true,
    };
    run(&mut inner, args);
    inner.rest_on_writes(command);
    let effects = inner.effects;
    cx.effects.add(effects);
    cx.out.resp3 = cx.session.resp3;
}

/// A block after its plain commands have run.
struct Ready {
    block: Block,
    steps: Vec<Step>,
    /// The replies of the plain commands.
    aside: Vec<u8>,
    /// The time that each command took in the block's last run. `failed` has the index and the reply of each
    /// command that failed.
    ran: Vec<Duration>,
    failed: Vec<(usize, Vec<u8>)>,
    watched: Watching,
    /// True if a watched key had changed in the block's last run. The block then has no effect.
    is_void: bool,
}

/// The reason why the transaction of a block ended early.
enum Ended {
    Failed(Error),
    /// A command would go through very many elements, so the block runs beside the loop.
    Leaves(PartitionSet),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Ended::Failed(error)
    }
}

impl Ready {
    /// Returns whether no command of the block needs a transaction.
    fn is_plain(&self) -> bool {
        let mut queue = self.block.queue.iter();
        queue.all(|(command, _)| matches!(command.run, Run::Plain(_)))
    }

    /// Runs the data commands within a transaction, and joins all replies in order. If a watched key has changed, runs
    /// nothing and replies with null. The transaction holds the latches of the watched keys, so no other write comes
    /// between this comparison and the commit.
    fn run(&mut self, data: &mut Data<'_, '_>, out: &mut Out<'_>) -> Result<(), Ended> {
        self.is_void = self.watched.changed().is_some();
        if self.is_void {
            out.null_array();
            return Ok(());
        }
        let out = &mut *out.buf;
        let start = out.len();
        self.ran.clear();
        self.failed.clear();
        data.tx.expect_rows(self.block.writes(), self.block.bytes)?;
        Out::new(out, false).array(self.steps.len());
        let began = Instant::now();
        let (mut clock, mut is_noted) = (began, false);
        data.hurry();
        for (at, ((command, owned), step)) in self.block.queue.iter().zip(&self.steps).enumerate() {
            if at % AHEAD_KEYS == 0 {
                data.look_ahead(self.block.keys_from(at));
            }
            let begin = out.len();
            match (command.run, &step.reply) {
                (_, Some(reply)) => out.extend_from_slice(&self.aside[reply.clone()]),
                (Run::Data(_), None) => {
                    data.select(step.database);
                    let mut reply = Out::new(out, step.resp3);
                    data.run(command, &owned.args(), &mut reply)?;
                }
                (Run::Plain(_), None) => {}
            }
            if data.leaves() {
                return Err(Ended::Leaves(data.tx.latched().collect()));
            }
            data.check_reply(out.len() - start)?;
            let now = Instant::now();
            self.ran.push(now.saturating_duration_since(clock));
            clock = now;
            if !is_noted && now.saturating_duration_since(began) >= LONG_RUN {
                data.note_long();
                is_noted = true;
            }
            if out.get(begin) == Some(&b'-') {
                self.failed.push((at, out[begin..].to_vec()));
            }
        }
        Ok(())
    }

    /// Counts each command of the block in the statistics, with its time, and with its error reply if it failed.
    fn count_steps(&self, state: &mut State) {
        let times = state.options.latency_tracking;
        let mut failed = self.failed.iter().peekable();
        let mut found: Option<(&Command, usize)> = None;
        for (at, ((command, owned), took)) in self.block.queue.iter().zip(&self.ran).enumerate() {
            let error = failed.next_if(|(failed, _)| *failed == at);
            // Long blocks often repeat a command. The slot is looked up once for all repetitions in a row.
            if found.is_none_or(|(known, _)| !std::ptr::eq(known, *command)) {
                let slot = state.lookup.find_slot(command.name.as_bytes());
                found = slot.map(|(slot, _)| (*command, slot));
            }
            let Some((_, slot)) = found else {
                continue;
            };
            let reply = error.map_or(&b"+"[..], |(_, reply)| reply);
            let counted = Counted::new(slot, command, &owned.args());
            state.stats.by_command.ran(counted, *took, reply, times);
        }
    }

    /// Shows the commands of the block to monitors.
    fn show_steps(&self, state: &mut State, session: &Session) {
        for (command, owned) in &self.block.queue {
            crate::command::server::monitor::feed(state, session, command, &owned.args());
        }
    }
}

/// A block that runs beside the loop.
struct Long {
    ready: Ready,
    exec: &'static Command,
    word: OwnedArgs,
}

impl Load for Long {
    fn run(&mut self, data: &mut Data<'_, '_>, out: &mut Out<'_>) -> Result<(), Error> {
        match self.ready.run(data, out) {
            Ok(()) | Err(Ended::Leaves(_)) => Ok(()),
            Err(Ended::Failed(error)) => Err(error),
        }
    }

    fn request(&self) -> (&'static Command, Args<'_>) {
        (self.exec, self.word.args())
    }

    fn each(&self, note: &mut dyn FnMut(&'static Command, &Args<'_>)) {
        let ran = self.ready.block.queue.iter();
        for (command, owned) in ran.filter(|_| !self.ready.is_void) {
            note(command, &owned.args());
        }
    }

    fn count(&mut self, state: &mut State, session: &Session) {
        if !self.ready.is_void {
            self.ready.count_steps(state);
            self.ready.show_steps(state, session);
        }
    }

    fn bytes(&self) -> usize {
        self.ready.block.bytes
    }
}

/// Runs a block beside the loop.
fn leave(cx: &mut Cx<'_>, ready: Ready, held: PartitionSet) {
    let Some((_, exec)) = cx.state.lookup.find_slot(b"exec") else {
        return;
    };
    let word = OwnedArgs::of(std::iter::once(&b"EXEC"[..]));
    let database = cx.session.database;
    let load = Box::new(Long { ready, exec, word });
    cx.state.run_beside(cx.session, database, held, load);
    cx.effects.after = After::Beside;
}

/// Runs the data commands of a block in one transaction. Returns whether the block had effects; it has none if a watched
/// key has changed.
fn run_steps(cx: &mut Cx<'_>, mut ready: Ready, partitions: PartitionSet) -> Result<bool, Error> {
    let start = cx.out.buf.len();
    let plain_only = ready.is_plain();
    let db = match &cx.state.stage {
        Stage::Ready(db) if !plain_only => db,
        _ => {
            cx.out.array(ready.steps.len());
            cx.out.buf.extend_from_slice(&ready.aside);
            let held_back = std::mem::take(&mut cx.effects.held_back);
            let newest = cx.state.newest();
            cx.state.common.send_deferred(held_back, newest);
            ready.show_steps(cx.state, cx.session);
            return Ok(true);
        }
    };
    let may_leave = !ready.block.is_wide && !cx.state.common.flights.any_beside();
    let (state, session, out) = (&*cx.state, &*cx.session, &mut cx.out);
    let observing = Observing::of(state);
    let held_back = RefCell::new(std::mem::take(&mut cx.effects.held_back));
    let shared = RefCell::new(&mut ready);
    let claims = RefCell::new(Claims::new(&state.common));
    let mut run = |tx: &mut Tx<'_>| {
        let claims = &mut claims.borrow_mut();
        claims.restart();
        out.buf.truncate(start);
        let mut data = Data::new(state, db, tx, 0);
        data.run_for(&session.user);
        if may_leave {
            data.may_leave();
        }
        shared.borrow_mut().run(&mut data, out)?;
        data.serve(claims)?;
        Ok(data.finish()?)
    };
    let publish = |outcome: &mut Outcome, ticket: Ticket| {
        if shared.borrow().is_void {
            return;
        }
        for (command, owned) in &shared.borrow().block.queue {
            state.note_reads(session, command, &owned.args());
        }
        outcome.add_messages(held_back.take());
        outcome.publish(&observing, &mut claims.borrow_mut(), ticket.epoch);
    };
    let done = Claims::complete(&claims, || {
        db.transact_then(&partitions, state.wall_ms(), &mut run, publish)
    });
    state.end_long();
    drop(claims);
    let (outcome, ticket) = match done {
        Ok(done) => done,
        Err(Ended::Failed(error)) => return Err(error),
        Err(Ended::Leaves(held)) => {
            cx.out.buf.truncate(start);
            leave(cx, ready, held);
            return Ok(true);
        }
    };
    let told = outcome.told(ticket.epoch, cx.state.reached);
    cx.state.newest = cx.state.newest.max(told.epoch);
    outcome.settle(cx.state);
    cx.effects.epoch = cx.effects.epoch.max(told.epoch);
    if ready.is_void {
        return Ok(false);
    }
    ready.count_steps(cx.state);
    ready.show_steps(cx.state, cx.session);
    cx.effects.written = cx.effects.written.max(told.written);
    Ok(true)
}
