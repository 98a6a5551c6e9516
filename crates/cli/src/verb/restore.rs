//! `perdura restore`

mod dry_run;
pub mod lost_log;
pub mod sources;
mod told;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use perdura_archive::Store;
use perdura_base::moment::moment;
use perdura_device::{Clock, Disk, FileDisk, SystemClock};
use perdura_recovery::{Anchor, Disks, TimelineName, timeline_dir};
use perdura_restore::{
    At, Deadlines, ReplayReport, RestoreMeans, RestorePlan, RestoreProgress, Trial, failed_reports,
    restore, restore_in_log_order,
};

use super::archive::estimates::first_start_seconds;
use super::archive::{open, passed_over};
use super::repair::new_uuid;
use crate::exit::Damaged;
use crate::offline::restore_threads;
use crate::output;
use lost_log::{LostLogArgs, LostLogPlaces};
use sources::Target;

/// Make a database from an archive, with the state at the archive's last moment or at an earlier moment.
///
/// Merges a backup and the runs in page order, and writes a new database for `serve`. The archive is only read. If a
/// backup is damaged, an older backup is used. The new database has a new identity, so the old and the new log cannot
/// be mixed up.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura restore --from /backup/perdura --to perdura-data\n  \
    perdura restore --from /backup/perdura --to perdura-data --log-dir /log/perdura\n  \
    perdura restore --from /backup/perdura --to as-of-4711 --at 4711\n  \
    perdura restore --from /backup/perdura --to earlier --at 10min\n  \
    perdura serve --data perdura-data")]
pub struct Args {
    /// The archive's directory.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The database to restore. Needed if the directory has the archives of several databases.
    #[arg(long, value_name = "UUID")]
    uuid: Option<String>,
    /// The timeline, if it is not the first one. `perdura archive timelines` lists them.
    #[arg(long, value_name = "NAME")]
    timeline: Option<TimelineName>,
    /// The directory of the new database, with its log. It must be empty or missing.
    #[arg(long, value_name = "NEW")]
    to: PathBuf,
    #[command(flatten)]
    log: LostLogArgs,
    /// The moment to restore [default: the archive's last moment]. A moment is a commit epoch (4711) or a time
    /// ("2026-03-01 12:00:00"). A time is in UTC unless an offset such as +02:00 follows. A moment may also be an age
    /// (10min, 1h30m), or the time before the archive's end (end-10min).
    #[arg(long, value_name = "MOMENT")]
    at: Option<At>,
    /// The treatment of keys with deadlines: keep the deadlines, shift them by the age of the moment, or drop them. The
    /// server removes keys whose deadlines have passed.
    #[arg(long, value_enum, default_value_t = OfDeadlines::Keep)]
    deadlines: OfDeadlines,
    /// Restore although the last proof or drill of the archive failed.
    #[arg(long)]
    unproven: bool,
    /// Print what would be restored, and how long it takes. Merges some partitions for a trial, and writes nothing. With
    /// --log-dir, the log is sorted in the new directory first and removed again.
    #[arg(long)]
    dry_run: bool,
    /// The restore method.
    #[arg(long, value_enum, default_value_t = Method::SinglePass)]
    method: Method,
    /// Pages of 16 KiB that `--method replay` keeps in memory.
    #[arg(long, value_name = "N", required_if_eq("method", "replay"))]
    buffer_pages: Option<usize>,
    /// Number of threads that restore [default: four for each core].
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The treatment of the keys' deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OfDeadlines {
    /// Keys keep their deadlines.
    Keep,
    /// Keys get the time to live that they had at the moment.
    Shift,
    /// Keys lose their deadlines.
    Drop,
}

impl Args {
    fn deadlines(&self) -> Deadlines {
        match self.deadlines {
            OfDeadlines::Keep => Deadlines::Keep,
            OfDeadlines::Shift => Deadlines::Shift,
            OfDeadlines::Drop => Deadlines::Drop,
        }
    }
}

/// The restore methods. The result does not depend on the method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Method {
    /// The backup and the runs are merged page by page, and each page is written once.
    SinglePass,
    /// The backup is copied, and then the records are applied in log order. This traditional method is here for
    /// comparison.
    Replay,
}

/// The result of a plan.
enum Outcome {
    /// Nothing was written.
    Tried(Trial),
    Restored(ReplayReport),
}

pub fn run(args: &Args) -> Result<()> {
    let begun = Instant::now();
    let dir = timeline_dir(&args.from, args.timeline.as_ref());
    let from = || dir.display().to_string();
    let store = open(&dir, args.uuid.as_deref())?;
    let mut log = args.log.places()?;
    check_mirrored(args, &log, &store)?;
    let target = Target::begin(&args.to, &args.from)?;
    let held = store.manifest().held().0;
    if matches!(args.at, Some(At::Epoch(epoch)) if epoch <= held) {
        // The archive has the moment.
        log = LostLogPlaces::default();
    }
    if log.has_nodes() {
        // Whatever else refuses the restore must do so while the writer still runs.
        // The plan may need the log, so an error of this one means nothing.
        if let Ok(plan) = sources::plan_of_archive(&store)
            && args.at.is_none()
        {
            check_reports(args, &store, &plan)?;
        }
        log.fence(&store).with_context(from)?;
        store.refresh().with_context(from)?;
    }
    let mut damaged = Vec::new();
    loop {
        let planned = sources::plan(&store, &log, args.at, &damaged, &target);
        let planned = planned.with_context(from)?;
        let plan = &planned.plan;
        check_reports(args, &store, plan)?;
        let made = match args.dry_run {
            true => dry_run::try_out(args, plan).map(Outcome::Tried),
            false => make(args, plan, begun).map(Outcome::Restored),
        };
        if args.dry_run && plan.has_scratch() {
            // The lock keeps the files of another restore, which began in the meantime.
            let disk = FileDisk::new(&args.to)?;
            let _lock = disk.lock("LOCK")?;
            target.undo()?;
        }
        match made {
            Ok(Outcome::Tried(trial)) => {
                let seconds = first_start_seconds(&store, plan.frames_at_most());
                return dry_run::tell(args, &planned, &trial, seconds.with_context(from)?);
            }
            Ok(Outcome::Restored(report)) => {
                return told::tell(args, &planned, &report, begun.elapsed());
            }
            Err(error) => {
                // A backup or an increment is damaged. The restore begins again without it.
                let Some(id) = plan
                    .damaged_object(&error)
                    .filter(|id| !damaged.contains(id))
                else {
                    return Err(error).with_context(from);
                };
                passed_over(id, &error);
                damaged.push(id);
                if !args.dry_run {
                    target.undo()?;
                }
            }
        }
    }
}

/// Fails if acknowledged writes may be only in the memory of nodes, unless the caller accepts their loss or names a
/// moment.
fn check_mirrored(args: &Args, log: &LostLogPlaces, store: &Store) -> Result<()> {
    let anchor = store.manifest().anchor()?.map(Anchor::of).transpose()?;
    let is_mirrored = anchor.is_some_and(|anchor| anchor.mirrored.is_some());
    let is_told = args.at.is_some() || args.log.accepts_loss() || log.has_nodes();
    if !is_mirrored || is_told {
        return Ok(());
    }
    output::warning(
        "nodes mirror the log of this database, so they may have acknowledged writes that are neither in the archive nor \
         in a log directory. If the data directory exists, start its server with --log-nodes. Otherwise give the \
         server's --log-nodes and --log-view here too, a moment with --at, or --accept-loss",
    );
    bail!(Damaged(1))
}

/// Fails if a failed proof or drill is about what the plan reads, unless the caller accepts that.
fn check_reports(args: &Args, store: &Store, plan: &RestorePlan) -> Result<()> {
    let mut failed = failed_reports(store)?;
    failed.retain(|report| plan.is_covered_by(report));
    for report in &failed {
        output::warning(&format!(
            "the {} of {} failed, up to epoch {}: {}",
            report.kind.name(),
            moment(report.wall_us),
            report.end,
            report.text
        ));
    }
    if failed.is_empty() || args.unproven {
        return Ok(());
    }
    output::warning(
        "nothing was restored. Restore an earlier moment or from another copy of the archive, or give --unproven",
    );
    bail!(Damaged(failed.len()))
}

/// Restores to the target directory as the plan says.
fn make(args: &Args, plan: &RestorePlan, begun: Instant) -> Result<ReplayReport, perdura::Error> {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(&args.to)?);
    let _lock = disk.lock("LOCK")?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let (progress, is_done) = (RestoreProgress::default(), AtomicBool::new(false));
    let means = RestoreMeans {
        disks: Disks::on_one(disk, plan.streams()),
        uuid: new_uuid(clock.as_ref()),
        threads: restore_threads(args.threads),
        clock: &clock,
        progress: &progress,
        deadlines: args.deadlines(),
    };
    std::thread::scope(|scope| {
        if output::has_terminal() && !args.json {
            scope.spawn(|| show(&progress, &is_done, begun));
        }
        let report = match args.buffer_pages {
            Some(pages) if args.method == Method::Replay => {
                restore_in_log_order(plan, &means, pages)
            }
            _ => restore(plan, &means).map(|restored| ReplayReport {
                restored,
                ..ReplayReport::default()
            }),
        };
        is_done.store(true, Ordering::SeqCst);
        report
    })
}

/// Shows the progress on a terminal.
fn show(progress: &RestoreProgress, is_done: &AtomicBool, begun: Instant) {
    while !is_done.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(200));
        let text = progress_text(progress, begun.elapsed());
        if !text.is_empty() {
            output::progress(&format!("{text}    "));
        }
    }
    output::progress("                                                            \r");
}

/// Returns the progress line of a restore. It is empty until the first page is restored.
fn progress_text(progress: &RestoreProgress, took: Duration) -> String {
    let pages = progress.pages();
    match progress.expected() {
        _ if pages == 0 => String::new(),
        None => format!("{pages} pages"),
        Some(expected) => {
            let left = took.as_millis() * u128::from(expected.saturating_sub(pages));
            let seconds = (left / u128::from(pages)).div_ceil(1000);
            format!("{pages} of about {expected} pages, {seconds} s left")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perdura_restore::RestoreProgress;

    #[test]
    fn the_line_says_nothing_of_an_end_that_is_not_known() {
        assert_eq!(
            progress_text(&RestoreProgress::default(), Duration::from_secs(1)),
            ""
        );
    }
}
