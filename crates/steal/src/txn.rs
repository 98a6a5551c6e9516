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
    /// The slot within the page.
    pub slot: u16,
}

/// A transaction's number and stream.
#[derive(Debug)]
pub struct Routed {
    pub(crate) id: TxnId,
    pub(crate) stream: StreamId,
}

impl Routed {
    /// Returns the transaction's number.
    #[must_use]
    pub fn id(&self) -> TxnId {
        self.id
    }

    /// Returns the stream that the transaction's records are appended to.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.stream
    }
}

/// A pre-committed transaction: other transactions see its changes, but the changes may not be durable yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it is not acknowledged before its epoch is durable"]
pub struct Committed {
    /// The transaction's number.
    pub txn: TxnId,
    /// The commit epoch. Once this epoch is durable, the transaction and everything that it saw under its locks are
    /// durable. 0 if the transaction locked nothing.
    pub epoch: Epoch,
    /// The stream that holds the transaction's records.
    pub stream: StreamId,
    /// The position of the block with the commit record. 0 if the transaction has no commit record.
    pub pos: Pos,
}

impl Committed {
    /// Returns the commit of a transaction that logged nothing and locked nothing.
    pub(crate) fn empty(txn: TxnId, stream: StreamId) -> Committed {
        Committed {
            txn,
            epoch: Epoch(0),
            stream,
            pos: Pos(0),
        }
    }
}

/// A slot's address in the engine: its partition, the page's index in the partition, and the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slotted {
    pub partition: PartitionId,
    pub local: u32,
    pub slot: u16,
}

/// A slot that the transaction has locked. `taken` is true if the slot holds a row now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub at: Slotted,
    pub taken: bool,
}

/// A change to undo, with the slot's bytes from before the change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Undo {
    /// The slot's index in the list of held slots.
    pub held: usize,
    pub taken: bool,
    /// The offset of the old bytes in the arena. Changes are undone newest first. So when a change is undone, its old
    /// bytes are the last in the arena.
    pub from: usize,
}

/// The state of a rollback that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rollback {
    /// The rollback logs each undo.
    Compensated,
    /// A seeded bug: the rollback undoes changes step by step without logging any undo.
    Silent,
    /// The rollback has undone all changes.
    Done,
}

/// Buffers of a transaction. A later transaction reuses them, to save allocations.
#[derive(Default)]
pub(crate) struct Buffers {
    pub held: Vec<Held>,
    pub undo: Vec<Undo>,
    /// Old bytes of changed slots.
    pub arena: Vec<u8>,
    /// The record that is being encoded.
    pub record: Vec<u8>,
    pub scratch: Vec<u8>,
    /// The new content of the slot that is being changed.
    pub after: Vec<u8>,
}

impl Buffers {
    pub fn clear(&mut self) {
        self.held.clear();
        self.undo.clear();
        self.arena.clear();
    }
}

/// An open transaction. It ends with [`Steal::commit`](crate::Steal::commit) or [`Steal::abort`](crate::Steal::abort).
/// A dropped transaction keeps its locks until the database is closed. A restart rolls the transaction back.
pub struct Txn {
    pub(crate) routed: Routed,
    /// The position of the transaction's first record. `None`: it has no record.
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

/// The part of a transaction that is needed to append records.
pub(crate) struct Recorder<'a> {
    pub id: TxnId,
    pub stream: StreamId,
    pub first: &'a mut Option<Pos>,
    #[cfg(feature = "flaws")]
    pub pending: &'a mut Option<seeded::Pending>,
    pub record: &'a mut Vec<u8>,
    pub scratch: &'a mut Vec<u8>,
}

/// The part of a transaction with the locked slots and the old bytes.
pub(crate) struct Images<'a> {
    pub held: &'a mut Vec<Held>,
    pub undo: &'a mut Vec<Undo>,
    pub arena: &'a mut Vec<u8>,
    pub after: &'a mut Vec<u8>,
}

impl Txn {
    /// Splits the transaction into [`Recorder`] and [`Images`], so that a caller can borrow the two parts together.
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

    /// Returns whether the transaction's rollback has begun.
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
