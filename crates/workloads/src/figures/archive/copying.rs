//! Figure 3: compares the time of a single-pass restore with the time of copying the backup alone.

use anyhow::Result;

use perdura_restore::THREADS_A_CORE;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Chart, Panel, Plot, Series};
use super::super::sample::Sample;
use super::stand::{ArchiveStand, Shape};
use crate::drive::ModelledDisk;
use crate::num::{f64_of, median, ratio};
use crate::restoring::bench::{RestoringReport, rounds};

/// The disk of the backup and the runs.
const SOURCE: ModelledDisk = ModelledDisk {
    mbps: 1200,
    latency_us: 0,
};
/// The disk of the new database.
const TARGET: ModelledDisk = ModelledDisk {
    mbps: 400,
    latency_us: 0,
};
/// The size of the log as a part of the image's size. The paper's logs have 50 to 60 % of the image's size.
const LOG: f64 = 0.6;
/// The number of bytes that an update changes.
const CHANGED_BYTES: usize = 100;
/// A restore is slower by a negligible margin if it takes at most this many times as long as a copy.
const NEGLIGIBLE: f64 = 1.05;

/// Makes the figure.
///
/// # Errors
/// Errors of the engine and of the restore.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let scale = &lab.scale.archive;
    let mut found: Vec<RestoringReport> = Vec::new();
    for image_mb in scale.images_mb {
        lab.say(&format!("an image of {image_mb} MB and its log"));
        let stand =
            ArchiveStand::of_updates(&Shape::with_log(*image_mb, LOG, CHANGED_BYTES), lab.seed)?;
        let restoring = stand.restoring(SOURCE, TARGET, threads(lab));
        found.push(rounds(&restoring, scale.rounds)?);
    }
    let mb = |report: &RestoringReport| f64_of(report.backup_bytes) / 1e6;
    let line = |of: fn(&RestoringReport) -> &Vec<f64>| {
        let point = |report| (mb(report), median(of(report).clone()));
        found.iter().map(point).collect::<Vec<_>>()
    };
    Ok(Figure {
        name: "004-fig3",
        title: "time of a single-pass restore beside that of copying the backup".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![
            format!(
                "rows of 256 bytes, updates of {CHANGED_BYTES} bytes each, uniform; runs of {LOG} of the image; medians of \
                 {} rounds, copy and restore in turn, {} threads each",
                scale.rounds,
                threads(lab)
            ),
            format!(
                "modelled disks: backup and runs on one of {} MB/s, the new database on one of {} MB/s",
                SOURCE.mbps, TARGET.mbps
            ),
        ],
        columns: "backup_mb,log_mb,runs,copy_seconds,restore_seconds,restore_of_copy,\
            restore_cpu_seconds",
        rows: found
            .iter()
            .map(|report| {
                vec![
                    cell(mb(report)),
                    cell(f64_of(report.log_bytes) / 1e6),
                    report.runs.into(),
                    cell(median(report.copy_seconds.clone())),
                    cell(median(report.restore_seconds.clone())),
                    cell(report.restore_of_copy),
                    cell(report.restore_cpu_seconds.unwrap_or(0.0)),
                ]
            })
            .collect(),
        claims: claims(&found),
        plot: Plot {
            title: "Figure 3: single-pass restore beside copying the outdated backup".into(),
            subtitle: format!(
                "log {LOG} of the backup, which the restore applies and the copy does not"
            ),
            panels: vec![Panel::new(
                "",
                "Time (sec)",
                Chart::powers(
                    "Backup (MB)",
                    vec![
                        Series::solid("Copy outdated full backup", line(|r| &r.copy_seconds)),
                        Series::solid("Single-pass restore", line(|r| &r.restore_seconds)),
                    ],
                ),
            )],
        },
    })
}

fn threads(lab: &Lab<'_>) -> usize {
    THREADS_A_CORE * lab.cores
}

fn claims(found: &[RestoringReport]) -> Vec<Claim> {
    let worst = found
        .iter()
        .max_by(|a, b| of_copy(a).median.total_cmp(&of_copy(b).median));
    let logs = found.iter().map(|report| report.log_of_backup);
    let hidden = |what: &str, report: &RestoringReport, why: &str| {
        Claim::measured(
            what,
            Paper::of(
                "slower only by a negligible margin, on every scale factor",
                1.0,
            )
            .within(0.02),
            Bounds(Better::Less, Finding::AtMost(NEGLIGIBLE)),
            of_copy(report),
            why,
        )
    };
    let mut claims = Vec::new();
    claims.extend(found.last().map(|report| {
        hidden(
            "restore / copy, the largest size",
            report,
            "the log is read and merged while the target's disk is the bottleneck",
        )
    }));
    claims.extend(worst.map(|report| {
        hidden(
            "restore / copy, the worst size",
            report,
            "making a database and its directory takes some hundredths of a second whatever its size",
        )
    }));
    claims.push(Claim::measured(
        "log / backup, the least",
        Paper::between("about 50 % to 60 %", 0.5, 0.6),
        Bounds(Better::Neither, Finding::AtLeast(0.5)),
        logs.fold(f64::INFINITY, f64::min),
        "the runs' files, compressed; a shorter log would be easier to hide",
    ));
    claims
}

/// Returns the time of a restore, divided by that of the copy of the same round.
fn of_copy(report: &RestoringReport) -> Sample {
    let rounds = report.restore_seconds.iter().zip(&report.copy_seconds);
    Sample::of(rounds.map(|(restore, copy)| ratio(*restore, *copy)))
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::*;

    fn verdicts(restores: [f64; 2], log_of_backup: f64) -> Vec<Verdict> {
        let report = |restore: f64| RestoringReport {
            log_of_backup,
            copy_seconds: vec![2.0, 1.0, 4.0],
            restore_seconds: [2.0, 1.0, 4.0].map(|copy| copy * restore).to_vec(),
            ..RestoringReport::default()
        };
        let found = restores.map(report);
        claims(&found).iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn a_restore_as_long_as_a_copy_is_as_the_paper() {
        assert_eq!(verdicts([1.01, 1.0], 0.55), [Verdict::AsPaper; 3]);
        assert_eq!(verdicts([0.9, 0.9], 0.55)[..2], [Verdict::Stronger; 2]);
    }

    #[test]
    fn every_claim_can_come_out_otherwise() {
        assert_eq!(verdicts([1.0, 1.04], 0.55)[..2], [Verdict::Weaker; 2]);
        assert_eq!(verdicts([1.0, 1.06], 0.55)[..2], [Verdict::Fails; 2]);
        // One bad size is enough.
        assert_eq!(
            verdicts([1.06, 1.0], 0.55)[..2],
            [Verdict::AsPaper, Verdict::Fails]
        );
        assert_eq!(verdicts([1.0, 1.0], 0.4)[2], Verdict::Fails);
        assert_eq!(verdicts([1.0, 1.0], 0.9)[2], Verdict::Weaker);
    }
}
