//! The ladder of durability: the rungs that a caller can wait for before it relies on a commit.
//!
//! | | waits until the commit is | what may undo it |
//! |---|---|---|
//! | [`Durability::Mem`] | visible. While a write older than 10 ms has not reached the mirror's rung, the caller also waits for that rung | loss of this process within about 10 ms of the commit |
//! | [`Durability::Mirror`] | in the memories of the nodes that mirror the log; on the log's disks if there are no nodes | loss of these nodes and this machine, before the log is on the disks |
//! | [`Durability::Disk`] | on the log's disks, synced | loss of the disks |
//!
//! A database has a default ([`Options::durability`](crate::Options::durability)). [`Db::wait`](crate::Db::wait) and
//! all calls that wait by themselves use the default. [`Db::wait_at`](crate::Db::wait_at) waits for one ticket at a
//! chosen durability.

use perdura_base::Epoch;
use perdura_wal::{Reached, Rung};

/// The storage that a commit must have reached before a caller relies on it. Later variants are more durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Durability {
    /// Visible to others.
    Mem,
    /// In the memories of the nodes.
    Mirror,
    /// On the log's disks.
    #[default]
    Disk,
}

impl Durability {
    /// All variants, the least durable first.
    pub const ALL: [Durability; 3] = [Durability::Mem, Durability::Mirror, Durability::Disk];
    /// The names of all variants, in the order of [`ALL`](Durability::ALL).
    pub const NAMES: [&str; 3] = ["mem", "mirror", "disk"];

    /// Returns its name: `mem`, `mirror` or `disk`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Durability::Mem => Durability::NAMES[0],
            Durability::Mirror => Durability::NAMES[1],
            Durability::Disk => Durability::NAMES[2],
        }
    }

    /// Returns the durability with this name, in upper or lower case; `None` for other names.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Durability> {
        let is_called = |it: &Durability| name.eq_ignore_ascii_case(it.name().as_bytes());
        Durability::ALL.into_iter().find(is_called)
    }

    /// Returns the rung that a commit of this durability must reach. `mem` needs no rung. For `mem` the result is the
    /// mirror's rung, because `mem` callers wait if that rung lags by more than 10 ms.
    #[must_use]
    pub fn rung(self) -> Rung {
        match self {
            Durability::Mem | Durability::Mirror => Rung::Mirror,
            Durability::Disk => Rung::Disk,
        }
    }

    /// Returns whether a caller waits until its epoch is durable on the rung. Otherwise the caller waits only while the
    /// log lags too far.
    #[must_use]
    pub fn is_firm(self) -> bool {
        self != Durability::Mem
    }

    /// Returns whether an epoch has reached this durability.
    #[must_use]
    pub fn is_reached(self, epoch: Epoch, reached: Reached) -> bool {
        !self.is_firm() || epoch <= reached.at(self.rung())
    }

    /// Returns the highest durability that an epoch has reached.
    #[must_use]
    pub fn highest(epoch: Epoch, reached: Reached) -> Durability {
        let mut all = Durability::ALL.into_iter();
        let highest = all.rfind(|it| it.is_reached(epoch, reached));
        let highest = highest.unwrap_or(Durability::Mem);
        assert!(
            !highest.is_firm() || epoch <= reached.at(highest.rung()),
            "epoch {epoch} is not at {highest:?} yet"
        );
        highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(disk: u64, mirror: u64) -> Reached {
        Reached::new(|rung| match rung {
            Rung::Disk => Epoch(disk),
            Rung::Mirror => Epoch(mirror),
        })
    }

    #[test]
    fn each_has_a_name_by_which_it_is_found() {
        for (durability, name) in Durability::ALL.into_iter().zip(Durability::NAMES) {
            assert_eq!(durability.name(), name);
            assert_eq!(
                Durability::named(name.to_uppercase().as_bytes()),
                Some(durability)
            );
        }
        assert_eq!(Durability::named(b"disc"), None);
        assert!(Durability::ALL.is_sorted());
    }

    #[test]
    fn the_highest_is_what_the_rung_has_and_never_the_next() {
        let highest =
            |epoch, disk, mirror| Durability::highest(Epoch(epoch), reached(disk, mirror));
        assert_eq!(highest(5, 5, 9), Durability::Disk);
        assert_eq!(highest(6, 5, 6), Durability::Mirror);
        assert_eq!(highest(7, 5, 6), Durability::Mem);
        // If a node is stuck, the mirror can be behind the disk.
        assert_eq!(highest(5, 5, 4), Durability::Disk);
    }
}
