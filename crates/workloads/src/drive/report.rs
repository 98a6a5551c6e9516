//! The results of a run, with the names that all benches share.

use serde::Serialize;

use super::archived::ArchivedReport;
use super::beside::{HalfLoad, UnderCheckpoints};
use super::{DriveOptions, Driven};
use crate::latency::LatencyUs;
use crate::num::{count_f64, f64_of, ratio};
use crate::process;
use crate::update::keyed::TreeRun;

/// Transactions of one kind.
#[derive(Debug, Clone, Serialize)]
pub struct KindReport {
    /// The kind's name.
    pub name: &'static str,
    /// The number of transactions, including rolled-back transactions.
    pub txns: u64,
    /// The number of rolled-back transactions.
    pub aborts: u64,
    /// The mean size of one transaction's records, bytes. Rolled-back transactions that logged nothing are left out.
    /// `None`: not measured.
    pub log_bytes_per_txn: Option<f64>,
}

/// The result of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RunReport {
    /// The workload's name.
    pub workload: &'static str,
    /// The logging scheme.
    pub scheme: &'static str,
    /// The number of log streams.
    pub streams: u8,
    /// The number of partitions.
    pub partitions: usize,
    /// The number of threads that run transactions.
    pub workers: usize,
    /// The number of clients of a closed loop.
    pub clients: Option<usize>,
    /// The number of transactions due each second in an open loop. `None`: a closed loop.
    pub rate: Option<f64>,
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
    /// The number of transactions of an open loop that were due and had not begun when the loop ended.
    pub unstarted: u64,
    /// The part of the workers' time in which they began nothing, because as many transactions as allowed were under
    /// way.
    #[serde(skip)]
    pub waited_part: f64,
    /// The mean time from a transaction's start until it is durable, microseconds.
    #[serde(skip)]
    pub latency_mean_us: f64,
    /// The time from a transaction's start until it is durable. In an open loop, the intended start counts.
    pub latency_us: LatencyUs,
    /// The size of all log records without padding, bytes.
    pub log_bytes: u64,
    /// The number of bytes written to the logs' devices.
    pub log_device_bytes: u64,
    /// The mean size of one transaction's log records, bytes.
    pub log_bytes_per_txn: f64,
    /// The number of syncs of the log.
    pub syncs: u64,
    /// The CPU time of the process, seconds.
    pub cpu_seconds: Option<f64>,
    /// The maximum resident memory of the process, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// The counts of each kind of transaction.
    pub kinds: Vec<KindReport>,
    /// The time that the initial population took, seconds. 0 if the database already existed.
    pub load_seconds: f64,
    /// The work of the archiver. `None`: the database has no archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchivedReport>,
    /// The tree's logged records and read pages. `None`: the database has no tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeRun>,
    /// The run at half of the throughput, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_load: Option<HalfLoad>,
    /// The run under checkpoints, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_checkpoints: Option<UnderCheckpoints>,
    /// The logical digest of the database at the end, if it was requested.
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
        self.latency_mean_us = driven.latencies.mean();
        let workers_seconds = driven.seconds * count_f64(options.workers);
        self.waited_part = ratio(driven.waited_seconds, workers_seconds);
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
