//! Logging schemes: the meaning of a record in the log, and its consequences.
//!
//! A scheme is a guard against applying a change twice. The guard dictates the order that replay
//! must keep, and from the order follow the legal parallelism and the restart methods.
//!
//! A database has a scheme, which gives its groups or records of pages their meaning. Beside them the log may hold
//! *ordered* frames, which change rows of key-addressed tables. Their schemes are rows here as well, but no database
//! has them.
//!
//! # Source
//! *Differential Logging* (000), section 5.1: DL1P, DL2P and PL2P are the three that the paper measures. `Differential`
//! is the first of them in executor mode, where only whole committed transactions are in the log. *Rethinking Main
//! Memory OLTP Recovery* (001): `Command`, and its baseline `Value`. *Implementing Performance Competitive Logical
//! Recovery* (002): `Logical` and `Physiological`.

/// A logging scheme. That of a database is fixed when it is made.
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
    /// Executor mode: the rows that a committed transaction changed, by their keys.
    Value,
    /// Executor mode: the procedure that a committed transaction called, and its arguments.
    Command,
    /// Executor mode: nothing is logged. A crash loses what the newest image does not have; for measuring.
    Unlogged,
    /// Keyed mode: operations on rows by their keys, and the tree's notes about its pages, Δ and BW records.
    Logical,
    /// Keyed mode: like `Logical`, without Δ records. A restart finds pages by the operations' hints alone.
    Physiological,
}

/// The component that changes pages, and the time at which it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A transaction holds its partitions' latches until it commits; the log has whole committed
    /// transactions only.
    Executor,
    /// Transactions interleave and change pages before they commit.
    Steal,
    /// Transactions interleave over rows by their keys. Pages of a tree change, and may reach the disk, before they commit.
    Keyed,
}

/// The check that keeps a record from being applied twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The image's epoch, compared with the record's tag.
    CheckpointEpoch,
    /// No check: to assign an image twice is to assign it once.
    Assignment,
    /// The image's number of the partition, compared with the transaction's.
    PartitionSequence,
    /// No check, because the scheme writes no records.
    NoRecords,
    /// The number in the page of a tree, compared with the operation's.
    PageNumber,
}

/// The order that replay must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// None: any stream, any direction, any number of players, before or after the image's pages.
    Free,
    /// The changes of one slot in the order in which they were made.
    PerSlot,
    /// The transactions of one partition in the order in which they committed, after all else.
    PerPartition,
    /// Operations in the order of their numbers, after all else.
    ByNumber,
}

impl Scheme {
    /// All schemes, by code.
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

    /// Returns whether a database can have it. The others are schemes of ordered frames alone.
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

    /// Returns the byte in the anchor.
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

    /// Returns the scheme of a byte from an anchor, if a database can have it.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Scheme> {
        Scheme::of_databases().find(|scheme| scheme.code() == code)
    }

    /// Returns its name in reports and on the command line.
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

    /// Returns the scheme of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    /// Returns the mode of its transactions, which says whether they interleave.
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

    /// Returns whether the pages hold the rows of tables, which a restart indexes. Without tables a row is addressed by
    /// page and slot, or is in a tree.
    #[must_use]
    pub fn has_tables(self) -> bool {
        self.mode() == Mode::Executor
    }

    /// Returns whether the database has a tree in pages on disk.
    #[must_use]
    pub fn has_tree(self) -> bool {
        self.mode() == Mode::Keyed
    }

    /// Returns whether each record has the number of its page's update, so that a restart notices a record that is lost
    /// or doubled.
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

    /// Returns the check that keeps a record of this scheme from being applied twice.
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

    /// Returns the order that replay must keep: it follows from the guard.
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
