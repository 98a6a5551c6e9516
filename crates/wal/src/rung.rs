//! Rungs: the places where a commit may be durable, and the progress of each.
//!
//! The durable epoch D is always D *of a rung*. A caller names the rung that it relies on. Replies wait for their
//! session's. Checkpoints, truncation, beacons and the anchor's vouching rely on [`Rung::Disk`], because a restart
//! reads segments and nothing else. A log without a mirror has one rung: for [`Rung::Mirror`] it returns the disk's D.
//!
//! # Invariants
//! * D of a rung never decreases.
//! * The ends of an epoch are kept until the slowest rung has passed it.
//! * No rung is ahead of another by rule: a mirror may be ahead of the disk, and a node that is stuck keeps it behind.

use crossbeam_utils::CachePadded;
use perdura_base::Epoch;

use crate::sync::AtomicU64;

/// The place where an epoch is durable. A further rung needs a variant, a line in `ALL`, and a caller that raises it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// In the segments on the log's disks, synced.
    Disk,
    /// In the memories that hold the log, if the log has a mirror ([`TailOptions`](crate::TailOptions)).
    Mirror,
}

impl Rung {
    /// All rungs, in the order of their variants.
    pub const ALL: [Rung; Rung::COUNT] = [Rung::Disk, Rung::Mirror];
    /// The number of rungs.
    pub const COUNT: usize = 2;

    const fn number(self) -> usize {
        match self {
            Rung::Disk => 0,
            Rung::Mirror => 1,
        }
    }
}

/// A value for each rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PerRung<T>([T; Rung::COUNT]);

impl<T> PerRung<T> {
    pub fn new(make: impl Fn(Rung) -> T) -> PerRung<T> {
        PerRung(Rung::ALL.map(make))
    }
}

impl<T> std::ops::Index<Rung> for PerRung<T> {
    type Output = T;

    fn index(&self, rung: Rung) -> &T {
        &self.0[rung.number()]
    }
}

impl<T> std::ops::IndexMut<Rung> for PerRung<T> {
    fn index_mut(&mut self, rung: Rung) -> &mut T {
        &mut self.0[rung.number()]
    }
}

/// D of each rung, each on a separate cache line because every reply reads it.
pub(crate) type DurableEpochs = PerRung<CachePadded<AtomicU64>>;

impl DurableEpochs {
    pub fn all_at(start: Epoch) -> DurableEpochs {
        PerRung::new(|_| CachePadded::new(AtomicU64::new(start.0)))
    }
}

/// The durable epoch of every rung, as read at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached(PerRung<Epoch>);

impl Reached {
    /// Reads the durable epoch of each rung.
    #[must_use]
    pub fn new(durable: impl Fn(Rung) -> Epoch) -> Reached {
        Reached(PerRung::new(durable))
    }

    /// Returns the durable epoch of a rung.
    #[must_use]
    pub fn at(&self, rung: Rung) -> Epoch {
        self.0[rung]
    }
}

#[cfg(test)]
mod tests;
