//! The SMS workload: a table of messages. Half of the transactions insert two messages each, and half remove two.
//!
//! A message is an id of 4 bytes, an address of 12 and a text that fills the rest of its slot: 240 bytes in the paper's
//! slot of 256. Several transactions are open at once. The choice of the next transaction, the action and the final
//! abort depend only on the seed, not on scheme or time. So a seed makes one history under all schemes. With every form
//! of the log, a crash after n transactions leaves the same state.
//!
//! | module | one idea |
//! |---|---|
//! | [`mod@bench`] | a run on given disks, from nothing to a report |
//! | [`driver`] | the seeded interleaving |
//! | [`message`] | the contents of a row |
//! | [`run`] | runs in steps up to a number of transactions, and runs at full speed |
//! | [`report`] | the results of a run |
//!
//! # Source
//! *Differential Logging* (000), section 5.1.
//!
//! # Deviations
//! The paper defines neither the number of open transactions nor the contents of a message. Here the number is an
//! option, 8 by default. The contents are bytes that do not compress.

pub mod bench;
pub mod driver;
pub mod message;
pub mod report;
pub mod run;

use perdura_steal::{Records, Route, StealOptions};
use perdura_wal::scheme::Scheme;

pub use bench::{SmsBench, bench};
pub use driver::{Counts, Driver, Stepped};
pub use report::SmsReport;
pub use run::{Pace, RunLimit, Speed, run_for, run_steps};

/// The minimum size of a slot, bytes. Such a slot has room for a message's id, its address and some text.
pub const SLOT_BYTES_MIN: usize = 64;
/// The size of the largest slot that is measured.
pub const SLOT_BYTES_MAX: usize = 2048;
/// The maximum size of a log stream's queue, in bytes. A stream with a full queue refuses changes. The driver waits
/// long before a queue is full, at [`run::QUEUE_BYTES`].
const QUEUE_BYTES_MAX: u64 = 64 << 20;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct SmsOptions {
    /// The logging scheme.
    pub scheme: Scheme,
    /// The contents of log records: whole slots, or only the bytes that differ.
    pub records: Records,
    /// The rule by which a transaction chooses its log stream.
    pub route: Route,
    /// The number of rows at the start.
    pub rows: u64,
    /// The size of a slot, bytes. Each row fills a slot.
    pub slot_bytes: usize,
    /// The number of partitions of the store.
    pub partitions: u16,
    /// The size of a log segment, bytes.
    pub segment_bytes: u64,
    /// The share of transactions that abort, 0 to 1.
    pub abort_ratio: f64,
    /// The number of simultaneously open transactions.
    pub open: usize,
    /// The seed of all random values.
    pub seed: u64,
    /// Fractions from 0 to 1. A checkpoint begins after each of these fractions of the run's transactions.
    pub checkpoints: Vec<f64>,
    /// The number of transactions that end between two steps of a checkpoint.
    pub txns_per_visit: u64,
}

impl Default for SmsOptions {
    fn default() -> Self {
        SmsOptions {
            scheme: Scheme::Dl1p,
            records: Records::Full,
            route: Route::Scattered,
            rows: 1_000_000,
            slot_bytes: 256,
            partitions: 64,
            segment_bytes: 64 << 20,
            abort_ratio: 0.02,
            open: 8,
            seed: 1,
            checkpoints: Vec::new(),
            txns_per_visit: 16,
        }
    }
}

impl SmsOptions {
    /// Returns the store's options for this workload.
    #[must_use]
    pub fn store(&self) -> StealOptions {
        StealOptions {
            records: self.records,
            partitions: self.partitions,
            segment_bytes: self.segment_bytes,
            route: self.route,
            queue_bytes_max: QUEUE_BYTES_MAX,
            ..StealOptions::new(self.scheme, self.slot_bytes)
        }
    }
}
