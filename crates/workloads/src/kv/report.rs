//! The results of a run, with the field names that all benches share.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::KvOptions;
use crate::latency::LatencyUs;

/// The results of a run. A value is `None` if the target does not report it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct KvReport {
    /// The workload's name.
    pub workload: &'static str,
    /// The target: `embedded`, or a server's name and version.
    pub target: String,
    /// The logging scheme.
    pub scheme: Option<&'static str>,
    /// The number of log streams.
    pub streams: Option<u64>,
    /// The number of partitions.
    pub partitions: Option<u64>,
    /// The number of connections to a server, or of threads in this process.
    pub clients: usize,
    /// The number of requests in one batch. The client waits for the replies after each batch.
    pub pipeline: usize,
    /// The number of distinct keys.
    pub keys: u64,
    /// The size of a value, bytes.
    pub value_bytes: usize,
    /// The kinds of requests.
    pub mix: String,
    /// The seed.
    pub seed: u64,
    /// The number of measured requests.
    pub txns: u64,
    /// The length of the measured time, seconds.
    pub seconds: f64,
    /// The number of requests a second.
    pub tps: f64,
    /// The number of refused requests.
    pub aborts: u64,
    /// The error text of the first refused request.
    pub first_error: Option<String>,
    /// The latencies of all requests.
    pub latency_us: LatencyUs,
    /// The size of the log records that were written, without padding, bytes.
    pub log_bytes: Option<u64>,
    /// The number of bytes written to the log's device.
    pub log_device_bytes: Option<u64>,
    /// The mean size of one transaction's log records, bytes.
    pub log_bytes_per_txn: Option<f64>,
    /// The number of syncs of the log.
    pub syncs: Option<u64>,
    /// The CPU time that the target used, seconds.
    pub cpu_seconds: Option<f64>,
    /// The peak of the resident memory of the target, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// The number of keys that were set before the measurement.
    pub filled: u64,
    /// The time that setting these keys took, seconds.
    pub fill_seconds: f64,
    /// The number of checked keys with correct values.
    pub checked: u64,
}

impl KvReport {
    /// Makes a report with the settings and without results.
    pub(super) fn of(options: &KvOptions) -> KvReport {
        KvReport {
            workload: "kv",
            clients: options.clients,
            pipeline: options.pipeline,
            keys: options.keys,
            value_bytes: options.value_bytes,
            mix: options.mix.to_string(),
            seed: options.seed,
            ..KvReport::default()
        }
    }

    /// Enters the results of the measured part.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn measured(&mut self, latencies: &Histogram<u64>, seconds: f64) {
        self.txns = latencies.len();
        self.seconds = seconds;
        self.tps = if seconds > 0.0 {
            self.txns as f64 / seconds
        } else {
            0.0
        };
        self.latency_us = LatencyUs::of(latencies);
        self.log_bytes_per_txn = self
            .log_bytes
            .filter(|_| self.txns > 0)
            .map(|bytes| bytes as f64 / self.txns as f64);
    }
}
