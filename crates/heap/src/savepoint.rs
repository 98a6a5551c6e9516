//! Savepoints: a transaction can undo its changes since a savepoint and continue.
//!
//! After a savepoint, the first write to a range saves the range's *present* bytes, even if an earlier save holds older
//! bytes of the range. A rollback of the whole transaction, and the difference at commit, go through the saves from the
//! latest to the earliest. So the oldest bytes win.

use perdura_base::PartitionId;
use smallvec::SmallVec;

use crate::partition::Partition;
use crate::undo::{Mark, Undo};

/// A point that a transaction can roll back to repeatedly.
#[derive(Debug, Clone)]
pub struct Savepoint {
    parts: SmallVec<[(PartitionId, Mark); 4]>,
}

impl Undo {
    /// Sets a savepoint at the present state of the transaction. Earlier savepoints stay valid. A rollback to an
    /// earlier savepoint ends this savepoint.
    pub fn savepoint(&mut self) -> Savepoint {
        let parts = self.active_parts_mut();
        Savepoint {
            parts: parts.map(|part| (part.partition(), part.mark())).collect(),
        }
    }
}

impl Partition {
    /// Undoes this partition's changes since a savepoint, the latest first. The caller calls this for each partition
    /// that was changed since the savepoint.
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
