//! Restarts a crash, which stays unchanged.

use std::sync::Arc;

use anyhow::{Context, Result};
use perdura_recovery::report::TreeReport;
use perdura_recovery::restart::{RestartOptions, Restarted};
use perdura_recovery::tree::contents::{ALL_STABLE, contents};
use perdura_recovery::{Disks, Method};

use super::ground::Ground;
use super::history::Crash;
use super::unsynced::UnsyncedDisk;
use crate::num::{median, ratio};

/// Returns the time of redo, seconds: the pass that makes the table of dirty pages, and the pass that redoes
/// operations.
pub(super) fn redo_seconds(report: &TreeReport) -> f64 {
    report.analysis_seconds + report.redo_seconds
}

/// Returns the part of the redo time that passed until the inner pages of the tree were loaded.
pub(super) fn index_share(report: &TreeReport) -> f64 {
    ratio(report.index_seconds, redo_seconds(report))
}

/// Returns the number of times that redo waited for a page.
pub(super) fn stalls(report: &TreeReport) -> u64 {
    report.data_stalls + report.index_stalls
}

/// The reports of several restarts of one crash by one method.
#[derive(Default)]
pub(super) struct Timed {
    pub reports: Vec<TreeReport>,
}

impl Timed {
    /// Returns the median of a figure.
    pub fn median(&self, of: impl Fn(&TreeReport) -> f64) -> f64 {
        median(self.reports.iter().map(of).collect())
    }

    /// Returns the median time of redo, seconds.
    pub fn seconds(&self) -> f64 {
        self.median(redo_seconds)
    }

    /// Returns the difference between the slowest and the fastest restart, as a part of the median.
    pub fn spread(&self) -> f64 {
        let times = || self.reports.iter().map(redo_seconds);
        let most = times().fold(0.0, f64::max);
        let least = times().fold(f64::INFINITY, f64::min);
        ratio(most - least, self.seconds())
    }
}

fn restart(ground: &Ground, crash: &Crash, method: &Method, is_timed: bool) -> Result<Restarted> {
    let overlay = ground.over(&crash.disk)?;
    let disk = match is_timed {
        true => ground.timed(overlay),
        false => Arc::new(UnsyncedDisk::new(overlay)),
    };
    let options = RestartOptions {
        mode: perdura_recovery::RestartMode::Dry,
        tree: crash.options.means(),
        ..RestartOptions::of_records(
            Disks::on_one(disk, 1),
            Arc::clone(&ground.clock),
            crash.options.schedule,
            method,
        )
    };
    let restarted = perdura_recovery::restart(&options)?;
    restarted.context("the crash left a database")
}

/// Restarts once on a disk with the speed at which restarts are timed.
pub(super) fn timed(ground: &Ground, crash: &Crash, method: &Method) -> Result<TreeReport> {
    let report = restart(ground, crash, method, true)?.report.tree;
    report.context("a tree's restart reports")
}

/// Restarts once at full speed. Returns the restart's report, which has counts, and the digest of all rows.
pub(super) fn counted(
    ground: &Ground,
    crash: &Crash,
    method: &Method,
) -> Result<(TreeReport, String)> {
    let restarted = restart(ground, crash, method, false)?;
    let report = restarted.report.tree.context("a tree's restart reports")?;
    let tree = restarted.tree.context("a database with a tree")?.tree;
    let digest = contents(&tree, ALL_STABLE)?.hex();
    Ok((report, digest))
}
