//! Finds the outcome of each transaction while its stream is read.
//!
//! A transaction stays in one stream, so each stream has separate tables, and the players of different streams share no
//! table.
//!
//! A *life* is the time from one restart of the database to the next. [`Backward`] reads a transaction's end before the
//! transaction's changes, so one pass is enough. [`Forward`] reads the changes first. A second pass then undoes the
//! transactions that are still open at the end of a life.
//!
//! # Source
//! *Differential Logging* (000), algorithm 3: `Backward` does the work of the algorithm's two tables, CTT and ATT.
//!
//! # Deviations
//! One table of fates replaces CTT and ATT, because a record's tag (checkpoint epoch) is tested in every phase, not
//! only within the checkpoint's window. A transaction without an entry was lost in the crash. The table is cleared
//! where a life ends, that is, where a restart has cut the log. No transaction continues in a later life, and no later
//! life reuses a transaction's number.

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
    /// Ends a life of the database: drops the fates of its transactions. Only records of this life refer to these
    /// transactions.
    pub fn end_life(&mut self) {
        self.fates.clear();
    }

    /// Notes a transaction's begin, commit or abort. A change is ignored. `epoch` is the epoch of the record's block.
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
        // A transaction without a fate was lost when its life ended. The image was complete at that point: an image is
        // begun and completed in one life, and the scan reads only records behind the image's begin.
        gate_fate(
            tag,
            image,
            fate.unwrap_or(Fate::Lost(CkptEpoch(u64::MAX))),
            target,
        )
    }
}

/// The transactions of one life that neither committed nor aborted.
#[derive(Debug, Clone, Default)]
pub struct Losers {
    /// The numbers of the transactions.
    pub txns: BTreeSet<TxnId>,
    /// The units (pieces of the stream) with the records of these transactions: from the unit of the first record to
    /// the last unit of the life.
    pub units: std::ops::Range<usize>,
}

/// The open transactions, as a forward scan of one stream finds them.
#[derive(Default)]
pub struct Forward {
    /// The open transactions. The value is the index of the unit that contains the transaction's first record.
    open: ById<usize>,
    /// The index of the unit that contains the newest record, plus one.
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
