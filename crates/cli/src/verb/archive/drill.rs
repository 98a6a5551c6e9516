//! `perdura archive drill`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use perdura::counts::ByTable;
use perdura_archive::{Outcome, Replay, Report, ReportKind, Reporting, Store};
use perdura_base::error::Family;
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::{to_u32, to_u64};
use perdura_base::{CkptEpoch, Epoch, Error};
use perdura_device::{Clock, Disk, FileDisk, SystemClock};
use perdura_recovery::Disks;
use perdura_restore::drill::{Judgement, judge};
use perdura_restore::{
    At, Deadlines, RestoreMeans, RestorePlan, RestoreProgress, RestoreReport, restore,
};
use serde::Serialize;

use super::Which;
use crate::exit::Damaged;
use crate::in_memory::Pool;
use crate::offline::{Directories, Offline};
use crate::output;
use crate::verb::repair::new_uuid;
use crate::verb::restore::lost_log::LostLogPlaces;
use crate::verb::restore::sources::{self, Target};

/// Restore an archive for trial, and report whether the result is right.
///
/// Restores the database to a temporary directory, with one thread at the lowest priority. Compares the restored
/// digests with the last proven image and the later log records. Then restarts the restored database in memory, and
/// counts the keys of each database and the rows of each table. Leaves a report in the archive. `archive status` and
/// `INFO archive` show the report. The database may be running. Exit code 3 if the restore fails or the digests differ.
#[derive(Debug, Parser)]
#[command(
    after_help = "Example:\n  perdura archive drill --archive /backup/perdura --to /scratch/drill"
)]
pub struct Drill {
    #[command(flatten)]
    which: Which,
    /// The directory to restore to, with room for the whole database. It must be empty or missing, and is removed
    /// afterwards [default: a new directory in the system's directory for temporary files].
    #[arg(long, value_name = "TMP")]
    to: Option<PathBuf>,
    /// The commit epoch to restore [default: the archive's last epoch].
    #[arg(long, value_name = "EPOCH")]
    at: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Told {
    result: &'static str,
    epoch: u64,
    backup: String,
    pages: u64,
    seconds: f64,
    compared: String,
    fails: Option<String>,
    /// The keys of each database and the rows of each table. `None`: the restored database was not restarted.
    counted: Option<ByTable>,
    /// The reason why nothing was counted.
    not_counted: Option<String>,
}

/// A temporary directory. It is removed with the whole content when this value is dropped.
struct Scratch<'a>(&'a Path);

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(self.0));
    }
}

pub fn run(args: &Drill) -> Result<()> {
    // A drill should only use idle processor time. If the system refuses the low priority, the drill runs with normal
    // priority.
    let _or_as_anything_else = rustix::process::nice(19);
    let from = || args.which.dir().display().to_string();
    let store = args.which.open()?;
    let name = format!("perdura-drill-{}", std::process::id());
    let to = args.to.clone();
    let to = to.unwrap_or_else(|| std::env::temp_dir().join(name));
    // The directory is empty or missing. Otherwise the drill ends here, and removes nothing.
    let target = Target::begin(&to, &args.which.dir())?;
    let _scratch = Scratch(&to);
    let begun = Instant::now();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let at = args.at.map(|epoch| At::Epoch(Epoch(epoch)));
    // Too many runs are first merged in the target directory.
    let planned = sources::plan(&store, &LostLogPlaces::default(), at, &[], &target);
    let plan = planned.with_context(from)?.plan;
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(&to)?);
    let judged = restore_and_judge(&store, &plan, disk, &clock);
    let took = begun.elapsed();
    let counted = judged.as_ref().ok().map(|(made, _)| count(&to, made));
    let mut report = report_of(&store, &plan, clock.wall_us(), took);
    let mut told = Told {
        result: Outcome::Fails.name(),
        epoch: report.end.0,
        backup: plan.backup().name(),
        pages: 0,
        seconds: took.as_secs_f64(),
        compared: "nothing".into(),
        fails: None,
        counted: None,
        not_counted: None,
    };
    note(judged, &mut report, &mut told).with_context(|| to.display().to_string())?;
    if let Some(counted) = counted {
        note_counts(counted, &mut report, &mut told);
    }
    let archive = args.which.disk_to_write()?;
    let written = Reporting::new(archive, report).run();
    tell(args, &told)?;
    written.with_context(from)?;
    match told.fails {
        Some(_) => bail!(Damaged(1)),
        None => Ok(()),
    }
}

/// Executes a restore plan on a disk, and compares the result with the archive.
fn restore_and_judge(
    store: &Store,
    plan: &RestorePlan,
    disk: Arc<dyn Disk>,
    clock: &Arc<dyn Clock>,
) -> Result<(RestoreReport, Judgement), Error> {
    let means = RestoreMeans {
        disks: Disks::on_one(disk, plan.streams()),
        uuid: new_uuid(clock.as_ref()),
        threads: 1,
        clock,
        progress: &RestoreProgress::default(),
        deadlines: Deadlines::Keep,
    };
    let report = restore(plan, &means)?;
    let judged = judge(store, plan, &report, &means.disks)?;
    Ok((report, judged))
}

/// The keys and rows of the restored database, or the reason why nothing was counted.
enum Counted {
    All(ByTable),
    /// The restored database does not start.
    Refused(String),
    Skipped(String),
}

/// Restarts the restored database in memory, and counts its keys and rows.
fn count(to: &Path, made: &RestoreReport) -> Counted {
    // Pages in memory are indexed, and the index may be as large as half of them. The other half of the free memory is
    // for the server.
    let needed = made.pages * to_u64(PAGE_BYTES) / 2 * 3;
    if let Some(free) = available_memory().filter(|free| *free / 2 < needed) {
        return Counted::Skipped(format!(
            "the database needs about {needed} bytes of memory, and {free} are free"
        ));
    }
    let directories = Directories {
        data: to.to_owned(),
        log_dir: Vec::new(),
        image_dir: Vec::new(),
    };
    let offline = Offline::open(&directories);
    match offline.and_then(|offline| offline.counts(&Pool::default())) {
        Ok(counts) => Counted::All(counts),
        Err(error) => {
            let why = format!("{error:#}");
            let error = error.downcast_ref::<Error>();
            // A full disk, for example, says nothing about the archive.
            match error.is_some_and(|error| error.family() == Family::Corruption) {
                true => Counted::Refused(why),
                false => Counted::Skipped(why),
            }
        }
    }
}

/// Writes the counts into the report and into the output. A database that does not start makes the drill fail.
fn note_counts(counted: Counted, report: &mut Report, told: &mut Told) {
    match counted {
        Counted::All(counts) => {
            report.text += &format!("; {}", text_of(&counts));
            told.counted = Some(counts);
        }
        Counted::Skipped(why) => told.not_counted = Some(why),
        Counted::Refused(why) => {
            report.outcome = Outcome::Fails;
            let why = format!("the restored database does not start: {why}");
            report.text = match &told.fails {
                Some(digests) => format!("{digests}; {why}"),
                None => why,
            };
            told.fails = Some(report.text.clone());
            told.result = report.outcome.name();
        }
    }
}

/// Returns the counts in words.
fn text_of(counts: &ByTable) -> String {
    let tables = counts
        .iter()
        .map(|(table, counts)| format!("{table}: {}", counts.text()));
    match counts.is_empty() {
        true => "no keys".into(),
        false => tables.collect::<Vec<_>>().join("; "),
    }
}

/// Returns the memory that a new process could use without swapping, bytes. `None`: the system does not say.
fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Returns the report of a drill that has no result yet.
fn report_of(store: &Store, plan: &RestorePlan, wall_us: u64, took: Duration) -> Report {
    let backup = plan.backup();
    Report {
        kind: ReportKind::Drill,
        outcome: Outcome::Fails,
        uuid: *store.uuid(),
        wall_us,
        from: backup.k,
        to: CkptEpoch(0),
        begin: backup.end,
        end: plan.target(),
        manifest: store.manifest().number,
        runs: 0,
        took_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        replay: Replay::default(),
        digests: Vec::new(),
        text: String::new(),
    }
}

/// Writes the result of a drill into its report and into the output.
///
/// Returns an error if a disk has failed, because then the drill says nothing about the archive.
fn note(
    judged: Result<(RestoreReport, Judgement), Error>,
    report: &mut Report,
    told: &mut Told,
) -> Result<(), Error> {
    match judged {
        Ok((made, judged)) => {
            report.runs = to_u32(usize::try_from(judged.runs).unwrap_or(usize::MAX));
            report.manifest = judged.manifest;
            report.text = judged.fails.clone().unwrap_or(judged.compared.clone());
            if judged.fails.is_none() {
                report.outcome = Outcome::Holds;
            }
            told.pages = made.pages;
            told.compared = judged.compared;
            told.fails = judged.fails;
        }
        // A full disk, for example, says nothing about the archive.
        Err(error @ Error::Io { .. }) if !error.is_not_found() => return Err(error),
        Err(error) => {
            report.text = error.to_string();
            told.fails = Some(report.text.clone());
        }
    }
    told.result = report.outcome.name();
    Ok(())
}

fn tell(args: &Drill, told: &Told) -> Result<()> {
    if args.json {
        return output::json(told);
    }
    let what = match &told.fails {
        None => format!("holds     {}\n", told.compared),
        Some(fails) => format!("fails     {fails}\n"),
    };
    let counted = match (&told.counted, &told.not_counted) {
        (Some(counts), _) => format!("counted   {}\n", text_of(counts)),
        (None, Some(why)) => format!("counted   nothing: {why}\n"),
        (None, None) => String::new(),
    };
    output::text(&output::shown(&format!(
        "drill     epoch {} from {}: {} pages in {:.2} s\n{what}{counted}",
        told.epoch, told.backup, told.pages, told.seconds
    )))
}
