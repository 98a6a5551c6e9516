//! Savepoints: a transaction undoes its changes since one, and continues.
//!
//! A save after a savepoint holds the bytes as they are *then*, even if older bytes of the same range are saved below
//! it. The rollback of the whole transaction, and the difference at commit, go through the saves latest first, so that
//! the oldest bytes win.

use perdura_base::PartitionId;
use smallvec::SmallVec;

use crate::partition::Partition;
use crate::undo::{Mark, Undo};

/// A point of a transaction to which it can be rolled back any number of times.
#[derive(Debug, Clone)]
pub struct Savepoint {
    parts: SmallVec<[(PartitionId, Mark); 4]>,
}

impl Undo {
    /// Sets a savepoint at the present state of the transaction. Savepoints that were set before it stay valid; a
    /// rollback to one of them ends it.
    pub fn savepoint(&mut self) -> Savepoint {
        let parts = self.active_parts_mut();
        Savepoint {
            parts: parts.map(|part| (part.partition(), part.mark())).collect(),
        }
    }
}

impl Partition {
    /// Undoes this partition's changes since a savepoint, latest first. The caller calls it for each partition that was
    /// changed since.
    pub fn rollback_to(&mut self, undo: &mut Undo, savepoint: &Savepoint) {
        let Some(part) = undo.part(self.id()) else {
            return;
        };
        let parts = savepoint.parts.iter();
        let mark = parts.copied().find(|(id, _)| *id == self.id());
        let mark = mark.map(|(_, mark)| mark).unwrap_or_default();
        self.take_back_to(part, &mark);
        undo.part_mut(self.id()).truncate(&mark);
    }
}
