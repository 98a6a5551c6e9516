//! Runs transactions: latches, undo, group, append, release.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, PartitionSet, Result, StreamId};
use perdura_store::{GroupBuilder, Heap, Undo};
use perdura_wal::{FrameKind, Wal};
use smallvec::SmallVec;

use crate::tx::{Abort, Guards, Tx};

/// When an answer may be given: once the durable epoch has reached `epoch`. Epoch 0 is at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "an answer given before its ticket's epoch is durable can be a lie after a crash"]
pub struct Ticket {
    /// The commit epoch to wait for.
    pub epoch: Epoch,
}

/// Limits a transaction is held to.
#[derive(Debug, Clone)]
pub struct ExecutorOptions {
    /// The longest value, bytes.
    pub value_bytes_max: usize,
}

/// The transaction component over one heap and one log.
pub struct Executor {
    heap: Arc<Heap>,
    wal: Arc<Wal>,
    options: ExecutorOptions,
}

/// A thread keeps buffers up to this size between its transactions, bytes.
const SCRATCH_BYTES_MAX: u64 = 1 << 20;

/// Buffers a thread keeps between its transactions.
#[derive(Default)]
struct Scratch {
    undo: Undo,
    group: GroupBuilder,
}

std::thread_local! {
    static SCRATCH: RefCell<Option<Box<Scratch>>> = const { RefCell::new(None) };
}

impl Executor {
    /// An executor.
    #[must_use]
    pub fn new(heap: Arc<Heap>, wal: Arc<Wal>, options: ExecutorOptions) -> Self {
        Executor { heap, wal, options }
    }

    /// Runs `f` as one serial transaction over the declared partitions, at `now_ms`. If it
    /// touches others it is undone, the set is widened and it runs again.
    ///
    /// # Errors
    /// What `f` fails with; [`Error::LogFull`] and [`Error::Stopped`] at its first write.
    pub fn run<R>(
        &self,
        declared: &PartitionSet,
        now_ms: u64,
        mut f: impl FnMut(&mut Tx<'_>) -> Result<R, Abort>,
    ) -> Result<(R, Ticket)> {
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let mut parts = *declared;
        let result = loop {
            let logged = if armed(Flaw::HomeNotLogged) {
                declared
            } else {
                &parts
            };
            match self.attempt(&mut scratch, (&parts, logged), now_ms, &mut f) {
                Ok(done) => break Ok(done),
                Err(Abort::Undeclared(missing)) => parts.insert(missing),
                Err(Abort::Error(error)) => break Err(error),
                Err(Abort::User) => break Err(Error::Usage("aborted".into())),
            }
        };
        if scratch.undo.bytes() > SCRATCH_BYTES_MAX || scratch.group.bytes() > SCRATCH_BYTES_MAX {
            *scratch = Scratch::default();
        }
        SCRATCH.set(Some(scratch));
        result
    }

    fn attempt<R>(
        &self,
        scratch: &mut Scratch,
        (parts, logged): (&PartitionSet, &PartitionSet),
        now_ms: u64,
        f: &mut impl FnMut(&mut Tx<'_>) -> Result<R, Abort>,
    ) -> Result<(R, Ticket), Abort> {
        let Scratch { undo, group } = scratch;
        undo.clear();
        let mut guards = Guards::new();
        for id in parts.iter() {
            guards.push((id, self.heap.lock(id)));
        }
        let memory = self.heap.memory();
        let out_of_memory = (!memory.has_room(0)).then(|| (memory.used(), memory.limit()));
        let stream = self.wal.idlest();
        let mut tx = Tx {
            wal: &self.wal,
            stream,
            geometry: self.heap.geometry(),
            guards,
            undo,
            appending: 0,
            now_ms,
            changed: SmallVec::new(),
            value_bytes_max: self.options.value_bytes_max,
            out_of_memory,
        };
        // A panic must not let the latches go while pages hold half a transaction.
        let result = catch_unwind(AssertUnwindSafe(|| {
            let value = f(&mut tx)?;
            tx.check_collections()?;
            Ok(value)
        }));
        let Tx {
            mut guards, undo, ..
        } = tx;
        let result = result.unwrap_or_else(|panic| {
            self.wal.fail("a transaction panicked");
            for (_, part) in &mut guards {
                part.rollback(undo);
            }
            resume_unwind(panic)
        });
        match result {
            Ok(value) => Ok((value, self.commit(guards, logged, stream, undo, group))),
            Err(abort) => {
                for (_, part) in &mut guards {
                    part.rollback(undo);
                }
                Err(abort)
            }
        }
    }

    /// Encodes and appends the group, then releases the latches.
    fn commit(
        &self,
        mut guards: Guards<'_>,
        logged: &PartitionSet,
        stream: StreamId,
        undo: &Undo,
        group: &mut GroupBuilder,
    ) -> Ticket {
        group.clear();
        if !undo.is_empty() {
            for (_, part) in guards.iter_mut().filter(|(id, _)| logged.contains(*id)) {
                part.encode(undo, group);
            }
        }
        if group.is_empty() {
            let newest = guards.iter().map(|(_, part)| part.last_write_epoch()).max();
            let epoch = newest
                .filter(|_| !armed(Flaw::EagerReadReply))
                .unwrap_or_default();
            return Ticket { epoch };
        }
        let partitions = group.partitions();
        let tag = group.tag_max();
        let append = |payload: &[u8]| {
            self.wal
                .append(stream, FrameKind::Group, payload, &partitions, tag)
                .epoch
        };
        if armed(Flaw::LateAppend) {
            return late_append(guards, group, append);
        }
        let epoch = append(group.finish());
        for (_, part) in &mut guards {
            part.set_last_write_epoch(epoch);
        }
        Ticket { epoch }
    }
}

/// The seeded bug of Algorithm 1 as printed (step 6 after step 5): the latches are released and
/// only then, perhaps much later, is the group appended.
#[cold]
fn late_append(
    mut guards: Guards<'_>,
    group: &mut GroupBuilder,
    append: impl Fn(&[u8]) -> Epoch,
) -> Ticket {
    std::thread_local! {
        static LATE: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    }
    let earlier = LATE.replace(Some(group.finish().to_vec()));
    let epoch = match earlier {
        Some(payload) => append(&payload),
        None => Epoch(0),
    };
    for (_, part) in &mut guards {
        part.set_last_write_epoch(epoch);
    }
    Ticket { epoch }
}
