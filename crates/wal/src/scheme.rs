//! Logging schemes: what a record in the log means, and what follows from it.
//!
//! A scheme is a guard against applying a change twice. The guard dictates the order that replay
//! must keep, and from the order follow the legal parallelism and the restart methods.
//!
//! # Source
//! *Differential Logging* (000), section 5.1: DL1P, DL2P and PL2P are the three that the paper
//! measures; `Differential` is the first of them in executor mode, where only whole committed
//! transactions are in the log.

/// A logging scheme. It is fixed when a database is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Executor mode: one group of sparse XOR records for each committed transaction.
    Differential,
    /// Steal mode, XOR records, one pass; rollbacks outside checkpoint windows are not logged.
    Dl1p,
    /// Steal mode, XOR records, two passes; every rollback is logged as compensation.
    Dl2p,
    /// Steal mode, before and after images in a global order, two passes, every rollback logged.
    Pl2p,
}

/// Which component changes pages, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A transaction holds its partitions' latches until it commits; the log has whole committed
    /// transactions only.
    Executor,
    /// Transactions interleave and change pages before they commit.
    Steal,
}

/// What keeps a record from being applied twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The image's epoch against the record's tag.
    CheckpointEpoch,
    /// None is needed: to assign an image twice is to assign it once.
    Assignment,
}

/// The order that replay must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// None: any stream, any direction, any number of players, before or after the image's pages.
    Free,
    /// The changes of one slot in the order in which they were made.
    PerSlot,
}

impl Scheme {
    /// Every scheme, by code.
    pub const ALL: [Scheme; 4] = [
        Scheme::Differential,
        Scheme::Dl1p,
        Scheme::Dl2p,
        Scheme::Pl2p,
    ];

    /// The byte in the anchor.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Scheme::Differential => 0,
            Scheme::Dl1p => 1,
            Scheme::Dl2p => 2,
            Scheme::Pl2p => 3,
        }
    }

    /// The scheme of a byte from an anchor.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.code() == code)
    }

    /// Its name in reports and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Differential => "differential",
            Scheme::Dl1p => "dl1p",
            Scheme::Dl2p => "dl2p",
            Scheme::Pl2p => "pl2p",
        }
    }

    /// The scheme of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    /// Whether transactions interleave.
    #[must_use]
    pub fn mode(self) -> Mode {
        match self {
            Scheme::Differential => Mode::Executor,
            Scheme::Dl1p | Scheme::Dl2p | Scheme::Pl2p => Mode::Steal,
        }
    }

    /// Whether the pages hold the rows of tables, which a restart indexes. Without tables a row is
    /// addressed by page and slot.
    #[must_use]
    pub fn has_tables(self) -> bool {
        match self {
            Scheme::Differential => true,
            Scheme::Dl1p | Scheme::Dl2p | Scheme::Pl2p => false,
        }
    }

    /// Whether each record has the number of its page's update, so that a restart notices a record
    /// that is lost or doubled.
    #[must_use]
    pub fn counts_updates(self) -> bool {
        match self {
            Scheme::Differential => true,
            Scheme::Dl1p | Scheme::Dl2p | Scheme::Pl2p => false,
        }
    }

    /// What keeps a record of this scheme from being applied twice.
    #[must_use]
    pub fn guard(self) -> Guard {
        match self {
            Scheme::Differential | Scheme::Dl1p | Scheme::Dl2p => Guard::CheckpointEpoch,
            Scheme::Pl2p => Guard::Assignment,
        }
    }

    /// The order that replay must keep: it follows from the guard.
    #[must_use]
    pub fn order(self) -> Order {
        match self.guard() {
            Guard::CheckpointEpoch => Order::Free,
            Guard::Assignment => Order::PerSlot,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_inverse_and_the_order_follows_from_the_guard() {
        for scheme in Scheme::ALL {
            assert_eq!(Scheme::from_code(scheme.code()), Some(scheme));
            assert_eq!(Scheme::from_name(scheme.name()), Some(scheme));
            let free = scheme.order() == Order::Free;
            assert_eq!(free, scheme.guard() == Guard::CheckpointEpoch);
        }
        assert_eq!(Scheme::from_code(4), None);
        assert_eq!(Scheme::from_name("DL1P"), None);
    }
}
