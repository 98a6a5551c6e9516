//! The latches of an attempt, and the partitions that a restart has left absent.
//!
//! An attempt that meets an absent partition releases all latches and asks for all absent partitions at once. It runs
//! again when they are loaded.

use perdura_base::{Error, PartitionId, PartitionSet, Result};

use super::{Executor, Outcome};
use crate::manner::Manner;
use crate::tx::Guards;

/// A loader of the partitions that a restart has left absent.
pub trait Loader: Send + Sync {
    /// Loads these partitions, or waits until other threads have loaded them. The caller holds no latch.
    ///
    /// # Errors
    /// Errors of the disks, and damage in one of the partitions.
    fn load(&self, parts: &PartitionSet) -> Result<()>;

    /// Notes that these partitions should be loaded next. Does not wait.
    ///
    /// # Errors
    /// Damage in one of the partitions.
    fn ask(&self, parts: &PartitionSet) -> Result<()>;
}

/// The reason why an attempt has no latches.
pub(super) enum Refused {
    /// The caller's patience with the latch of this partition has ended.
    Held(PartitionId),
    /// A restart has not loaded these partitions yet.
    Absent(PartitionSet),
}

impl<R, E> From<Refused> for Outcome<R, E> {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Held(id) => Outcome::Held(id),
            Refused::Absent(parts) => Outcome::Absent(parts),
        }
    }
}

impl Executor {
    /// Takes latches in ascending order. Fails if the caller's patience with a latch ends, or if partitions are absent.
    /// No latch is held then.
    pub(super) fn latch(
        &self,
        parts: &PartitionSet,
        manner: &Manner<'_>,
    ) -> Result<Guards<'_>, Refused> {
        let mut guards = Guards::new();
        for id in parts.iter() {
            debug_assert!(
                guards.last().is_none_or(|(last, _)| *last < id),
                "no deadlock"
            );
            // The latch of an absent partition may be held for long, so this test comes first.
            if self.heap.is_absent(id) {
                return Err(Refused::Absent(self.absent_of(parts)));
            }
            let latched = manner.patience.latch(&self.heap, id);
            let mut part = latched.ok_or(Refused::Held(id))?;
            part.set_now(manner.now_ms);
            guards.push((id, part));
        }
        debug_assert_eq!(
            guards.len(),
            parts.iter().count(),
            "a latch for each partition of the set"
        );
        Ok(guards)
    }

    #[cold]
    fn absent_of(&self, parts: &PartitionSet) -> PartitionSet {
        let is_absent = |id: &PartitionId| self.heap.is_absent(*id);
        parts.iter().filter(is_absent).collect()
    }

    /// Waits until absent partitions are loaded. A caller that does not wait only asks for them. The caller holds no
    /// latch.
    ///
    /// # Errors
    /// Those of the [`Loader`]. [`Error::Undeclared`] if the caller does not wait.
    #[cold]
    pub(super) fn await_loading(&self, absent: &PartitionSet, manner: &Manner<'_>) -> Result<()> {
        let loader = self.loader.as_ref();
        let loader = loader.expect("an absent partition has a loader");
        debug_assert!(
            absent
                .iter()
                .all(|id| id.0 < self.heap.geometry().partitions),
            "a partition of this heap is absent"
        );
        let Some(leave) = manner.patience.leaves_absent() else {
            return loader.load(absent);
        };
        loader.ask(absent)?;
        leave();
        let first = absent.iter().next();
        Err(Error::Undeclared(first.unwrap_or_default()))
    }
}
