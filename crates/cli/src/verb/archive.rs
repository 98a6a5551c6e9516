//! `perdura archive`

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use perdura_archive::report::newest_report;
use perdura_archive::retention::shown::{Range, ranges};
use perdura_archive::{BackupId, Manifest, ReportKind, Role, Store, Writer, list_archives};
use perdura_base::Uuid;
use perdura_device::{Clock, Disk, FileDisk, SystemClock};
use perdura_page::RegionDigest;
use serde::Serialize;

use super::archive_agent;
use super::parent::ShownParent;
use crate::exit::{Damaged, Usage};
use crate::output;
use crate::read_disk::ReadDisk;

mod drill;

/// Show, check or maintain an archive: the sorted log of a database, and its backups.
#[derive(Debug, Subcommand)]
pub enum Action {
    Status(Status),
    Verify(Verify),
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
/// code 3 if something is damaged.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  perdura archive verify --archive /backup/perdura")]
pub struct Verify {
    #[command(flatten)]
    which: Which,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Which {
    /// Opens the archive read-only.
    ///
    /// # Errors
    /// Fails without an archive, with several archives but no chosen database, and for a damaged manifest.
    pub fn open(&self) -> Result<Arc<Store>> {
        open(&self.archive, self.uuid.as_deref())
    }

    /// Returns the archive's directory as a disk for reading and writing.
    ///
    /// # Errors
    /// Errors of the directory.
    pub fn disk_to_write(&self) -> Result<Arc<dyn Disk>> {
        Ok(Arc::new(FileDisk::new(&self.archive)?))
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
        let (store, _) = opened.with_context(|| self.archive.display().to_string())?;
        Ok(store)
    }
}

/// Warns that a backup cannot be used. The caller then uses an older backup.
pub fn passed_over(id: BackupId, why: &perdura::Error) {
    output::warning(&format!("{} cannot be used: {why}", id.name()));
}

/// Opens the archive in a directory read-only.
pub fn open(dir: &Path, uuid: Option<&str>) -> Result<Arc<Store>> {
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
        (Some(uuid), _) => match all.iter().find(|one| one.to_string() == uuid) {
            Some(one) => *one,
            None => bail!(Usage(format!(
                "{shown} has no archive of database {uuid}, only of: {}",
                names()
            ))),
        },
    };
    Store::read_only(disk, &of).with_context(|| shown.to_string())
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
    moments: Vec<Moments>,
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
        let seconds = self.grain_us.div_ceil(1_000_000);
        match self.grain_us {
            0 => format!("moments   each of epochs {from} to {to}\n"),
            _ => format!("moments   one in about {seconds} s of epochs {from} to {to}\n"),
        }
    }
}

fn status(args: &Status) -> Result<()> {
    let store = args.which.open()?;
    let manifest = store.manifest();
    let held = held_in(&store, &manifest)?;
    if args.json {
        return output::json(&held);
    }
    let text = status_text(&held, manifest.has_all());
    output::text(&output::shown(&text))
}

/// Returns the content of an archive according to a manifest.
fn held_in(store: &Store, manifest: &Manifest) -> Result<Held> {
    let bytes = |runs: bool| -> u64 {
        let objects = manifest.objects.iter();
        let some = objects.filter(|object| object.id.run().is_some() == runs);
        some.map(|object| object.bytes).sum()
    };
    let ranges = ranges(store).unwrap_or_else(|error| {
        output::warning(&format!("the moments are not known: {error}"));
        Vec::new()
    });
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
        moments: ranges.iter().map(Moments::of).collect(),
        proof: reported(store, ReportKind::Proof)?,
        drill: reported(store, ReportKind::Drill)?,
    })
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
    text
}

/// Returns the newest report of a kind.
fn reported(store: &Store, kind: ReportKind) -> Result<Option<Reported>> {
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

fn verify(args: &Verify) -> Result<()> {
    let store = args.which.open()?;
    let verified = store.verify(&RegionDigest::new())?;
    let found = Found {
        uuid: store.uuid().to_string(),
        manifest: verified.manifest.number,
        bytes: verified.bytes,
        problems: verified
            .faults
            .iter()
            .map(|fault| fault.error.to_string())
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
            text += "whole     every run and backup is as it was written\n";
        }
        output::text(&output::shown(&text))?;
    }
    match found.problems.len() {
        0 => Ok(()),
        problems => bail!(Damaged(problems)),
    }
}
