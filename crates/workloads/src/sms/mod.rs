//! The SMS workload: a table of messages. Half of the transactions insert two messages each, and half remove two.
//!
//! A message is an id of 4 bytes, an address of 12 and a text that fills the rest of its slot: 240 bytes in the
//! paper's slot of 256. Several transactions are open at the same time. The next transaction, its action and whether
//! it finally aborts depend only on the seed, not on the scheme or on time. So the same seed makes the same history
//! under every scheme. A crash after n transactions leaves the same state, whatever the form of the log.
//!
//! | module | one idea |
//! |---|---|
//! | [`mod@bench`] | a run on given disks, from nothing to a report |
//! | [`driver`] | the seeded interleaving |
//! | [`message`] | the contents of a row |
//! | [`run`] | steps to a number of transactions, or for a time at full speed |
//! | [`report`] | the results of a run |
//!
//! # Source
//! *Differential Logging* (000), section 5.1.
//!
//! # Deviations
//! The paper defines neither the number of open transactions nor the contents of a message. Here the number is an
//! option (8), and the contents are bytes that do not compress.

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

/// The size of the smallest slot that a message fits in, with its id, its address and some text.
pub const SLOT_BYTES_MIN: usize = 64;
/// The size of the largest slot that is measured.
pub const SLOT_BYTES_MAX: usize = 2048;
/// The size of its queue at which a log stream refuses changes, bytes. The driver waits long before that.
const QUEUE_BYTES_MAX: u64 = 64 << 20;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct SmsOptions {
    /// The logging scheme.
    pub scheme: Scheme,
    /// The contents of log records: whole slots, or only the bytes that differ.
    pub records: Records,
    /// The rule by which transactions choose their stream.
    pub route: Route,
    /// The number of rows at the begin.
    pub rows: u64,
    /// The size of a slot, bytes. Each row fills a slot.
    pub slot_bytes: usize,
    /// The number of partitions of the store.
    pub partitions: u16,
    /// The size of a log segment, bytes.
    pub segment_bytes: u64,
    /// The share of transactions that abort, 0 to 1.
    pub abort_ratio: f64,
    /// The number of transactions that are open at the same time.
    pub open: usize,
    /// The seed of all random values.
    pub seed: u64,
    /// The parts of the run after which checkpoints begin, 0 to 1.
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
