//! `perdura archive`

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use perdura_archive::estimate::restore_us;
use perdura_archive::report::{newest_report, read_report, reports};
use perdura_archive::{Manifest, ObjectId, ReportKind, Role, Store, Writer, list_archives};
use perdura_base::Uuid;
use perdura_base::moment::moment;
use perdura_device::{Clock, Disk, FileDisk, SystemClock};
use perdura_page::RegionDigest;
use perdura_recovery::{TimelineName, timeline_dir};
use perdura_restore::failed_reports;
use perdura_restore::reachable::{Range, Reachable};
use serde::Serialize;

use super::archive_agent;
use super::parent::ShownParent;
use crate::exit::{Damaged, Usage};
use crate::output;
use crate::read_disk::ReadDisk;
use clocked::Clocked;
use estimates::{first_start_seconds, restore_text, seconds_of};

mod clocked;
mod drill;
mod end;
pub mod estimates;
mod timelines;

/// Show, check or maintain an archive: the sorted log of a database, and its backups.
#[derive(Debug, Subcommand)]
pub enum Action {
    Status(Status),
    Verify(Verify),
    Rebuild(Rebuild),
    End(end::End),
    Timelines(timelines::Timelines),
    Merge(archive_agent::Merge),
    Prune(archive_agent::Prune),
    Agent(archive_agent::Run),
    Drill(drill::Drill),
}

/// The archive's directory and its database.
#[derive(Debug, Clone, clap::Args)]
pub struct Which {
    /// The archive's directory.
    #[arg(long, value_name = "DIR")]
    pub archive: PathBuf,
    /// The database, if the directory has the archives of several.
    #[arg(long, value_name = "UUID")]
    pub uuid: Option<String>,
    /// The timeline, if it is not the first one. `archive timelines` lists them.
    #[arg(long, value_name = "NAME")]
    pub timeline: Option<TimelineName>,
}

/// Print the content of an archive: its epochs, runs and backups.
///
/// Also prints the archive's *moments*: the epochs to which the database can be restored. Retention can remove some
/// older moments. Reads the newest manifest, the file names and the ends of the runs. Changes nothing. The database may
/// be running.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  perdura archive status --archive /backup/perdura")]
pub struct Status {
    #[command(flatten)]
    which: Which,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Read every byte of an archive and check it.
///
/// Reads each run and backup whole. Checks the sizes and checksums that the manifest lists, the checksum of each block
/// and page, and the digests. Prints each problem with its file. Changes nothing. The database may be running. Exit
/// code 3 if something is damaged, or the last proof or drill failed.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  perdura archive verify --archive /backup/perdura")]
pub struct Verify {
    #[command(flatten)]
    which: Which,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Make a new manifest of an archive's files.
///
/// Needed only if no manifest is undamaged. Uses the newest undamaged manifest otherwise. Reads the names of all files
/// and the ends of the runs. The database must be stopped. Nothing is removed that a restore could use.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  perdura archive rebuild --archive /backup/perdura")]
pub struct Rebuild {
    #[command(flatten)]
    which: Which,
}

impl Which {
    /// Returns the directory of the timeline's archive.
    pub fn dir(&self) -> PathBuf {
        timeline_dir(&self.archive, self.timeline.as_ref())
    }

    /// Opens the archive read-only.
    ///
    /// # Errors
    /// Fails without an archive, with several archives but no chosen database, and for a damaged manifest.
    pub fn open(&self) -> Result<Arc<Store>> {
        open(&self.dir(), self.uuid.as_deref())
    }

    /// Returns the archive's directory as a disk for reading and writing.
    ///
    /// # Errors
    /// Errors of the directory.
    pub fn disk_to_write(&self) -> Result<Arc<dyn Disk>> {
        Ok(Arc::new(FileDisk::new(&self.dir())?))
    }

    /// Opens the archive for writing, in the role of an agent beside the database.
    ///
    /// # Errors
    /// Errors of [`open`](Self::open). Also fails if a second agent works on the archive, or an object is missing or
    /// damaged.
    pub fn open_to_write(&self) -> Result<Arc<Store>> {
        let store = self.open()?;
        let writer = Writer {
            role: Role::Agent,
            life: RandomState::new().hash_one(store.uuid()),
        };
        let disk = self.disk_to_write()?;
        let opened = Store::open(disk, store.uuid(), writer, None);
        let (store, _) = opened.with_context(|| self.dir().display().to_string())?;
        Ok(store)
    }
}

/// Warns that a backup cannot be used. The caller then uses an older backup.
pub fn passed_over(id: ObjectId, why: &perdura::Error) {
    output::warning(&format!("{} cannot be used: {why}", id.name()));
}

/// Opens the archive in a directory read-only.
pub fn open(dir: &Path, uuid: Option<&str>) -> Result<Arc<Store>> {
    let (disk, of) = find(dir, uuid)?;
    Store::read_only(disk, &of).with_context(|| dir.display().to_string())
}

/// Finds the archive of a database in a directory.
fn find(dir: &Path, uuid: Option<&str>) -> Result<(Arc<dyn Disk>, Uuid)> {
    let shown = dir.display();
    if !dir.is_dir() {
        bail!(Usage(format!("{shown} is not a directory")));
    }
    let disk: Arc<dyn Disk> = Arc::new(ReadDisk::open(dir));
    let all = list_archives(disk.as_ref()).with_context(|| shown.to_string())?;
    let names = || {
        let names: Vec<String> = all.iter().map(Uuid::to_string).collect();
        names.join(", ")
    };
    let of = match (uuid, &all[..]) {
        (None, []) => bail!(Usage(format!("there is no archive in {shown}"))),
        (None, [one]) => *one,
        (None, _) => bail!(Usage(format!(
            "{shown} has the archives of several databases. Choose one with --uuid: {}",
            names()
        ))),
        (Some(uuid), _) => match all.iter().find(|one| is_named(one, uuid)) {
            Some(one) => *one,
            None => bail!(Usage(format!(
                "{shown} has no archive of database {uuid}, only of: {}",
                names()
            ))),
        },
    };
    Ok((disk, of))
}

/// Returns whether `text` names a database. Hyphens may be left out.
fn is_named(uuid: &Uuid, text: &str) -> bool {
    let plain = |text: &str| text.replace('-', "").to_ascii_lowercase();
    plain(&uuid.to_string()) == plain(text)
}

#[derive(Serialize)]
struct Held {
    uuid: String,
    manifest: u64,
    /// The parent: the database that this database was restored from.
    parent: Option<ShownParent>,
    /// The first epoch that the runs cover. `to_epoch` is the last epoch.
    from_epoch: u64,
    to_epoch: u64,
    runs: usize,
    run_bytes: u64,
    /// The number of runs that follow the archive's end and that, because of a crash, no manifest names. A restore
    /// reads these runs, and the next opening of the archive adopts them.
    unnamed_runs: usize,
    backups: Vec<String>,
    backup_bytes: u64,
    /// The number of increments.
    increments: usize,
    /// The newest increment. `None`: the archive has no increment.
    newest_increment: Option<String>,
    /// The names of the timelines in the directory of the archive, if this is the first timeline.
    timelines: Vec<String>,
    moments: Vec<Moments>,
    /// The mean number of updates in a minute. `None`: the runs cover less than a minute.
    updates_per_minute: Option<u64>,
    /// The bytes of runs for each day. `None`: the runs cover less than a minute.
    bytes_per_day: Option<u64>,
    /// The expected time of a restore with one thread, by the last drill. `None`: no drill was made, or its backup is
    /// gone.
    restore_seconds: Option<f64>,
    /// The most changes of key-addressed tables that the first start after a restore to the last moment replays.
    frames_to_replay: u64,
    /// The time in which these changes were made, by the clock. `None`: it is not known.
    frames_seconds: Option<f64>,
    /// The expected time of their replay, by the last restart with a long replay. `None`: no such restart is known.
    first_start_seconds: Option<f64>,
    /// The last epoch that can be restored. `None`: nothing can be restored.
    last_moment: Option<u64>,
    /// The damage of each run that cannot be read.
    problems: Vec<String>,
    clock: Clocked,
    /// The last comparison of an image with the archive.
    proof: Option<Reported>,
    /// The last trial restore.
    drill: Option<Reported>,
}

/// A range of epochs with equally spaced moments.
#[derive(Serialize)]
struct Moments {
    from_epoch: u64,
    to_epoch: u64,
    from_us: u64,
    to_us: u64,
    /// The time from one moment to the next, microseconds. 0: every epoch is a moment.
    grain_us: u64,
}

/// The content of a report on a comparison or a trial restore.
#[derive(Serialize)]
struct Reported {
    /// `holds`, `fails`, or `begun` if nothing could be compared.
    result: &'static str,
    epoch: u64,
    checkpoint: u64,
    age_seconds: u64,
    text: String,
}

pub fn run(action: &Action) -> Result<()> {
    match action {
        Action::Status(args) => status(args),
        Action::Verify(args) => verify(args),
        Action::Rebuild(args) => rebuild(args),
        Action::End(args) => end::run(args),
        Action::Timelines(args) => timelines::run(args),
        Action::Merge(args) => archive_agent::merge(args),
        Action::Prune(args) => archive_agent::prune(args),
        Action::Agent(args) => archive_agent::run(args),
        Action::Drill(args) => drill::run(args),
    }
}

impl Moments {
    fn of(range: &Range) -> Moments {
        debug_assert!(range.first <= range.last, "a range begins before it ends");
        Moments {
            from_epoch: range.first.0,
            to_epoch: range.last.0,
            from_us: range.wall_us.0,
            to_us: range.wall_us.1,
            grain_us: range.grain_us(),
        }
    }

    fn line(&self) -> String {
        let (from, to) = (self.from_epoch, self.to_epoch);
        let times = match (self.from_us, self.to_us) {
            (0, _) => String::new(),
            (from, to) if from == to => format!(", {}", moment(from)),
            (from, to) => format!(", {} to {}", moment(from), moment(to)),
        };
        let seconds = self.grain_us.div_ceil(1_000_000);
        match self.grain_us {
            0 if from == to => format!("moments   epoch {from}{times}\n"),
            0 => format!("moments   each of epochs {from} to {to}{times}\n"),
            _ => format!("moments   one in about {seconds} s of epochs {from} to {to}{times}\n"),
        }
    }
}

fn status(args: &Status) -> Result<()> {
    let store = args.which.open()?;
    // A server may append and merge runs meanwhile. Files that an old manifest does not know are no damage then.
    let (mut held, has_all) = store.with_newest(|manifest| {
        let held = held_in(&store, manifest)?;
        Ok((held, manifest.has_all()))
    })?;
    if args.which.timeline.is_none() {
        held.timelines = timelines::names(&args.which.archive)?;
    }
    if args.json {
        return output::json(&held);
    }
    let text = status_text(&held, has_all);
    output::text(&output::shown(&text))
}

/// Returns the content of an archive according to a manifest.
fn held_in(store: &Store, manifest: &Manifest) -> perdura_base::Result<Held> {
    let bytes = |runs: bool| -> u64 {
        let objects = manifest.objects.iter();
        let some = objects.filter(|object| object.id.run().is_some() == runs);
        some.map(|object| object.bytes).sum()
    };
    let reachable = Reachable::of(store)?;
    let rates = rates(&reachable, bytes(true));
    let drill = newest_report(store.disk().as_ref(), store.uuid(), ReportKind::Drill)?;
    Ok(Held {
        uuid: store.uuid().to_string(),
        manifest: manifest.number,
        parent: manifest.parent.as_ref().map(ShownParent::of),
        from_epoch: manifest.begin.0,
        to_epoch: manifest.held().0.0,
        runs: manifest.runs().count(),
        run_bytes: bytes(true),
        unnamed_runs: store.unnamed_runs(manifest)?.len(),
        backups: manifest.backups().map(|id| id.name()).collect(),
        backup_bytes: bytes(false),
        increments: reachable.increments.len(),
        newest_increment: manifest.increments().last().map(|id| id.increment_name()),
        timelines: Vec::new(),
        moments: reachable.ranges.iter().map(Moments::of).collect(),
        updates_per_minute: rates.map(|rates| rates.0),
        bytes_per_day: rates.map(|rates| rates.1),
        restore_seconds: drill.as_ref().and_then(|drill| {
            let expected = Duration::from_micros(restore_us(manifest, drill)?);
            Some(expected.as_secs_f64())
        }),
        frames_to_replay: reachable.frames_to_replay,
        frames_seconds: seconds_of(reachable.frames_span_us),
        first_start_seconds: first_start_seconds(store, reachable.frames_to_replay)?,
        last_moment: reachable.last().map(|epoch| epoch.0),
        problems: problems(&reachable),
        clock: Clocked::of(manifest),
        proof: reported(store, ReportKind::Proof)?,
        drill: reported(store, ReportKind::Drill)?,
    })
}

/// Returns the damage of runs and increments.
fn problems(reachable: &Reachable) -> Vec<String> {
    let of_increments = reachable
        .increments
        .iter()
        .filter_map(|one| one.header.as_ref().err());
    let all = reachable.damaged.iter().chain(of_increments);
    all.map(ToString::to_string).collect()
}

/// Returns the updates in a minute and the bytes of runs in a day. `None`: the runs cover less than a minute.
fn rates(reachable: &Reachable, run_bytes: u64) -> Option<(u64, u64)> {
    const MINUTE_US: u128 = 60_000_000;
    let span = u128::from(reachable.span_us?);
    let each = |count: u64, period: u128| {
        let scaled = u128::from(count) * period / span;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    };
    let rates = || {
        let of_day = each(run_bytes, 24 * 60 * MINUTE_US);
        (each(reachable.updates, MINUTE_US), of_day)
    };
    (span >= MINUTE_US).then(rates)
}

/// Returns the content of an archive as text for people. `has_all` means that the archive has all epochs of the
/// database. Otherwise it has only the epochs after a backup.
fn status_text(held: &Held, has_all: bool) -> String {
    let has_backups = !held.backups.is_empty();
    debug_assert!(held.runs > 0 || held.run_bytes == 0, "no run has no bytes");
    debug_assert!(
        has_backups || held.backup_bytes == 0,
        "no backup has no bytes"
    );
    let mut text = format!(
        "archive   of database {}, manifest {}\nruns      {} in {} bytes, of epochs {} to {}\n",
        held.uuid, held.manifest, held.runs, held.run_bytes, held.from_epoch, held.to_epoch
    );
    if let Some(parent) = &held.parent {
        text += &format!("restored  from {}\n", parent.text());
    }
    if held.unnamed_runs > 0 {
        text += &format!(
            "          {} more that are not in the manifest yet; a restore reads them too\n",
            held.unnamed_runs
        );
    }
    for range in &held.moments {
        text += &range.line();
    }
    if held.last_moment.is_none_or(|last| last < held.to_epoch) && held.runs > 0 {
        let after = held.last_moment.map_or(0, |last| last + 1);
        text += &format!(
            "NOT THERE epochs {} to {} cannot be restored\n",
            after.max(held.from_epoch),
            held.to_epoch
        );
    }
    for problem in &held.problems {
        text += &format!("damaged   {problem}\n");
    }
    if let (Some(updates), Some(bytes)) = (held.updates_per_minute, held.bytes_per_day) {
        text += &format!("rate      {updates} updates a minute, {bytes} bytes of runs a day\n");
    }
    text += &held.clock.lines();
    for name in &held.backups {
        text += &format!("backup    {name}\n");
    }
    if held.backups.is_empty() {
        text += if has_all {
            "backup    none: a restore reads the whole log (`perdura backup virtual` makes one)\n"
        } else {
            "backup    none: nothing can be restored without one (`perdura backup create` makes \
             one)\n"
        };
    }
    if let Some(newest) = &held.newest_increment {
        text += &format!("increment {}, the newest is {newest}\n", held.increments);
    }
    for name in &held.timelines {
        text += &format!("timeline  {name}\n");
    }
    for (what, reported) in [("proof", &held.proof), ("drill", &held.drill)] {
        text += &match reported {
            Some(one) => format!(
                "{what:<10}{}: up to epoch {}, {} s ago{}{}\n",
                one.result,
                one.epoch,
                one.age_seconds,
                if one.text.is_empty() { "" } else { ": " },
                one.text
            ),
            None => format!("{what:<10}none\n"),
        };
    }
    text + &restore_text(held)
}

/// Returns the newest report of a kind.
fn reported(store: &Store, kind: ReportKind) -> perdura_base::Result<Option<Reported>> {
    let report = newest_report(store.disk().as_ref(), store.uuid(), kind)?;
    let now_us = SystemClock::new().wall_us();
    Ok(report.map(|report| Reported {
        result: report.outcome.name(),
        epoch: report.end.0,
        checkpoint: report.to.0,
        age_seconds: now_us.saturating_sub(report.wall_us) / 1_000_000,
        text: report.text,
    }))
}

#[derive(Serialize)]
struct Found {
    uuid: String,
    manifest: u64,
    bytes: u64,
    problems: Vec<String>,
}

fn rebuild(args: &Rebuild) -> Result<()> {
    let (_, uuid) = find(&args.which.dir(), args.which.uuid.as_deref())?;
    let disk = args.which.disk_to_write()?;
    let life = RandomState::new().hash_one(uuid);
    let rebuilt = Store::rebuild(disk, &uuid, life);
    let (store, opened) = rebuilt.with_context(|| args.which.dir().display().to_string())?;
    for damage in &opened.damaged {
        output::warning(damage);
    }
    let manifest = store.manifest();
    let text = format!(
        "rebuilt   manifest {}: {} runs of epochs {} to {}, {} backups\n",
        manifest.number,
        manifest.runs().count(),
        manifest.begin,
        manifest.held().0,
        manifest.backups().count()
    );
    output::text(&text)
}

/// Returns the reports that are damaged, and the newest ones that failed.
fn report_problems(store: &Store) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for id in reports(store.disk().as_ref(), store.uuid())? {
        match read_report(store.disk().as_ref(), store.uuid(), id) {
            // Another process may have removed it.
            Err(error) if error.is_not_found() => {}
            Err(error) => problems.push(error.to_string()),
            Ok(_) => {}
        }
    }
    for failed in failed_reports(store)? {
        problems.push(format!(
            "the last {} failed, up to epoch {}: {}",
            failed.kind.name(),
            failed.end,
            failed.text
        ));
    }
    Ok(problems)
}

fn verify(args: &Verify) -> Result<()> {
    let store = args.which.open()?;
    let verified = store.verify(&RegionDigest::new())?;
    let reports = report_problems(&store)?;
    let found = Found {
        uuid: store.uuid().to_string(),
        manifest: verified.manifest.number,
        bytes: verified.bytes,
        problems: verified
            .faults
            .iter()
            .map(|fault| fault.error.to_string())
            .chain(reports)
            .collect(),
    };
    if args.json {
        output::json(&found)?;
    } else {
        let mut text = format!(
            "archive   of database {}, manifest {}: {} bytes read\n",
            found.uuid, found.manifest, found.bytes
        );
        for problem in &found.problems {
            text += &format!("damaged   {problem}\n");
        }
        if found.problems.is_empty() {
            text += "whole     every run, backup and increment is as it was written\n";
        }
        output::text(&output::shown(&text))?;
    }
    match found.problems.len() {
        0 => Ok(()),
        problems => bail!(Damaged(problems)),
    }
}
