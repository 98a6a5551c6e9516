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
    /// The contents of log records: whole slots, or only the bytes that differ.
    pub records: &'static str,
    /// The number of log streams.
    pub streams: u8,
    /// The number of partitions.
    pub partitions: u16,
    /// The number of rows at the begin.
    pub rows: u64,
    /// The size of a slot, bytes.
    pub slot_bytes: usize,
    /// The share of transactions that were chosen to abort.
    pub abort_ratio: f64,
    /// The number of transactions that are open at the same time.
    pub open: usize,
    /// The seed.
    pub seed: u64,
    /// The number of measured transactions, aborted ones included.
    pub txns: u64,
    /// The length of the measured time, seconds.
    pub seconds: f64,
    /// The number of transactions a second.
    pub tps: f64,
    /// The number of transactions that were rolled back.
    pub aborts: u64,
    /// The time from a transaction's commit until it is durable.
    pub latency_us: LatencyUs,
    /// The size of the records with the heads of their frames, without the padding of blocks and
    /// the initial load, bytes.
    pub log_bytes: u64,
    /// The part of `log_bytes` that is compensation records, bytes.
    pub compensation_bytes: u64,
    /// The number of bytes written to the logs' devices.
    pub log_device_bytes: u64,
    /// The size of the records of one transaction on average, bytes.
    pub log_bytes_per_txn: f64,
    /// The number of syncs of the log.
    pub syncs: u64,
    /// The number of checkpoints completed after that of the initial load.
    pub checkpoints: u64,
    /// The share of transactions that ended while a checkpoint ran.
    pub in_window: f64,
    /// The most memory that the process has had resident, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// The logical digest of the memory's contents at the end, including changes of open
    /// transactions.
    pub digest: String,
    /// True if the run ended as by a power cut.
    pub crashed: bool,
}
