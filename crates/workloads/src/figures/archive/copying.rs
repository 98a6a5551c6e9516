//! Figure 3: compares the time of a single-pass restore with that of copying the backup alone.

use anyhow::Result;

use perdura_restore::THREADS_A_CORE;

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::stand::{ArchiveStand, Shape};
use crate::drive::ModelledDisk;
use crate::num::{f64_of, median};
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
/// The size of the log as a part of the image. The paper's log has 50 to 60 %.
const LOG: f64 = 0.6;
/// The number of bytes that an update changes.
const CHANGED_BYTES: usize = 100;

/// Makes the figure.
///
/// # Errors
/// Errors of the engine and of the restore.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let scale = &lab.scale.archive;
    let mut found: Vec<RestoringReport> = Vec::new();
    for image_mb in scale.images_mb {
        lab.say(&format!("an image of {image_mb} MB and its log"));
        let stand = ArchiveStand::new(&Shape::with_log(*image_mb, LOG, CHANGED_BYTES), lab.seed)?;
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
    let ratios: Vec<f64> = found.iter().map(|report| report.restore_of_copy).collect();
    let logs = found.iter().map(|report| report.log_of_backup);
    vec![
        Claim::measured(
            "restore / copy, the largest size",
            "a negligible margin above 1",
            Target::AtMost(1.05),
            ratios.last().copied().unwrap_or(0.0),
            "the log is read and merged while the target's disk is the bottleneck",
        ),
        Claim::reported(
            "restore / copy, the worst size",
            "a negligible margin on every scale factor",
            ratios.iter().copied().fold(0.0, f64::max),
            "making a database and its directory takes some hundredths of a second whatever its size",
        ),
        Claim::measured(
            "log / backup, the least",
            "0.5 to 0.6",
            Target::AtLeast(0.5),
            logs.fold(f64::INFINITY, f64::min),
            "the runs' files, compressed",
        ),
    ]
}
