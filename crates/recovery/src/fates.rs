//! Finds the outcome of each transaction while its stream is read.
//!
//! A transaction stays in one stream, so each stream has separate tables, and the players of different streams share no
//! table.
//!
//! [`Backward`] reads a transaction's end before its changes, so one pass is enough. [`Forward`] reads the changes
//! first; a second pass undoes the transactions that are still open at the end of a life.
//!
//! # Source
//! *Differential Logging* (000), algorithm 3: `Backward` is its CTT and ATT.
//!
//! # Deviations
//! CTT and ATT are one table of fates, because the tag is tested in every phase and not only within the window. A
//! transaction without an entry was lost in the crash. The tables are cleared where a life of the database ends, that
//! is, where a restart has cut the log. Transactions do not outlive their incarnation, and later incarnations do not
//! reuse their numbers.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use perdura_base::checksum::mix64;
use perdura_base::{CkptEpoch, Epoch, TxnId};
use perdura_page::txn_record::TxnRecord;

use crate::rule::{Fate, Gate, ImageKind, gate_fate};

#[cfg(feature = "flaws")]
mod seeded;

/// A hasher for transaction numbers. Clients do not choose the numbers, so it need not resist attacks.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = mix64(self.0 ^ id);
    }
}

type ById<V> = HashMap<TxnId, V, BuildHasherDefault<IdHasher>>;

/// The fates of transactions, as a backward scan of one stream finds them.
#[derive(Default)]
pub struct Backward {
    fates: ById<Fate>,
    #[cfg(feature = "flaws")]
    printed: seeded::Printed,
}

impl Backward {
    /// Ends a life of the database: drops the fates of its transactions, because no record of another life refers to
    /// them.
    pub fn end_life(&mut self) {
        self.fates.clear();
    }

    /// Notes a record other than a change. `epoch` is the epoch of the record's block.
    pub fn note(&mut self, record: &TxnRecord<'_>, epoch: Epoch) {
        #[cfg(feature = "flaws")]
        self.printed.note(record);
        match record {
            TxnRecord::Begin { txn } => {
                self.fates.remove(txn);
            }
            TxnRecord::Commit { txn } => {
                self.fates.insert(*txn, Fate::Committed(epoch));
            }
            TxnRecord::Abort {
                txn,
                compensated,
                ckpt,
            } => {
                let fate = if *compensated {
                    Fate::AbortedCompensated
                } else {
                    Fate::AbortedClean(*ckpt)
                };
                self.fates.insert(*txn, fate);
            }
            TxnRecord::Update(_) => {}
        }
    }

    /// Decides whether a change of `txn` is applied.
    #[must_use]
    pub fn gate(&self, txn: TxnId, tag: CkptEpoch, image: ImageKind, target: Epoch) -> Gate {
        let fate = self.fates.get(&txn).copied();
        #[cfg(feature = "flaws")]
        if let Some(gate) = self.printed.gate(txn, fate, tag, image) {
            return gate;
        }
        // A transaction without a fate was lost after the image was complete. Records that are read here lie behind the
        // image's begin, and an image is begun and completed in the same life.
        gate_fate(
            tag,
            image,
            fate.unwrap_or(Fate::Lost(CkptEpoch(u64::MAX))),
            target,
        )
    }
}

/// The transactions of one life that never ended.
#[derive(Debug, Clone, Default)]
pub struct Losers {
    /// The numbers of the transactions.
    pub txns: BTreeSet<TxnId>,
    /// The units that hold their records: from the unit of the first loser's first record to the last unit of that
    /// life.
    pub units: std::ops::Range<usize>,
}

/// The open transactions, as a forward scan of one stream finds them.
#[derive(Default)]
pub struct Forward {
    /// Each open transaction with the unit of its first record.
    open: ById<usize>,
    /// The unit of the newest record, plus one.
    units_end: usize,
}

impl Forward {
    /// Ends a life of the database. Returns the open transactions, which are lost. `None`: no transaction is open.
    pub fn end_life(&mut self) -> Option<Losers> {
        let first = self.open.values().copied().min()?;
        assert!(
            first < self.units_end,
            "a transaction begins in unit {first}, and records end before {}",
            self.units_end
        );
        Some(Losers {
            txns: self.open.drain().map(|(txn, _)| txn).collect(),
            units: first..self.units_end,
        })
    }

    /// Notes a record, which is in `unit`.
    pub fn note(&mut self, record: &TxnRecord<'_>, unit: usize) {
        debug_assert!(
            self.units_end <= unit + 1,
            "unit {unit} comes after {}",
            self.units_end
        );
        self.units_end = unit + 1;
        match record {
            TxnRecord::Begin { txn } => {
                self.open.entry(*txn).or_insert(unit);
            }
            TxnRecord::Update(update) => {
                self.open.entry(update.txn).or_insert(unit);
            }
            TxnRecord::Commit { txn } | TxnRecord::Abort { txn, .. } => {
                self.open.remove(txn);
            }
        }
    }
}
