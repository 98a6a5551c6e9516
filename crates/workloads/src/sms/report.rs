//! The results of a run, with the field names that all benches share.

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
    /// The number of rows at the start.
    pub rows: u64,
    /// The size of a slot, bytes.
    pub slot_bytes: usize,
    /// The share of transactions chosen to abort.
    pub abort_ratio: f64,
    /// The number of simultaneously open transactions.
    pub open: usize,
    /// The seed.
    pub seed: u64,
    /// The number of measured transactions, including aborted transactions.
    pub txns: u64,
    /// The length of the measured time, seconds.
    pub seconds: f64,
    /// The number of transactions a second.
    pub tps: f64,
    /// The number of rolled-back transactions.
    pub aborts: u64,
    /// The time from a transaction's commit until it is durable.
    pub latency_us: LatencyUs,
    /// The size of the log records, including the heads of their frames, in bytes. The initial load and the padding of
    /// blocks are not included.
    pub log_bytes: u64,
    /// The size of the compensation records, in bytes. It is a part of `log_bytes`.
    pub compensation_bytes: u64,
    /// The number of bytes written to the logs' devices.
    pub log_device_bytes: u64,
    /// The mean size of a transaction's log records, in bytes.
    pub log_bytes_per_txn: f64,
    /// The number of syncs of the log.
    pub syncs: u64,
    /// The number of checkpoints completed after the checkpoint of the initial load.
    pub checkpoints: u64,
    /// The share of transactions that ended while a checkpoint ran.
    pub in_window: f64,
    /// The peak of the resident memory of the process, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// The logical digest of the memory's contents at the end of the run. Changes of open transactions are included.
    pub digest: String,
    /// True if the run ended as if the power had been cut.
    pub crashed: bool,
}
