//! Rungs: the media for durable commits. Each rung has its own durable epoch.
//!
//! The durable epoch D is always D *of a rung*. A caller names the rung that it relies on. A reply waits for the rung
//! of its session. Checkpoints, truncation, beacons and the anchor's vouching rely on [`Rung::Disk`], because a restart
//! reads nothing but segments. A log without a mirror has only this rung. It returns D of the disk for [`Rung::Mirror`]
//! too.
//!
//! # Invariants
//! * D of a rung never decreases.
//! * The ends of an epoch are kept until every rung has passed it.
//! * The mirror may be ahead of the disk. The disk may be ahead of a mirror with a stuck node.

use crossbeam_utils::CachePadded;
use perdura_base::Epoch;

use crate::sync::AtomicU64;

/// A medium for durable epochs. A new rung needs a variant, an entry in `ALL`, and a caller that raises the rung's D.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// The segments on the log's disks, after a sync.
    Disk,
    /// The memory of other machines, if the log has a mirror ([`TailOptions`](crate::TailOptions)).
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

/// D of each rung. Each D has a separate cache line, because every reply reads a D.
pub(crate) type DurableEpochs = PerRung<CachePadded<AtomicU64>>;

impl DurableEpochs {
    pub fn all_at(start: Epoch) -> DurableEpochs {
        PerRung::new(|_| CachePadded::new(AtomicU64::new(start.0)))
    }
}

/// The durable epochs of all rungs, read one after another within a short time.
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
