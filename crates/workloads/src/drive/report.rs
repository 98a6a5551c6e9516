//! The results of a run, in the words that all benches share.

use serde::Serialize;

use super::archived::ArchivedReport;
use super::beside::{HalfLoad, UnderCheckpoints};
use super::{DriveOptions, Driven};
use crate::latency::LatencyUs;
use crate::num::{f64_of, ratio};
use crate::process;
use crate::update::keyed::TreeRun;

/// Transactions of one kind.
#[derive(Debug, Clone, Serialize)]
pub struct KindReport {
    /// The kind's name.
    pub name: &'static str,
    /// All transactions, those that were rolled back included.
    pub txns: u64,
    /// Those that were rolled back.
    pub aborts: u64,
    /// Bytes of records of one transaction. Transactions that were rolled back and logged nothing do not count. `None`:
    /// not measured.
    pub log_bytes_per_txn: Option<f64>,
}

/// The result of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RunReport {
    /// The workload's name.
    pub workload: &'static str,
    /// The logging scheme.
    pub scheme: &'static str,
    /// Log streams.
    pub streams: u8,
    /// Partitions.
    pub partitions: usize,
    /// Threads that run transactions.
    pub workers: usize,
    /// Clients of a closed loop.
    pub clients: Option<usize>,
    /// Arrivals a second of an open loop.
    pub rate: Option<f64>,
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
    /// Arrivals of an open loop that had not begun at its end.
    pub unstarted: u64,
    /// From the start, in an open loop the intended one, to durable.
    pub latency_us: LatencyUs,
    /// Bytes of log records, without padding.
    pub log_bytes: u64,
    /// Bytes written to the logs' devices.
    pub log_device_bytes: u64,
    /// Bytes of log records for one transaction.
    pub log_bytes_per_txn: f64,
    /// Syncs of the log.
    pub syncs: u64,
    /// CPU time of the process, seconds.
    pub cpu_seconds: Option<f64>,
    /// The most memory the process has had resident, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// By kind.
    pub kinds: Vec<KindReport>,
    /// The time of the initial population, seconds. 0 if the database existed.
    pub load_seconds: f64,
    /// The work of the archiver. `None`: the database has no archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchivedReport>,
    /// The tree's logging and reading. `None`: the database has no tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeRun>,
    /// The run at half of the throughput, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_load: Option<HalfLoad>,
    /// The run under checkpoints, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_checkpoints: Option<UnderCheckpoints>,
    /// The logical digest at the end, if it was requested.
    pub digest: Option<String>,
}

impl RunReport {
    /// Enters the settings and the measurements. `names` are the names of the kinds.
    pub fn measured(&mut self, options: &DriveOptions, driven: &Driven, names: &[&'static str]) {
        assert_eq!(names.len(), driven.kinds.len(), "each kind has a name");
        self.workers = options.workers;
        self.clients = options.rate.is_none().then_some(options.clients);
        self.rate = options.rate;
        self.txns = driven.kinds.iter().map(|kind| kind.txns).sum();
        self.aborts = driven.kinds.iter().map(|kind| kind.aborts).sum();
        assert_eq!(
            self.txns,
            driven.latencies.len(),
            "each transaction has a latency"
        );
        self.seconds = driven.seconds;
        self.tps = ratio(f64_of(self.txns), driven.seconds);
        self.unstarted = driven.unstarted;
        self.latency_us = LatencyUs::of(&driven.latencies);
        self.log_bytes = driven.log.log_bytes;
        self.log_device_bytes = driven.log.device_bytes;
        self.log_bytes_per_txn = ratio(f64_of(driven.log.log_bytes), f64_of(self.txns));
        self.syncs = driven.log.syncs;
        self.cpu_seconds = driven.cpu_seconds;
        self.peak_rss_bytes = process::peak_rss_bytes(std::process::id());
        let kinds = names.iter().zip(&driven.kinds);
        self.kinds = kinds
            .map(|(name, counts)| KindReport {
                name,
                txns: counts.txns,
                aborts: counts.aborts,
                log_bytes_per_txn: (counts.sized > 0)
                    .then(|| ratio(f64_of(counts.log_bytes), f64_of(counts.sized))),
            })
            .collect();
    }
}
