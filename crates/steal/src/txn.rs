//! The state of a transaction.

#[cfg(feature = "flaws")]
pub(crate) mod seeded;

use std::ops::Deref;

use perdura_base::{Epoch, PageId, PartitionId, Pos, StreamId, TxnId};

/// The place of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The page.
    pub page: PageId,
    /// The slot within it.
    pub slot: u16,
}

/// A transaction's number, and the stream that its records go to.
#[derive(Debug)]
pub struct Routed {
    pub(crate) id: TxnId,
    pub(crate) stream: StreamId,
}

impl Routed {
    /// Returns its number.
    #[must_use]
    pub fn id(&self) -> TxnId {
        self.id
    }

    /// Returns the stream that its records go to.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.stream
    }
}

/// A transaction that has pre-committed: visible to others, durable later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it is not acknowledged before its epoch is durable"]
pub struct Committed {
    /// The transaction.
    pub txn: TxnId,
    /// Its commit epoch. Once that is durable, so are the transaction and everything that it saw
    /// under its locks. 0 if it locked nothing.
    pub epoch: Epoch,
    /// The stream its records are in.
    pub stream: StreamId,
    /// The position of the block with its commit record; 0 if it has no commit record.
    pub pos: Pos,
}

impl Committed {
    /// Returns a transaction that has nothing in the log and locked nothing.
    pub(crate) fn empty(txn: TxnId, stream: StreamId) -> Committed {
        Committed {
            txn,
            epoch: Epoch(0),
            stream,
            pos: Pos(0),
        }
    }
}

/// A slot as the engine addresses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slotted {
    pub partition: PartitionId,
    pub local: u32,
    pub slot: u16,
}

/// A slot the transaction has locked, and whether it is taken now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub at: Slotted,
    pub taken: bool,
}

/// A change to undo: its slot as it was before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Undo {
    /// Index into the held slots.
    pub held: usize,
    pub taken: bool,
    /// The offset of its bytes in the arena. They reach to the arena's end when it is undone.
    pub from: usize,
}

/// The way in which a rollback that was begun continues. It is chosen once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rollback {
    /// Each undo is logged.
    Compensated,
    /// The seeded bug: step by step without records.
    Silent,
    /// All is undone.
    Done,
}

/// Buffers that go from transaction to transaction.
#[derive(Default)]
pub(crate) struct Buffers {
    pub held: Vec<Held>,
    pub undo: Vec<Undo>,
    /// Bytes of slots as they were.
    pub arena: Vec<u8>,
    /// The record being made.
    pub record: Vec<u8>,
    pub scratch: Vec<u8>,
    /// The slot as it is to be.
    pub after: Vec<u8>,
}

impl Buffers {
    pub fn clear(&mut self) {
        self.held.clear();
        self.undo.clear();
        self.arena.clear();
    }
}

/// An open transaction. It ends with [`Steal::commit`](crate::Steal::commit) or
/// [`Steal::abort`](crate::Steal::abort). A dropped transaction keeps its locks until the database
/// is closed, and a restart rolls it back.
pub struct Txn {
    pub(crate) routed: Routed,
    /// The position of its first record. `None`: it has no records.
    pub(crate) first: Option<Pos>,
    pub(crate) rollback: Option<Rollback>,
    #[cfg(feature = "flaws")]
    pub(crate) pending: Option<seeded::Pending>,
    pub(crate) buffers: Buffers,
    pub(crate) updates: u64,
    pub(crate) record_bytes: u64,
    pub(crate) compensations: u64,
    pub(crate) compensation_bytes: u64,
}

/// The part of a transaction that a record touches.
pub(crate) struct Recorder<'a> {
    pub id: TxnId,
    pub stream: StreamId,
    pub first: &'a mut Option<Pos>,
    #[cfg(feature = "flaws")]
    pub pending: &'a mut Option<seeded::Pending>,
    pub record: &'a mut Vec<u8>,
    pub scratch: &'a mut Vec<u8>,
}

/// The part that knows the transaction's slots as they were.
pub(crate) struct Images<'a> {
    pub held: &'a mut Vec<Held>,
    pub undo: &'a mut Vec<Undo>,
    pub arena: &'a mut Vec<u8>,
    pub after: &'a mut Vec<u8>,
}

impl Txn {
    /// Splits the transaction into both parts, to be used at once.
    pub(crate) fn split(&mut self) -> (Recorder<'_>, Images<'_>) {
        let buffers = &mut self.buffers;
        let recorder = Recorder {
            id: self.routed.id,
            stream: self.routed.stream,
            first: &mut self.first,
            #[cfg(feature = "flaws")]
            pending: &mut self.pending,
            record: &mut buffers.record,
            scratch: &mut buffers.scratch,
        };
        let images = Images {
            held: &mut buffers.held,
            undo: &mut buffers.undo,
            arena: &mut buffers.arena,
            after: &mut buffers.after,
        };
        (recorder, images)
    }

    /// Returns whether a rollback was begun.
    #[must_use]
    pub fn is_aborting(&self) -> bool {
        self.rollback.is_some()
    }
}

impl Deref for Txn {
    type Target = Routed;

    fn deref(&self) -> &Routed {
        &self.routed
    }
}
