//! Runs transactions: latches, undo, group, append, release.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Error, PartitionSet, Result, StreamId};
use perdura_heap::{GroupBuilder, Heap, MemoryUse, Undo};
use perdura_wal::{FrameKind, Wal};
use smallvec::SmallVec;

use crate::ordered::{self, Says};
use crate::packing::Packing;
use crate::sink::Sink;
use crate::tx::{ACCOUNT_STEP_BYTES, Guards, Tx};
use crate::typed::{Typed, ValueForm};
use crate::verb::Marks;

#[cfg(feature = "flaws")]
mod seeded;

/// Tells when the reply to a transaction may leave: once the durable epoch has reached `epoch`, or at
/// once if that is 0.
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
    /// What the effect of a changed row says.
    pub value_form: ValueForm,
    /// Effects frames are cut to so many bytes, which cannot be replayed: for measuring.
    pub effects_bytes_max: Option<usize>,
}

/// How a transaction runs.
#[derive(Debug, Clone, Copy)]
pub struct Manner<'a> {
    /// Its time, milliseconds since 1970.
    pub now_ms: u64,
    /// What the log says of it, if it changes key-addressed tables.
    pub says: Says<'a>,
}

/// The transaction component over one heap and one sink of its records.
pub struct Executor {
    heap: Arc<Heap>,
    sink: Sink,
    options: ExecutorOptions,
}

/// The largest buffers that a thread keeps between its transactions, bytes.
const SCRATCH_BYTES_MAX: u64 = 1 << 20;

/// A transaction that has missed latches in this many runs gets all of them, so that a transaction
/// that walks from key to key ends.
const RUNS_MAX: usize = 16;

/// The buffers that a thread keeps between its transactions.
struct Scratch {
    undo: Undo,
    group: GroupBuilder,
    typed: Typed,
    /// The payload of an ordered frame.
    frame: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch {
            undo: Undo::new(),
            group: GroupBuilder::new(),
            typed: Typed::new(),
            frame: Vec::new(),
        }
    }
}

impl Scratch {
    fn is_small(&self) -> bool {
        let typed = to_u64(self.typed.bytes_held() + self.frame.capacity());
        let each = [self.undo.bytes(), self.group.bytes(), typed];
        each.into_iter().all(|bytes| bytes <= SCRATCH_BYTES_MAX)
    }
}

/// What a thread knows of its transactions.
struct PerThread {
    /// The addresses of the heaps whose transactions run, innermost last.
    running: Vec<usize>,
    /// The buffers that none of them uses.
    scratch: Option<Box<Scratch>>,
}

std::thread_local! {
    static PER_THREAD: RefCell<PerThread> = const {
        RefCell::new(PerThread {
            running: Vec::new(),
            scratch: None,
        })
    };
}

/// Marks this thread as running a transaction while it is alive.
struct Running {
    heap: usize,
    scratch: Option<Box<Scratch>>,
}

impl Running {
    /// # Errors
    /// [`Error::Usage`] within a transaction on the same heap, even if transactions on other heaps
    /// are in between: it would wait for its own latches.
    fn begin(heap: &Heap) -> Result<Running> {
        let id = std::ptr::from_ref(heap).addr();
        PER_THREAD.with_borrow_mut(|thread| {
            if thread.running.contains(&id) {
                let why = "a transaction was begun inside a transaction of the same database and \
                           thread; use the one that is running";
                return Err(Error::Usage(why.into()));
            }
            thread.running.push(id);
            Ok(Running {
                heap: id,
                scratch: thread.scratch.take(),
            })
        })
    }

    fn scratch(&mut self) -> &mut Scratch {
        self.scratch.get_or_insert_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let scratch = self.scratch.take().filter(|scratch| scratch.is_small());
        PER_THREAD.with_borrow_mut(|thread| {
            // Closures nest, and so do their transactions.
            let ended = thread.running.pop();
            debug_assert_eq!(ended, Some(self.heap), "the innermost ends first");
            thread.scratch = scratch;
        });
    }
}

const REFUSED: &str = "a write of this transaction was refused, so none of it was made";
const ENGINE_PANICKED: &str = "the engine panicked in a transaction";

/// Stops the log if a panic drops it before [`Fuse::done`], because the guarded change is half done.
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

/// How an attempt ended. Unless it is [`Outcome::Committed`], its changes are undone.
enum Outcome<R, E> {
    Committed(R, Ticket),
    Failed(E),
    /// The attempt touched these partitions without their latches.
    Missed(PartitionSet),
    /// A command used a page-addressed table.
    NoCommand,
    Panicked(Box<dyn Any + Send>),
}

impl Executor {
    /// Returns an executor over a heap and the sink of its records.
    #[must_use]
    pub fn new(heap: Arc<Heap>, sink: Sink, options: ExecutorOptions) -> Self {
        Executor {
            heap,
            sink,
            options,
        }
    }

    /// Runs `f` as one serial transaction over the declared partitions, at `now_ms`. If `f`
    /// touches other partitions, its changes are undone and it runs again with these, too.
    ///
    /// # Errors
    /// The error of `f`, after its changes are undone. Its writes may fail with
    /// [`Error::LogFull`] and [`Error::Stopped`]. [`Error::Usage`] inside another transaction of
    /// the same database and thread.
    ///
    /// # Panics
    /// If `f` panics; see the crate's page.
    pub fn run<R, E: From<Error>>(
        &self,
        declared: &PartitionSet,
        now_ms: u64,
        f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<(R, Ticket), E> {
        let says = Says::Effects;
        self.run_as(declared, &Manner { now_ms, says }, f)
    }

    /// As [`run`](Self::run), in a manner that also names what the log says. A command that touches
    /// a partition which it did not declare, or a page-addressed table, runs again and is logged by
    /// its effects, unless it is strict.
    ///
    /// # Errors
    /// As [`run`](Self::run). [`Error::Usage`] of a strict command that cannot be one, and of a
    /// replay that needs partitions which its frame does not name.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_as<R, E: From<Error>>(
        &self,
        declared: &PartitionSet,
        manner: &Manner<'_>,
        mut f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<(R, Ticket), E> {
        let mut running = Running::begin(&self.heap)?;
        let scratch = running.scratch();
        let mut parts = *declared;
        let mut manner = *manner;
        let mut runs = 0;
        loop {
            let logged = if armed(Flaw::HomeNotLogged) {
                declared
            } else {
                &parts
            };
            runs += 1;
            match self.attempt(scratch, (&parts, logged), &manner, &mut f) {
                Outcome::Committed(value, ticket) => return Ok((value, ticket)),
                Outcome::Missed(missing) => {
                    let is_new = missing.iter().all(|id| !parts.contains(id));
                    assert!(is_new, "what it missed was not latched");
                    manner.says = manner.says.widened(&missing)?;
                    manner.now_ms += u64::from(armed(Flaw::RerunAtOtherTime));
                    if runs == RUNS_MAX {
                        parts = PartitionSet::all(self.heap.geometry().partitions);
                    } else {
                        parts.union(&missing);
                    }
                }
                Outcome::Failed(error) => {
                    if self.heap.kept_over_bound() {
                        self.heap.make_room();
                    }
                    return Err(error);
                }
                Outcome::NoCommand => manner.says = manner.says.without_command()?,
                Outcome::Panicked(panic) => resume_unwind(panic),
            }
        }
    }

    fn attempt<R, E: From<Error>>(
        &self,
        scratch: &mut Scratch,
        (parts, logged): (&PartitionSet, &PartitionSet),
        manner: &Manner<'_>,
        f: &mut impl FnMut(&mut Tx<'_>) -> Result<R, E>,
    ) -> Outcome<R, E> {
        let Scratch {
            undo,
            group,
            typed,
            frame,
        } = scratch;
        undo.clear();
        typed.begin(&manner.says, self.options.value_form);
        // What is not logged need not be noted.
        typed.wants_effects &= !self.sink.is_unlogged();
        let marks = Marks::default();
        let now_ms = manner.now_ms;
        let mut tx = self.begin((self.latch(parts, now_ms), undo, typed), &marks, now_ms);
        let (stream, memory) = (tx.stream, tx.memory);
        // A panic must not release the latches while pages hold half a transaction.
        let result = catch_unwind(AssertUnwindSafe(|| {
            let value = f(&mut tx)?;
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
        // The attempt has missed a latch: its result does not count, even if it is a panic.
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
        match result {
            // The log may have refused a verb halfway, even if the closure dropped that error.
            Ok(Ok(_)) if marks.met_full_log() => {
                self.undo(guards, undo);
                Outcome::Failed(Error::LogFull(REFUSED.into()).into())
            }
            Ok(Ok(value)) => {
                let ticket = self.commit(
                    guards,
                    (logged, stream),
                    (undo, group),
                    (typed, frame, manner),
                );
                Outcome::Committed(value, ticket)
            }
            Ok(Err(error)) => {
                self.undo(guards, undo);
                Outcome::Failed(error)
            }
            Err(panic) => {
                if by_engine {
                    self.sink.fail(ENGINE_PANICKED);
                }
                if !armed(Flaw::PanicNotUndone) {
                    self.undo(guards, undo);
                }
                if by_engine && self.sink.is_replay() {
                    // No procedure is to blame, and no log is there to be stopped.
                    return Outcome::Failed(Error::Stopped(ENGINE_PANICKED.into()).into());
                }
                Outcome::Panicked(panic)
            }
        }
    }

    /// Takes latches in ascending order.
    fn latch(&self, parts: &PartitionSet, now_ms: u64) -> Guards<'_> {
        let mut guards = Guards::new();
        for id in parts.iter() {
            debug_assert!(
                guards.last().is_none_or(|(last, _)| *last < id),
                "no deadlock"
            );
            let mut part = self.heap.lock(id);
            part.set_now(now_ms);
            guards.push((id, part));
        }
        debug_assert_eq!(
            guards.len(),
            parts.iter().count(),
            "a latch for each partition of the set"
        );
        guards
    }

    /// Begins a transaction, which has done nothing yet.
    fn begin<'a>(
        &'a self,
        (guards, undo, typed): (Guards<'a>, &'a mut Undo, &'a mut Typed),
        marks: &'a Marks,
        now_ms: u64,
    ) -> Tx<'a> {
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

    /// Encodes and appends what the log says of a transaction, then releases the latches.
    fn commit(
        &self,
        mut guards: Guards<'_>,
        (logged, stream): (&PartitionSet, StreamId),
        (undo, group): (&Undo, &mut GroupBuilder),
        (typed, frame, manner): (&mut Typed, &mut Vec<u8>, &Manner<'_>),
    ) -> Ticket {
        // Declared after the guards, so that a panic stops the log before it releases the latches.
        let fuse = Fuse::new(&self.sink);
        group.clear();
        if !undo.is_empty() {
            for (_, part) in guards.iter_mut().filter(|(id, _)| logged.contains(*id)) {
                part.encode(undo, group);
            }
        }
        let wrote_rows = !typed.homes.is_empty();
        if let Says::Replayed { places, .. } = manner.says {
            debug_assert!(group.is_empty(), "a replay changes key-addressed tables");
            ordered::restore_places(&mut guards, places);
        }
        let Some(wal) = self.sink.wal_of_commits() else {
            if wrote_rows && !self.sink.is_replay() {
                ordered::take_places(&mut guards, typed, &manner.says);
            }
            fuse.done();
            return Ticket::default();
        };
        if group.is_empty() && !wrote_rows {
            let ticket = self.ticket_of_reads(&guards);
            fuse.done();
            return ticket;
        }
        let mut partitions = group.partitions();
        let is_latched = |id| guards.iter().any(|(latched, _)| *latched == id);
        debug_assert!(
            partitions.iter().all(is_latched),
            "I1: the latches of all that is appended are held"
        );
        debug_assert!(
            partitions.iter().all(|id| undo.partitions().contains(id)),
            "what is logged can be taken back"
        );
        let tag = group.tag_max();
        debug_assert!(
            tag <= self.heap.ckpt_epoch(),
            "I1: a page's tag is of a sweep that has begun"
        );
        #[cfg(feature = "flaws")]
        if armed(Flaw::LateAppend) && !wrote_rows {
            fuse.done();
            return seeded::late_append(guards, group, |payload: &[u8]| {
                wal.append(stream, FrameKind::Group, payload, &partitions, tag)
                    .epoch
            });
        }
        let rows = wrote_rows.then(|| {
            let places = ordered::take_places(&mut guards, typed, &manner.says);
            frame.clear();
            let kind = ordered::encode(&places, typed, (&manner.says, manner.now_ms), frame);
            if let Some(max) = self.options.effects_bytes_max
                && kind == FrameKind::Effects
            {
                frame.truncate(max);
            }
            partitions.union(&ordered::partitions(&places));
            (kind, frame.as_slice())
        });
        let epoch = append(wal, (stream, &partitions, tag), group, rows);
        debug_assert!(
            self.ticket_of_reads(&guards).epoch <= epoch,
            "I2: read under the latches, a commit's epoch is no smaller than what it rests on"
        );
        for (_, part) in &mut guards {
            part.set_last_write_epoch(epoch);
        }
        fuse.done();
        Ticket { epoch }
    }

    /// Returns the ticket of a transaction that only read: the newest epoch in which its partitions
    /// were written.
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

/// Appends a transaction's group and its ordered frame, in one epoch. Returns the epoch.
fn append(
    wal: &Wal,
    (stream, partitions, tag): (StreamId, &PartitionSet, CkptEpoch),
    group: &mut GroupBuilder,
    rows: Option<(FrameKind, &[u8])>,
) -> Epoch {
    let is_large = group.is_large();
    let parts: SmallVec<[&[u8]; 1]> = match (group.is_empty(), is_large) {
        (true, _) => SmallVec::new(),
        (false, true) => group.parts().into(),
        (false, false) => SmallVec::from_slice(&[group.finish()]),
    };
    let group = (FrameKind::Group, parts.as_slice());
    let appended = match rows {
        None => wal.append_together(stream, [group], partitions, tag),
        Some((kind, payload)) if parts.is_empty() => {
            wal.append_together(stream, [(kind, &[payload][..])], partitions, tag)
        }
        Some((kind, payload)) => {
            wal.append_together(stream, [group, (kind, &[payload][..])], partitions, tag)
        }
    };
    appended.epoch
}
