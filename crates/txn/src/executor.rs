//! Runs transactions: takes latches, undoes failed attempts, encodes and appends the records,
//! releases the latches.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Epoch, Error, PartitionId, PartitionSet, Result, StreamId};
use perdura_heap::{GroupBuilder, Heap, MemoryUse, Undo};
#[cfg(feature = "flaws")]
use perdura_wal::FrameKind;
use smallvec::SmallVec;

use crate::counters::CounterKeys;
use crate::manner::Manner;
use crate::ordered::{self, Says};
use crate::packing::Packing;
use crate::random::Seeds;
use crate::sink::Sink;
use crate::tx::{ACCOUNT_STEP_BYTES, Guards, Tx};
use crate::typed::{Typed, ValueForm};
use crate::verb::Marks;

mod append;
mod latching;
mod scratch;
#[cfg(feature = "flaws")]
mod seeded;

use append::append;
use scratch::{Running, Scratch};

pub use latching::Loader;

/// The condition for the reply to a transaction: the durable epoch must have reached `epoch`. If `epoch` is 0, the
/// reply need not wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "an answer given before its ticket's epoch is durable can be a lie after a crash"]
pub struct Ticket {
    /// The commit epoch to wait for.
    pub epoch: Epoch,
}

/// The limits of a transaction.
#[derive(Debug, Clone)]
pub struct ExecutorOptions {
    /// The longest value, bytes.
    pub value_bytes_max: usize,
    /// The form of a changed row in a logged effect.
    pub value_form: ValueForm,
}

/// The transaction component. It runs transactions on one heap and passes their records to one
/// sink.
pub struct Executor {
    heap: Arc<Heap>,
    sink: Sink,
    options: ExecutorOptions,
    counters: CounterKeys,
    seeds: Seeds,
    /// The loader of absent partitions. `None`: all partitions are loaded.
    loader: Option<Arc<dyn Loader>>,
}

/// After this many runs that missed latches, a transaction gets all latches. Otherwise a transaction that needs a new
/// partition in each run would not end.
const RUNS_MAX: usize = 16;

const REFUSED: &str = "a write of this transaction was refused, so the whole transaction was \
                       undone";
const ENGINE_PANICKED: &str = "the engine panicked in a transaction";

/// A guard of a change that must not stop halfway. If a panic drops the guard before [`Fuse::done`] is called, the log
/// is stopped.
struct Fuse<'a> {
    sink: &'a Sink,
    done: bool,
}

impl<'a> Fuse<'a> {
    fn new(sink: &'a Sink) -> Fuse<'a> {
        Fuse { sink, done: false }
    }

    fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Fuse<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.sink.fail(ENGINE_PANICKED);
        }
    }
}

/// The outcome of an attempt. For every outcome but [`Outcome::Committed`], the attempt's changes
/// are undone.
enum Outcome<R, E> {
    Committed(R, Ticket),
    Failed(E),
    /// The attempt touched these partitions without their latches.
    Missed(PartitionSet),
    /// The caller's patience with the latch of this partition has ended. The closure has not run.
    Held(PartitionId),
    /// A restart has not loaded these partitions yet. The closure has not run.
    Absent(PartitionSet),
    /// A command used a page-addressed table.
    NoCommand,
    Panicked(Box<dyn Any + Send>),
}

/// The closures of a transaction: its steps, and the closure that follows its commit under the latches.
struct Body<F, S> {
    run: F,
    settle: S,
}

/// The partitions of an attempt.
#[derive(Clone, Copy)]
struct Declared<'a> {
    /// The partitions to latch for the attempt.
    latched: &'a PartitionSet,
    /// The partitions with logged changes. They differ from `latched` only under a seeded bug.
    logged: &'a PartitionSet,
}

/// The latches and buffers that a transaction holds while it runs.
struct Held<'a> {
    guards: Guards<'a>,
    undo: &'a mut Undo,
    typed: &'a mut Typed,
}

/// The changes of an attempt, and how they are logged.
struct Attempt<'a> {
    undo: &'a mut Undo,
    group: &'a mut GroupBuilder,
    typed: &'a mut Typed,
    /// The payload of an ordered frame.
    frame: &'a mut Vec<u8>,
    /// The partitions with logged changes.
    logged: &'a PartitionSet,
    stream: StreamId,
    manner: &'a Manner<'a>,
    marks: &'a Marks,
}

impl Attempt<'_> {
    /// Encodes the changes of the attempt's pages into `group`.
    fn encode_group(&mut self, guards: &mut Guards<'_>) {
        self.group.clear();
        if !self.undo.is_empty() {
            let logged = guards
                .iter_mut()
                .filter(|(id, _)| self.logged.contains(*id));
            for (_, part) in logged {
                part.encode(self.undo, self.group);
            }
        }
    }

    /// Asserts the conditions for appending the attempt's group.
    fn check_group(&self, guards: &Guards<'_>, partitions: &PartitionSet, ckpt_epoch: CkptEpoch) {
        let is_latched = |id| guards.iter().any(|(latched, _)| *latched == id);
        debug_assert!(
            partitions.iter().all(is_latched),
            "I1: the latches of all that is appended are held"
        );
        let undoes = |id| self.undo.partitions().contains(id);
        debug_assert!(
            partitions.iter().all(undoes),
            "what is logged can be taken back"
        );
        debug_assert!(
            self.group.tag_max() <= ckpt_epoch,
            "I1: a page's tag is of a sweep that has begun"
        );
    }
}

impl Executor {
    /// Returns an executor that runs transactions on `heap` and passes their records to `sink`.
    #[must_use]
    pub fn new(heap: Arc<Heap>, sink: Sink, options: ExecutorOptions) -> Self {
        Executor {
            heap,
            sink,
            options,
            counters: CounterKeys::default(),
            seeds: Seeds::new(0),
            loader: None,
        }
    }

    /// Returns the executor with a loader of the partitions that a restart has left absent. A transaction that needs
    /// such partitions waits until they are loaded.
    #[must_use]
    pub fn with_loader(mut self, loader: Arc<dyn Loader>) -> Self {
        self.loader = Some(loader);
        self
    }

    /// Returns the executor with other seeds for the random numbers of transactions. Each life of a database needs
    /// another `seed`.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seeds = Seeds::new(seed);
        self
    }

    /// Runs `f` as one serial transaction over the declared partitions, at `now_ms`. If `f` touches
    /// other partitions, its changes are undone and `f` runs again with these latches added.
    ///
    /// # Errors
    /// The error of `f`, after its changes are undone. Writes in `f` may fail with [`Error::LogFull`] and
    /// [`Error::Stopped`]. [`Error::Usage`] if the thread is already running a transaction on this database.
    ///
    /// # Panics
    /// If `f` panics; see the crate's page.
    pub fn run<R, E: From<Error>>(
        &self,
        declared: &PartitionSet,
        now_ms: u64,
        f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<(R, Ticket), E> {
        self.run_as(declared, &Manner::new(now_ms, Says::Effects), f)
    }

    /// Like [`run`](Self::run), but `manner` also determines how the transaction is logged. If a command touches a
    /// partition that it did not declare, or a page-addressed table, it is undone and runs again, and its effects are
    /// logged instead. A strict command fails in this case.
    ///
    /// # Errors
    /// As [`run`](Self::run). [`Error::Usage`] if a strict command cannot be logged as a command. [`Error::Usage`] if a
    /// replay needs a partition outside its frame. [`Error::Undeclared`] if the caller's patience with the latch of this
    /// partition has ended.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_as<R, E: From<Error>>(
        &self,
        declared: &PartitionSet,
        manner: &Manner<'_>,
        f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<(R, Ticket), E> {
        self.run_then(declared, manner, f, |_, _| ())
    }

    /// Like [`run_as`](Self::run_as), but calls `settle` after the commit, before the latches are released. So no other
    /// transaction on these partitions comes between the commit and `settle`. `settle` runs once, for the run that
    /// commits. It must be short, and must not run a transaction.
    ///
    /// # Errors
    /// As [`run_as`](Self::run_as).
    ///
    /// # Panics
    /// As [`run_as`](Self::run_as), and if `settle` panics. The transaction has then committed.
    pub fn run_then<R, E: From<Error>>(
        &self,
        declared: &PartitionSet,
        manner: &Manner<'_>,
        f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
        settle: impl FnMut(&mut R, Ticket),
    ) -> Result<(R, Ticket), E> {
        let mut body = Body { run: f, settle };
        let mut running = Running::begin(&self.heap)?;
        let scratch = running.scratch();
        scratch.typed.seed = None;
        let mut parts = *declared;
        let mut again = None;
        let mut runs = 0;
        loop {
            runs += 1;
            let declared = Declared {
                latched: &parts,
                logged: if armed(Flaw::HomeNotLogged) {
                    declared
                } else {
                    &parts
                },
            };
            let manner = again.as_ref().unwrap_or(manner);
            match self.attempt(scratch, declared, manner, &mut body) {
                Outcome::Committed(value, ticket) => return Ok((value, ticket)),
                Outcome::Missed(missing) => {
                    let is_new = missing.iter().all(|id| !parts.contains(id));
                    assert!(is_new, "what it missed was not latched");
                    again = Some(Manner {
                        says: manner.says.widened(&missing)?,
                        now_ms: manner.now_ms + u64::from(armed(Flaw::RerunAtOtherTime)),
                        ..*manner
                    });
                    if runs == RUNS_MAX {
                        parts = PartitionSet::all(self.heap.geometry().partitions);
                    } else {
                        parts.union(&missing);
                    }
                }
                Outcome::Held(id) => return Err(Error::Undeclared(id).into()),
                Outcome::Absent(absent) => {
                    self.await_loading(&absent, manner)?;
                    runs -= 1;
                }
                Outcome::Failed(error) => {
                    if self.heap.kept_over_bound() {
                        self.heap.make_room();
                    }
                    return Err(error);
                }
                Outcome::NoCommand => {
                    again = Some(Manner {
                        says: manner.says.without_command()?,
                        ..*manner
                    });
                }
                Outcome::Panicked(panic) => resume_unwind(panic),
            }
        }
    }

    /// Runs the body once, and commits or undoes its changes.
    fn attempt<R, E: From<Error>>(
        &self,
        scratch: &mut Scratch,
        declared: Declared<'_>,
        manner: &Manner<'_>,
        body: &mut Body<impl FnMut(&mut Tx<'_>) -> Result<R, E>, impl FnMut(&mut R, Ticket)>,
    ) -> Outcome<R, E> {
        let Scratch {
            undo,
            group,
            typed,
            frame,
        } = scratch;
        undo.clear();
        typed.begin(&manner.says, self.options.value_form);
        // Without a log, no effects have to be noted.
        typed.wants_effects &= !self.sink.is_unlogged();
        let marks = Marks::default();
        let guards = match self.latch(declared.latched, manner) {
            Ok(guards) => guards,
            Err(refused) => return refused.into(),
        };
        let held = Held {
            guards,
            undo,
            typed,
        };
        let mut tx = self.begin(held, &marks, manner.now_ms);
        let (stream, memory) = (tx.stream, tx.memory);
        // The panic is caught here because the latches must not be released while pages hold half a
        // transaction.
        let result = catch_unwind(AssertUnwindSafe(|| {
            let value = (body.run)(&mut tx)?;
            tx.check_collections()?;
            Ok(value)
        }));
        let Tx {
            guards,
            undo,
            typed,
            accounted,
            ..
        } = tx;
        memory.sub(MemoryUse::Undo, accounted);
        let missing = marks.missing();
        let by_engine = result.is_err() && marks.panic_is_the_engines();
        // The attempt has missed a latch, so its result does not count, even if the closure
        // panicked.
        if !missing.is_empty() && !by_engine {
            if !armed(Flaw::RerunOverHalf) {
                self.undo(guards, undo);
            }
            return Outcome::Missed(missing);
        }
        if typed.used_pages() && !by_engine && !armed(Flaw::CommandReadPages) {
            self.undo(guards, undo);
            return Outcome::NoCommand;
        }
        let attempt = Attempt {
            undo,
            group,
            typed,
            frame,
            logged: declared.logged,
            stream,
            manner,
            marks: &marks,
        };
        self.end(result, guards, attempt, &mut body.settle)
    }

    /// Ends an attempt that missed no latch. Commits the attempt if it succeeded, and undoes it otherwise.
    fn end<R, E: From<Error>>(
        &self,
        result: std::thread::Result<Result<R, E>>,
        guards: Guards<'_>,
        attempt: Attempt<'_>,
        settle: &mut impl FnMut(&mut R, Ticket),
    ) -> Outcome<R, E> {
        let marks = attempt.marks;
        match result {
            // The log has refused a write, and the closure ignored that error. So some of the changes may be missing.
            Ok(Ok(_)) if marks.met_full_log() => {
                self.undo(guards, attempt.undo);
                Outcome::Failed(Error::LogFull(REFUSED.into()).into())
            }
            Ok(Ok(mut value)) => {
                let ticket = self.commit(guards, attempt, |ticket| settle(&mut value, ticket));
                Outcome::Committed(value, ticket)
            }
            Ok(Err(error)) => {
                self.undo(guards, attempt.undo);
                Outcome::Failed(error)
            }
            Err(panic) => {
                let by_engine = marks.panic_is_the_engines();
                if by_engine {
                    self.sink.fail(ENGINE_PANICKED);
                }
                if !armed(Flaw::PanicNotUndone) {
                    self.undo(guards, attempt.undo);
                }
                if by_engine && self.sink.is_replay() {
                    // This is a replay: there is no log to stop, and the bug is not in the
                    // procedure. So return an error.
                    return Outcome::Failed(Error::Stopped(ENGINE_PANICKED.into()).into());
                }
                Outcome::Panicked(panic)
            }
        }
    }

    /// Returns a new transaction that holds these latches.
    fn begin<'a>(&'a self, held: Held<'a>, marks: &'a Marks, now_ms: u64) -> Tx<'a> {
        let Held {
            guards,
            undo,
            typed,
        } = held;
        let memory = self.heap.memory().as_ref();
        let limited = !self.sink.is_replay() || armed(Flaw::MemoryLimitInReplay);
        let out_of_memory =
            (limited && !memory.has_room(0)).then(|| (memory.used(), memory.limit()));
        Tx {
            wal: self.sink.log(),
            stream: self.sink.idlest(),
            heap: &self.heap,
            geometry: self.heap.geometry(),
            guards,
            undo,
            typed,
            marks,
            counters: &self.counters,
            seeds: &self.seeds,
            appending: 0,
            now_ms,
            changed: SmallVec::new(),
            value_bytes_max: self.options.value_bytes_max,
            out_of_memory,
            memory,
            accounted: 0,
            account_at: ACCOUNT_STEP_BYTES,
            packing: Packing::FULL,
            names: None,
        }
    }

    /// Undoes the changes of a transaction and releases its latches.
    fn undo(&self, mut guards: Guards<'_>, undo: &mut Undo) {
        let fuse = Fuse::new(&self.sink);
        for (_, part) in &mut guards {
            part.rollback(undo);
            if armed(Flaw::AbortKeepsSequence) && undo.wrote_keyed() {
                let next = part.pseq() + 1;
                part.set_pseq(next);
            }
        }
        fuse.done();
    }

    /// Encodes the log records of a transaction, appends them, calls `settle`, and then releases the latches. Returns
    /// the ticket.
    fn commit(
        &self,
        mut guards: Guards<'_>,
        attempt: Attempt<'_>,
        settle: impl FnOnce(Ticket),
    ) -> Ticket {
        let ticket = self.append_changes(&mut guards, attempt);
        debug_assert!(
            self.sink
                .log()
                .is_none_or(|wal| ticket.epoch <= wal.current()),
            "what `settle` tells of is in an epoch that has begun"
        );
        settle(ticket);
        ticket
    }

    /// Encodes the log records of a transaction and appends them. Returns the ticket.
    fn append_changes(&self, guards: &mut Guards<'_>, mut attempt: Attempt<'_>) -> Ticket {
        // The fuse is dropped before the guards, so a panic stops the log before it releases the latches.
        let fuse = Fuse::new(&self.sink);
        attempt.encode_group(guards);
        let Attempt {
            stream,
            manner: Manner { now_ms, says, .. },
            ..
        } = attempt;
        let wrote_rows = !attempt.typed.homes.is_empty();
        if let Says::Replayed { places, .. } = says {
            debug_assert!(
                attempt.group.is_empty(),
                "a replay changes key-addressed tables"
            );
            ordered::restore_places(guards, places);
        }
        let Some(wal) = self.sink.wal_of_commits() else {
            if wrote_rows && !self.sink.is_replay() {
                ordered::take_places(guards, attempt.typed, says);
            }
            fuse.done();
            return Ticket::default();
        };
        if attempt.group.is_empty() && !wrote_rows {
            let ticket = self.ticket_of_reads(guards);
            fuse.done();
            return ticket;
        }
        let mut partitions = attempt.group.partitions();
        attempt.check_group(guards, &partitions, self.heap.ckpt_epoch());
        #[cfg(feature = "flaws")]
        if armed(Flaw::LateAppend) && !wrote_rows {
            fuse.done();
            let tag = attempt.group.tag_max();
            return seeded::late_append(guards, attempt.group, |payload: &[u8]| {
                wal.append(stream, FrameKind::Group, payload, &partitions, tag)
                    .epoch
            });
        }
        let rows = wrote_rows.then(|| {
            let places = ordered::take_places(guards, attempt.typed, says);
            let frame = attempt.frame;
            frame.clear();
            let kind = ordered::encode(&places, attempt.typed, says, *now_ms, frame);
            self.sink.cut(kind, frame);
            partitions.union(&ordered::partitions(&places));
            (kind, frame.as_slice())
        });
        let epoch = append(wal, stream, &partitions, attempt.group, rows);
        debug_assert!(
            self.ticket_of_reads(guards).epoch <= epoch,
            "I2: read under the latches, a commit's epoch is no smaller than what it rests on"
        );
        for (_, part) in guards.iter_mut() {
            part.set_last_write_epoch(epoch);
        }
        fuse.done();
        Ticket { epoch }
    }

    /// Returns the ticket of a transaction that only read. The ticket has the epoch of the newest write in a latched
    /// partition.
    fn ticket_of_reads(&self, guards: &Guards<'_>) -> Ticket {
        let newest = guards.iter().map(|(_, part)| part.last_write_epoch()).max();
        let epoch = newest
            .filter(|_| !armed(Flaw::EagerReadReply))
            .unwrap_or_default();
        debug_assert!(
            self.sink.log().is_none_or(|wal| epoch <= wal.current()),
            "I3: what was read was written in an epoch that has begun, so it will be durable"
        );
        Ticket { epoch }
    }
}
