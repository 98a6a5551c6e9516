//! Measures rounds of copies and restores of one archive, and computes medians.

use anyhow::{Result, ensure};
use serde::Serialize;

use super::Restoring;
use crate::num::{f64_of, median, ratio};
use crate::process;

/// The results of the rounds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RestoringReport {
    /// The size of the backup, bytes.
    pub backup_bytes: u64,
    /// The size of the runs, bytes.
    pub log_bytes: u64,
    /// `log_bytes`, divided by `backup_bytes`.
    pub log_of_backup: f64,
    /// The number of runs.
    pub runs: usize,
    /// The number of threads.
    pub threads: usize,
    /// The read rate of the source's disk, 10^6 bytes a second. 0: no limit.
    pub source_mbps: u64,
    /// The write rate of the target's disk, 10^6 bytes a second. 0: no limit.
    pub target_mbps: u64,
    /// The number of pages of the new database.
    pub pages: u64,
    /// The number of records that were applied.
    pub records_applied: u64,
    /// The time of each copy of the backup, seconds.
    pub copy_seconds: Vec<f64>,
    /// The time of each restore, seconds.
    pub restore_seconds: Vec<f64>,
    /// The time of reading only the runs, in each round, seconds.
    pub log_read_seconds: Vec<f64>,
    /// The median time of a restore, divided by the median time of a copy.
    pub restore_of_copy: f64,
    /// The median restore time, divided by the larger of two medians: the time to copy and the time to read the runs.
    pub restore_of_larger: f64,
    /// The size of the pages that a restore makes, divided by the median time of a restore, 10^6 bytes a second.
    pub image_mb_per_s: f64,
    /// The mean CPU time of a restore, seconds.
    pub restore_cpu_seconds: Option<f64>,
    /// The mean CPU time of a restore outside the kernel, seconds.
    pub restore_own_seconds: Option<f64>,
}

/// Measures `count` rounds.
///
/// # Errors
/// Errors of the restore and of the disks; restores that differ.
pub fn rounds(restoring: &Restoring, count: usize) -> Result<RestoringReport> {
    ensure!(
        count > 0 && restoring.threads > 0,
        "rounds and threads are at least 1"
    );
    let inputs = restoring.inputs()?;
    let mut report = RestoringReport {
        backup_bytes: inputs.backup_bytes,
        log_bytes: inputs.log_bytes,
        log_of_backup: ratio(f64_of(inputs.log_bytes), f64_of(inputs.backup_bytes)),
        runs: inputs.runs,
        threads: restoring.threads,
        source_mbps: restoring.source.mbps,
        target_mbps: restoring.target.mbps,
        ..RestoringReport::default()
    };
    let mut cpu = Some((0.0, 0.0));
    let mut made = None;
    for _ in 0..count {
        report.copy_seconds.push(restoring.copy()?);
        let before = process::cpu_parts(std::process::id());
        let (seconds, restored) = restoring.restore()?;
        let after = process::cpu_parts(std::process::id());
        cpu = cpu
            .zip(after.zip(before))
            .map(|(sum, (after, before))| (sum.0 + after.0 - before.0, sum.1 + after.1 - before.1));
        report.restore_seconds.push(seconds);
        report.log_read_seconds.push(restoring.read_log()?);
        (report.pages, report.records_applied) = (restored.pages, restored.applied);
        let same = (restored.epoch, restored.pages, restored.applied);
        ensure!(
            *made.get_or_insert(same) == same,
            "two restores of one archive differ"
        );
    }
    let restore = median(report.restore_seconds.clone());
    let copy = median(report.copy_seconds.clone());
    let larger = copy.max(median(report.log_read_seconds.clone()));
    report.restore_of_copy = ratio(restore, copy);
    report.restore_of_larger = ratio(restore, larger);
    report.image_mb_per_s = ratio(f64_of(report.pages) * 16_384.0 / 1e6, restore);
    let rounds = f64_of(u64::try_from(count).unwrap_or(u64::MAX));
    report.restore_cpu_seconds = cpu.map(|(own, kernel)| (own + kernel) / rounds);
    report.restore_own_seconds = cpu.map(|(own, _)| own / rounds);
    Ok(report)
}
