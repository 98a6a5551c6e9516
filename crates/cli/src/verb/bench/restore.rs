//! `perdura bench restore`

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Parser;
use perdura_base::Epoch;
use perdura_workloads::drive::ModelledDisk;
use perdura_workloads::restoring::Restoring;
use perdura_workloads::restoring::bench::{RestoringReport, rounds};

use crate::exit::Usage;
use crate::offline::restore_threads;
use crate::output;
use crate::verb::archive::open;

/// Compare repeated restores of an archive with plain copies of its backup, on modelled disks.
///
/// The speed of the archive's disk and of the new database's disk is modelled, so the directories should be in memory.
/// For comparison, the verb copies the backup's file with an equal number of threads and a sync at the end. All results
/// are removed. The report has the medians of the rounds.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  \
    perdura bench update --data d --archive /dev/shm/a --backup --txns 3000000\n  \
    perdura bench restore --from /dev/shm/a")]
pub struct RestoreArgs {
    /// The archive's directory.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The database, if the directory has the archives of several.
    #[arg(long, value_name = "UUID")]
    uuid: Option<String>,
    /// A directory for the results.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    work: PathBuf,
    /// The commit epoch to restore [default: the archive's last epoch].
    #[arg(long, value_name = "EPOCH")]
    at: Option<u64>,
    /// Speed of the archive's disk in 10^6 bytes a second. 0 is no limit.
    #[arg(long, value_name = "M", default_value_t = 1200)]
    source_mbps: u64,
    /// Speed of the new database's disk in 10^6 bytes a second. 0 is no limit.
    #[arg(long, value_name = "M", default_value_t = 400)]
    target_mbps: u64,
    /// Number of threads for each copy and for each restore [default: four for each core].
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Number of rounds.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &RestoreArgs) -> Result<()> {
    if args.rounds == 0 {
        bail!(Usage("--rounds is at least 1".into()));
    }
    let store = open(&args.from, args.uuid.as_deref())?;
    let disk = |mbps| ModelledDisk {
        mbps,
        latency_us: 0,
    };
    let restoring = Restoring {
        from: args.from.clone(),
        uuid: *store.uuid(),
        at: args.at.map(Epoch),
        work: args.work.clone(),
        source: disk(args.source_mbps),
        target: disk(args.target_mbps),
        threads: restore_threads(args.threads),
    };
    let report = rounds(&restoring, args.rounds)?;
    if args.json {
        return output::json(&report);
    }
    output::text(&text(&report))
}

fn text(report: &RestoringReport) -> String {
    let (copies, restores) = (report.copy_seconds.len(), report.restore_seconds.len());
    debug_assert_eq!(copies, restores, "copy and restore take turns");
    let list = |seconds: &[f64]| {
        let each: Vec<String> = seconds.iter().map(|s| format!("{s:.3}")).collect();
        each.join(" ")
    };
    format!(
        "archive   backup {} bytes, {} runs of {} bytes: {:.2} of it; {} records applied to {} pages\n\
         disks     source {} MB/s, target {} MB/s; {} threads\n\
         copy      {} s\n\
         restore   {} s, {} s of CPU; {:.0} MB/s of image\n\
         log alone {} s\n\
         restore / copy {:.3}, restore / larger input {:.3}\n",
        report.backup_bytes,
        report.runs,
        report.log_bytes,
        report.log_of_backup,
        report.records_applied,
        report.pages,
        report.source_mbps,
        report.target_mbps,
        report.threads,
        list(&report.copy_seconds),
        list(&report.restore_seconds),
        report
            .restore_cpu_seconds
            .map_or("-".into(), |seconds| format!("{seconds:.2}")),
        report.image_mb_per_s,
        list(&report.log_read_seconds),
        report.restore_of_copy,
        report.restore_of_larger,
    )
}
