//! Savepoints: a transaction can undo its changes since a savepoint and continue.
//!
//! A save that is made after a savepoint holds the bytes *at that moment*, even if an earlier save holds older bytes of
//! the same range. The rollback of the whole transaction and the difference at commit use the saves from the latest to
//! the earliest, so the oldest bytes win.

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
    /// Sets a savepoint at the present state of the transaction. Earlier savepoints stay valid. A rollback to an
    /// earlier savepoint ends this one.
    pub fn savepoint(&mut self) -> Savepoint {
        let parts = self.active_parts_mut();
        Savepoint {
            parts: parts.map(|part| (part.partition(), part.mark())).collect(),
        }
    }
}

impl Partition {
    /// Undoes this partition's changes since a savepoint, the latest first. The caller calls it for each partition that
    /// has changed since the savepoint.
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
