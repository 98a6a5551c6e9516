//! The results of a run, in the words that all benches share.

use serde::Serialize;

use crate::latency::LatencyUs;

/// The result of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SmsReport {
    /// The workload's name.
    pub workload: &'static str,
    /// The logging scheme.
    pub scheme: &'static str,
    /// Whole slots or differing bytes.
    pub records: &'static str,
    /// Log streams.
    pub streams: u8,
    /// Partitions.
    pub partitions: u16,
    /// Rows at the begin.
    pub rows: u64,
    /// Bytes of a slot.
    pub slot_bytes: usize,
    /// The share of transactions that were to abort.
    pub abort_ratio: f64,
    /// Transactions open at once.
    pub open: usize,
    /// The seed.
    pub seed: u64,
    /// Transactions measured, those that aborted included.
    pub txns: u64,
    /// Time measured, seconds.
    pub seconds: f64,
    /// Transactions a second.
    pub tps: f64,
    /// Transactions that were rolled back.
    pub aborts: u64,
    /// From commit to durable.
    pub latency_us: LatencyUs,
    /// Bytes of records with their frame heads: no block padding, no initial load.
    pub log_bytes: u64,
    /// Of these, compensation.
    pub compensation_bytes: u64,
    /// Bytes written to the logs' devices.
    pub log_device_bytes: u64,
    /// Bytes of records for one transaction.
    pub log_bytes_per_txn: f64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Checkpoints completed after the one of the initial load.
    pub checkpoints: u64,
    /// The share of transactions that ended while a checkpoint ran.
    pub in_window: f64,
    /// The most memory the process has had resident, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// The logical digest of the contents of memory at the end, those of open transactions included.
    pub digest: String,
    /// True if the run ended like a power cut.
    pub crashed: bool,
}
