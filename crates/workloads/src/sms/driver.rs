//! The interleaving of transactions. The seed decides which transaction acts next, and what it does.
//!
//! In each turn, one of the open transactions is chosen at random and does one thing: it inserts or removes a message,
//! or it ends. A removed message is taken off the driver's list at once, and put back if the transaction aborts. An
//! inserted message is put on the list when the transaction commits. So two open transactions never share a slot, and
//! the history has no waits.

use anyhow::{Result, ensure};
use fastrand::Rng;
use perdura_base::PartitionId;
use perdura_steal::{Committed, Place, Steal, Txn};

use super::{SmsOptions, message};

/// The number of messages that a transaction inserts or removes.
const MESSAGES_PER_TXN: usize = 2;

/// An open transaction.
struct Open {
    txn: Txn,
    inserts: bool,
    aborts: bool,
    done: usize,
    places: [Option<Place>; MESSAGES_PER_TXN],
}

/// The counts up to now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of transactions that committed.
    pub committed: u64,
    /// The number of rolled-back transactions.
    pub aborted: u64,
    /// The number of messages inserted and removed, by ended and by open transactions.
    pub changes: u64,
    /// The number of pages added because no slot was free.
    pub grown: u64,
}

impl Counts {
    /// Returns the number of transactions that have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.committed + self.aborted
    }
}

/// The result of a turn.
pub enum Stepped {
    /// A transaction began, or changed something.
    Went,
    /// A transaction committed. It is durable when its epoch is durable.
    Committed(Committed),
    /// A transaction was rolled back.
    Aborted,
}

/// Drives one store.
pub struct Driver<'a> {
    steal: &'a Steal,
    options: &'a SmsOptions,
    /// The random numbers that choose the next transaction and its action.
    turns: Rng,
    /// The random numbers that make the contents of messages.
    content: Rng,
    /// Messages that no open transaction uses.
    live: Vec<Place>,
    open: Vec<Option<Open>>,
    next_message: u64,
    row: Vec<u8>,
    counts: Counts,
}

impl<'a> Driver<'a> {
    /// Fills an empty store and takes the store's first checkpoint. A restart begins from this checkpoint.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn fill(steal: &'a Steal, options: &'a SmsOptions) -> Result<Driver<'a>> {
        steal.fill(message::all(options.rows, options.slot_bytes, options.seed))?;
        steal.checkpoint_now()?;
        let partitions = (0..options.partitions).map(PartitionId);
        let live: Vec<Place> = partitions.flat_map(|p| steal.places(p)).collect();
        ensure!(
            u64::try_from(live.len())? == options.rows,
            "{} rows were filled in, {} are there",
            options.rows,
            live.len()
        );
        Ok(Driver {
            steal,
            options,
            turns: Rng::with_seed(options.seed ^ 0x7475_726e),
            content: Rng::with_seed(options.seed ^ 0x7465_7874),
            live,
            open: (0..options.open.max(1)).map(|_| None).collect(),
            next_message: options.rows,
            row: vec![0; options.slot_bytes],
            counts: Counts::default(),
        })
    }

    /// Returns the counts up to now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Runs the next turn.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn step(&mut self) -> Result<Stepped> {
        let turn = self.turns.usize(..self.open.len());
        let Some(mut open) = self.open[turn].take() else {
            let begun = self.begin();
            self.open[turn] = Some(begun);
            return Ok(Stepped::Went);
        };
        if open.done < MESSAGES_PER_TXN {
            let place = if open.inserts {
                self.insert(&mut open.txn)?
            } else {
                self.remove(&mut open.txn)?
            };
            open.places[open.done] = Some(place);
            open.done += 1;
            self.counts.changes += 1;
            self.open[turn] = Some(open);
            return Ok(Stepped::Went);
        }
        // The transaction's messages exist now in two cases: it inserted them and commits, or it removed them and
        // aborts.
        if open.inserts != open.aborts {
            self.live.extend(open.places.into_iter().flatten());
        }
        if open.aborts {
            self.steal.abort(open.txn);
            self.counts.aborted += 1;
            return Ok(Stepped::Aborted);
        }
        self.counts.committed += 1;
        Ok(Stepped::Committed(self.steal.commit(open.txn)))
    }

    fn begin(&mut self) -> Open {
        // If there are too few messages for all open transactions to remove some, this transaction inserts. The random
        // number is drawn in any case.
        let few = self.live.len() < MESSAGES_PER_TXN * self.open.len();
        Open {
            inserts: self.turns.bool() || few,
            aborts: self.turns.f64() < self.options.abort_ratio,
            txn: self.steal.begin(),
            done: 0,
            places: [None; MESSAGES_PER_TXN],
        }
    }

    fn insert(&mut self, txn: &mut Txn) -> Result<Place> {
        message::write(
            &mut self.row,
            message::id_of(self.next_message),
            &mut self.content,
        );
        self.next_message += 1;
        loop {
            if let Some(place) = self.steal.insert(txn, &self.row)? {
                return Ok(place);
            }
            let partitions = u64::from(self.options.partitions);
            let partition = u16::try_from(self.counts.grown % partitions)?;
            // The new page becomes durable together with the row that is inserted there.
            let _grown = self.steal.grow(PartitionId(partition))?;
            self.counts.grown += 1;
        }
    }

    fn remove(&mut self, txn: &mut Txn) -> Result<Place> {
        let place = self.live.swap_remove(self.turns.usize(..self.live.len()));
        ensure!(
            self.steal.delete(txn, place)?,
            "nobody else removes {place:?}"
        );
        Ok(place)
    }
}
