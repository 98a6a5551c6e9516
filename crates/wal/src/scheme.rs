//! Logging schemes: what a record in the log means, and what follows from that.
//!
//! A scheme defines a guard against applying a change twice. The guard determines the order that replay must keep. The
//! order determines the permitted parallelism and the restart methods.
//!
//! Each database has one scheme, which defines the meaning of its groups or page records. The log may also have
//! *ordered* frames, which change rows of key-addressed tables. Ordered frames have schemes too. These schemes are
//! variants here, but never the scheme of a database.
//!
//! # Source
//! *Differential Logging* (000), section 5.1: the paper measures DL1P, DL2P and PL2P. `Differential` is DL1P in
//! executor mode, where the log has only whole committed transactions. `Command` and its baseline `Value` are from
//! *Rethinking Main Memory OLTP Recovery* (001). `Logical` and `Physiological` are from *Implementing Performance
//! Competitive Logical Recovery* (002).

/// A logging scheme. A database's scheme is fixed when the database is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Executor mode: one group of sparse XOR records for each committed transaction.
    Differential,
    /// Steal mode: the log has XOR records, and a restart makes one pass. Rollbacks outside checkpoint windows are not
    /// logged.
    Dl1p,
    /// Steal mode: the log has XOR records, and a restart makes two passes. Every rollback is logged as compensation.
    Dl2p,
    /// Steal mode: the log has before images and after images in a global order, and a restart makes two passes. Every
    /// rollback is logged.
    Pl2p,
    /// Executor mode: the rows that a committed transaction changed, identified by their keys.
    Value,
    /// Executor mode: the procedure that a committed transaction called, and its arguments.
    Command,
    /// Executor mode: nothing is logged. A crash loses everything that is not in the newest image. This scheme is for
    /// measurements.
    Unlogged,
    /// Keyed mode: operations on rows by key, and the tree's notes about its pages (Δ and BW records).
    Logical,
    /// Keyed mode: like `Logical`, but without Δ records. A restart finds pages only by the hints in the operations.
    Physiological,
}

/// The mode of running transactions and changing pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A transaction holds partition latches until the commit. The log has only whole committed transactions.
    Executor,
    /// Transactions interleave and change pages before they commit.
    Steal,
    /// Transactions interleave over rows by key. Pages of a tree change, and may be written to disk, before the
    /// transactions commit.
    Keyed,
}

/// The check that keeps a record from being applied twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The checkpoint epoch in the record's tag is compared with the image's epoch.
    CheckpointEpoch,
    /// No check is needed, because assigning an image twice is harmless.
    Assignment,
    /// The transaction's sequence number is compared with the partition's number in the image.
    PartitionSequence,
    /// No check is needed, because the scheme writes no records.
    NoRecords,
    /// The operation's number is compared with the number in the tree's page.
    PageNumber,
}

/// The order that replay must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// No order. Any number of threads may replay any stream in any direction, before or after the image's pages are
    /// loaded.
    Free,
    /// The changes of one slot in their original order.
    PerSlot,
    /// Commit order within each partition. The transactions are replayed after everything else.
    PerPartition,
    /// The order of the operations' numbers. The operations are replayed after everything else.
    ByNumber,
}

impl Scheme {
    /// All schemes, in the order of their codes.
    pub const ALL: [Scheme; 9] = [
        Scheme::Differential,
        Scheme::Dl1p,
        Scheme::Dl2p,
        Scheme::Pl2p,
        Scheme::Value,
        Scheme::Command,
        Scheme::Unlogged,
        Scheme::Logical,
        Scheme::Physiological,
    ];

    /// Returns whether a database can have this scheme. The other schemes are only for ordered frames.
    #[must_use]
    pub fn is_of_databases(self) -> bool {
        match self {
            Scheme::Differential
            | Scheme::Dl1p
            | Scheme::Dl2p
            | Scheme::Pl2p
            | Scheme::Unlogged
            | Scheme::Logical
            | Scheme::Physiological => true,
            Scheme::Value | Scheme::Command => false,
        }
    }

    /// Returns the schemes that a database can have.
    pub fn of_databases() -> impl Iterator<Item = Scheme> {
        Scheme::ALL.into_iter().filter(|s| s.is_of_databases())
    }

    /// Returns the byte that represents the scheme in the anchor.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Scheme::Differential => 0,
            Scheme::Dl1p => 1,
            Scheme::Dl2p => 2,
            Scheme::Pl2p => 3,
            Scheme::Value => 4,
            Scheme::Command => 5,
            Scheme::Unlogged => 6,
            Scheme::Logical => 7,
            Scheme::Physiological => 8,
        }
    }

    /// Returns the scheme that a byte of an anchor represents; `None` if no database can have it.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Scheme> {
        Scheme::of_databases().find(|scheme| scheme.code() == code)
    }

    /// Returns the name of the scheme in reports and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Differential => "differential",
            Scheme::Dl1p => "dl1p",
            Scheme::Dl2p => "dl2p",
            Scheme::Pl2p => "pl2p",
            Scheme::Value => "value",
            Scheme::Command => "command",
            Scheme::Unlogged => "none",
            Scheme::Logical => "logical",
            Scheme::Physiological => "physiological",
        }
    }

    /// Returns the scheme with a name; `None` if no scheme has it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    /// Returns the mode of the scheme's transactions.
    #[must_use]
    pub fn mode(self) -> Mode {
        match self {
            Scheme::Differential | Scheme::Value | Scheme::Command | Scheme::Unlogged => {
                Mode::Executor
            }
            Scheme::Dl1p | Scheme::Dl2p | Scheme::Pl2p => Mode::Steal,
            Scheme::Logical | Scheme::Physiological => Mode::Keyed,
        }
    }

    /// Returns whether the pages contain rows of tables. A restart then builds indexes of the rows. Without tables, a
    /// row is addressed by page and slot, or is in a tree.
    #[must_use]
    pub fn has_tables(self) -> bool {
        self.mode() == Mode::Executor
    }

    /// Returns whether the database has a tree in pages on disk.
    #[must_use]
    pub fn has_tree(self) -> bool {
        self.mode() == Mode::Keyed
    }

    /// Returns whether each record has a number that counts the updates of its page. From this number a restart detects
    /// a lost or doubled record.
    #[must_use]
    pub fn counts_updates(self) -> bool {
        match self {
            Scheme::Differential => true,
            Scheme::Dl1p
            | Scheme::Dl2p
            | Scheme::Pl2p
            | Scheme::Value
            | Scheme::Command
            | Scheme::Unlogged
            | Scheme::Logical
            | Scheme::Physiological => false,
        }
    }

    /// Returns the guard of this scheme, which prevents applying a record twice.
    #[must_use]
    pub fn guard(self) -> Guard {
        match self {
            Scheme::Differential | Scheme::Dl1p | Scheme::Dl2p => Guard::CheckpointEpoch,
            Scheme::Pl2p => Guard::Assignment,
            Scheme::Value | Scheme::Command => Guard::PartitionSequence,
            Scheme::Unlogged => Guard::NoRecords,
            Scheme::Logical | Scheme::Physiological => Guard::PageNumber,
        }
    }

    /// Returns the order that replay must keep. The guard determines the order.
    #[must_use]
    pub fn order(self) -> Order {
        match self.guard() {
            Guard::CheckpointEpoch | Guard::NoRecords => Order::Free,
            Guard::Assignment => Order::PerSlot,
            Guard::PartitionSequence => Order::PerPartition,
            Guard::PageNumber => Order::ByNumber,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_inverse_and_the_order_follows_from_the_guard() {
        for scheme in Scheme::ALL {
            let in_anchor = scheme.is_of_databases().then_some(scheme);
            assert_eq!(Scheme::from_code(scheme.code()), in_anchor);
            assert_eq!(Scheme::from_name(scheme.name()), Some(scheme));
            let order = match scheme.guard() {
                Guard::CheckpointEpoch | Guard::NoRecords => Order::Free,
                Guard::Assignment => Order::PerSlot,
                Guard::PartitionSequence => Order::PerPartition,
                Guard::PageNumber => Order::ByNumber,
            };
            assert_eq!(scheme.order(), order);
            assert!(scheme.is_of_databases() || order == Order::PerPartition);
        }
        assert_eq!(Scheme::from_code(9), None);
        assert_eq!(Scheme::from_code(4), None, "no database has it");
        assert_eq!(Scheme::from_name("DL1P"), None);
    }
}
