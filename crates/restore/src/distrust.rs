//! Failed reports of an archive, and the restores that they are about.

use perdura_archive::report::{Outcome, newest_report};
use perdura_archive::{Report, ReportKind, Store};
use perdura_base::Result;

use crate::plan::RestorePlan;

/// The kinds of reports.
const KINDS: [ReportKind; 2] = [ReportKind::Proof, ReportKind::Drill];

/// Returns the newest report of each kind, if it says that the archive is wrong.
///
/// # Errors
/// Errors of the disk.
pub fn failed_reports(store: &Store) -> Result<Vec<Report>> {
    let mut failed = Vec::new();
    for kind in KINDS {
        let newest = newest_report(store.disk().as_ref(), store.uuid(), kind)?;
        failed.extend(newest.filter(|report| report.outcome == Outcome::Fails));
    }
    debug_assert!(failed.len() <= KINDS.len(), "the newest of each kind");
    Ok(failed)
}

impl RestorePlan {
    /// Returns whether a failed report is about epochs or the backup that this plan reads.
    #[must_use]
    pub fn is_covered_by(&self, report: &Report) -> bool {
        let backup = self.backup.header();
        let first = self.run_ids().map(|run| run.epochs.begin).min();
        let first = first.unwrap_or(backup.id.end).min(backup.begin);
        assert_eq!(report.uuid, backup.uuid, "both are of one database");
        match report.kind {
            // The records between two images do not lead from one to the other.
            ReportKind::Proof => first <= report.end,
            ReportKind::Drill => {
                let is_same = backup.id.end == report.begin && backup.id.k == report.from;
                is_same || first <= report.end && report.begin < self.target
            }
        }
    }
}
