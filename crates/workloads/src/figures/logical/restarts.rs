//! Restarts the database that a crash left. The disk of the crash stays unchanged.

use std::sync::Arc;

use anyhow::{Context, Result};
use perdura_recovery::report::TreeReport;
use perdura_recovery::restart::{RestartOptions, Restarted};
use perdura_recovery::tree::contents::{ALL_STABLE, contents};
use perdura_recovery::{Disks, Method};

use super::super::sample::Sample;
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
    /// Returns the median, over the restarts, of the value that `of` computes from a report.
    pub fn median(&self, of: impl Fn(&TreeReport) -> f64) -> f64 {
        median(self.reports.iter().map(of).collect())
    }

    /// Returns the value that `of` computes from each restart.
    pub fn sample(&self, of: impl Fn(&TreeReport) -> f64) -> Sample {
        Sample::of(self.reports.iter().map(of))
    }

    /// Returns the ratio of the times of redo in each round: the time of this method, divided by that of `other`.
    pub fn over(&self, other: &Timed) -> Sample {
        let rounds = self.reports.iter().zip(&other.reports);
        Sample::of(rounds.map(|(a, b)| ratio(redo_seconds(a), redo_seconds(b))))
    }

    /// Returns the median time of redo, seconds.
    pub fn seconds(&self) -> f64 {
        self.median(redo_seconds)
    }

    /// Returns the difference between the longest and the shortest time of redo, divided by the median.
    pub fn spread(&self) -> f64 {
        let times = || self.reports.iter().map(redo_seconds);
        let most = times().fold(0.0, f64::max);
        let least = times().fold(f64::INFINITY, f64::min);
        ratio(most - least, self.seconds())
    }
}

/// Returns the sample with the largest median. `None`: `samples` is empty.
pub(super) fn largest(samples: impl IntoIterator<Item = Sample>) -> Option<Sample> {
    let all = samples.into_iter();
    all.max_by(|a, b| a.median.total_cmp(&b.median))
}

/// Returns the sample with the smallest median. `None`: `samples` is empty.
pub(super) fn smallest(samples: impl IntoIterator<Item = Sample>) -> Option<Sample> {
    let all = samples.into_iter();
    all.min_by(|a, b| a.median.total_cmp(&b.median))
}

/// Returns the ratio that is farthest from 1. `None`: `ratios` is empty.
pub(super) fn farthest(ratios: impl IntoIterator<Item = f64>) -> Option<f64> {
    let all = ratios.into_iter();
    all.max_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs()))
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

/// Restarts once on a disk with the speed for timed restarts ([`Ground::timed`]).
pub(super) fn timed(ground: &Ground, crash: &Crash, method: &Method) -> Result<TreeReport> {
    let report = restart(ground, crash, method, true)?.report.tree;
    report.context("a tree's restart reports")
}

/// Restarts once at full speed. Returns two results: the restart's report, for its counts, and the digest of all rows.
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
