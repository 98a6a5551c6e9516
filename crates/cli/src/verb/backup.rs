//! `perdura backup`

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use perdura::{Db, Error, Options};
use perdura_archive::Object;
use perdura_device::{Clock, SystemClock};
use perdura_restore::reachable::Reachable;
use perdura_restore::virtual_backup::VirtualBackup;
use perdura_restore::{At, RestoreProgress};
use serde::Serialize;

use super::archive::{Which, passed_over};
use crate::exit::Usage;
use crate::offline::{Directories, look};
use crate::output;
use crate::transfer::address::Address;

mod remote;

/// Make a backup of a database in an archive, or list the backups.
#[derive(Debug, Subcommand)]
pub enum Action {
    Create(Create),
    Virtual(Virtual),
    List(List),
}

/// Make a backup of a running database, or of a stopped one.
///
/// With `--server`, a running server makes the backup while its clients continue. The server must have the setting
/// `archive`. Otherwise the verb opens the stopped database, takes a checkpoint, copies its image to the archive, and
/// archives the whole log. Afterwards `perdura restore` can make the database anew from the archive alone. The first
/// backup creates the archive. A server with the setting `archive` adds to the archive, and keeps each part of the log
/// until the archive has that part.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  perdura backup create --server localhost:6379\n  \
    perdura backup create --data perdura-data --archive /backup/perdura"
)]
pub struct Create {
    /// A running server: `redis://[USER][:PASSWORD@]HOST[:PORT]`.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["data", "archive"])]
    server: Option<Address>,
    #[command(flatten)]
    directories: Option<Directories>,
    /// The archive's directory, on a disk without files of the database.
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Make a backup from an older backup and the log in the archive, without the database.
///
/// Merges the nearest backup and the runs page by page, as a restore does. Adds the state of one commit epoch to the
/// archive as a backup. Does not read the database, so the database may be running or on a different machine. Later
/// restores can begin with this backup and then need only the log after the backup. With key-addressed tables the backup is
/// of the newest increment's epoch, because only the program that declares the tables can replay the log after it.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura backup virtual --archive /backup/perdura\n  \
    perdura backup virtual --archive /backup/perdura --at 4711\n  \
    perdura backup virtual --archive /backup/perdura --at '2026-03-01 12:00:00'")]
pub struct Virtual {
    #[command(flatten)]
    which: Which,
    /// The state to back up: a commit epoch, a time, or an age before the archive's end [default: its end].
    #[arg(long, value_name = "MOMENT")]
    at: Option<At>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// List the backups of an archive.
///
/// A *sweep* is a copy of an image. The image's pages were written during a range of epochs. With the log of this
/// range, a sweep can be restored to the moment before the range and to every later moment. A *cut* is the state of one
/// epoch, and can be restored without the log.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  perdura backup list --archive /backup/perdura")]
pub struct List {
    /// A running server, which lists the backups of its archive: `redis://[USER][:PASSWORD@]HOST[:PORT]`.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["archive", "uuid"])]
    server: Option<Address>,
    #[command(flatten)]
    which: Option<Which>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub fn run(action: &Action) -> Result<()> {
    match action {
        Action::Create(args) => create(args),
        Action::Virtual(args) => make_virtual(args),
        Action::List(args) => list(args),
    }
}

#[derive(Serialize)]
struct Made {
    name: String,
    end_epoch: u64,
    checkpoint: u64,
    pages: u64,
    bytes: u64,
}

fn create(args: &Create) -> Result<()> {
    let (directories, archive) = match (&args.server, &args.directories, &args.archive) {
        (Some(server), ..) => return remote::create(server, args.json),
        (None, Some(directories), Some(archive)) => (directories, archive),
        _ => bail!(Usage(
            "for a running database give --server; for a stopped one give --data and --archive"
                .into()
        )),
    };
    let dir = directories.data.display().to_string();
    let paths = directories.paths();
    anyhow::ensure!(paths.data.is_dir(), "there is no database in {dir}");
    let found = look(&paths)?;
    let options = Options {
        streams: found.map_or(1, |anchor| anchor.streams),
        log_dirs: paths.logs,
        image_dirs: paths.images,
        archive: Some(archive.clone()),
        first_backup: false,
        ..Options::new(paths.data)
    };
    let db = Db::open(options).map_err(|error| match error {
        locked @ Error::Locked { .. } => anyhow::Error::new(locked)
            .context("the database is running. Give --server, so that its server makes the backup"),
        other => anyhow::Error::new(other).context(dir.clone()),
    })?;
    let summary = db.back_up();
    let closed = db.close();
    let summary = summary.with_context(|| archive.display().to_string())?;
    closed.with_context(|| dir)?;
    let made = Made {
        name: summary.header.id.name(),
        end_epoch: summary.header.moment().0,
        checkpoint: summary.header.id.k.0,
        pages: summary.pages,
        bytes: summary.bytes,
    };
    if args.json {
        return output::json(&made);
    }
    output::text(&format!(
        "backup    {}: checkpoint {}, up to epoch {}, {} pages in {} bytes\n",
        made.name, made.checkpoint, made.end_epoch, made.pages, made.bytes
    ))
}

#[derive(Serialize)]
struct MadeVirtual {
    name: String,
    base: String,
    end_epoch: u64,
    pages: u64,
    bytes: u64,
    bytes_read: u64,
    records_applied: u64,
    records_taken_out: u64,
    records_skipped: u64,
    seconds: f64,
}

fn make_virtual(args: &Virtual) -> Result<()> {
    let begun = Instant::now();
    let store = args.which.open_to_write()?;
    let at = || args.which.dir().display().to_string();
    let progress = Arc::new(RestoreProgress::default());
    let now_us = SystemClock::new().wall_us();
    let chosen = args
        .at
        .map(|at| at.resolve(&store, &[], now_us))
        .transpose();
    let target = chosen.with_context(at)?.map(|chosen| chosen.epoch);
    let made = VirtualBackup::begin(&store, target, progress, passed_over);
    let made = made.and_then(VirtualBackup::run).with_context(at)?;
    let told = MadeVirtual {
        name: made.backup.header.id.name(),
        base: made.base.name(),
        end_epoch: made.backup.header.id.end.0,
        pages: made.backup.pages,
        bytes: made.backup.bytes,
        bytes_read: made.bytes_read,
        records_applied: made.applied,
        records_taken_out: made.taken_out,
        records_skipped: made.skipped,
        seconds: begun.elapsed().as_secs_f64(),
    };
    if args.json {
        return output::json(&told);
    }
    output::text(&format!(
        "backup    {}: the state of epoch {}, {} pages in {} bytes, in {:.2} s\n\
         made of   {}; records: {} applied, {} taken out, {} skipped\n",
        told.name,
        told.end_epoch,
        told.pages,
        told.bytes,
        told.seconds,
        told.base,
        told.records_applied,
        told.records_taken_out,
        told.records_skipped,
    ))
}

#[derive(Serialize)]
struct Listed {
    name: String,
    kind: &'static str,
    end_epoch: u64,
    checkpoint: u64,
    bytes: u64,
    age_seconds: u64,
    /// The first epoch that a restore from this backup can reach with the existing runs. `None`: the runs lack records
    /// that the backup needs.
    from_epoch: Option<u64>,
    to_epoch: Option<u64>,
    /// The number of restorable epochs, beginning with `from_epoch`. Merging may have removed some epochs.
    moments: u64,
    /// A description of the damage. `None`: the backup is intact.
    problem: Option<String>,
}

/// Returns the line of an increment. `None`: the object is no increment.
fn listed_increment(object: &Object, reachable: &Reachable, now_us: u64) -> Option<Listed> {
    let id = object.id.increment()?;
    let found = reachable.increments.iter().find(|one| one.id == id)?;
    let header = found.header.as_ref();
    Some(Listed {
        name: object.id.name(),
        kind: object.id.kind(),
        end_epoch: id.end.0,
        checkpoint: id.k.0,
        bytes: object.bytes,
        age_seconds: header.map_or(0, |header| {
            now_us.saturating_sub(header.wall_us) / 1_000_000
        }),
        from_epoch: None,
        to_epoch: None,
        moments: 0,
        problem: header.err().map(ToString::to_string),
    })
}

fn list(args: &List) -> Result<()> {
    let which = match (&args.server, &args.which) {
        (Some(server), _) => return remote::list(server, args.json),
        (None, Some(which)) => which,
        (None, None) => bail!(Usage("give --archive or --server".into())),
    };
    let store = which.open()?;
    let reachable = Reachable::of(&store);
    let reachable = reachable.with_context(|| which.dir().display().to_string())?;
    let manifest = store.manifest();
    let now_us = SystemClock::new().wall_us();
    let mut backups = Vec::new();
    for object in &manifest.objects {
        if let Some(one) = listed_increment(object, &reachable, now_us) {
            backups.push(one);
            continue;
        }
        let Some(id) = object.id.backup() else {
            continue;
        };
        let Some(serving) = reachable.backups.iter().find(|one| one.id == id) else {
            continue;
        };
        let served = serving.served;
        backups.push(Listed {
            name: id.name(),
            kind: object.id.kind(),
            end_epoch: id.end.0,
            checkpoint: id.k.0,
            bytes: object.bytes,
            age_seconds: serving.header.as_ref().map_or(0, |header| {
                now_us.saturating_sub(header.wall_us) / 1_000_000
            }),
            from_epoch: served.map(|served| served.from.0),
            to_epoch: served.map(|served| served.to.0),
            moments: served.map_or(0, |served| served.moments),
            problem: serving.header.as_ref().err().map(ToString::to_string),
        });
    }
    if args.json {
        return output::json(&backups);
    }
    let line = |one: &Listed| {
        let what = match one.kind {
            "cut" => "a cut".to_owned(),
            "increment" => format!("increment of checkpoint {}", one.checkpoint),
            _ => format!("sweep of checkpoint {}", one.checkpoint),
        };
        let serves = match (one.from_epoch, one.to_epoch) {
            (Some(from), Some(to)) => {
                format!("serves epochs {from} to {to}, {} moments", one.moments)
            }
            _ if one.kind == "increment" => one.problem.clone().unwrap_or_else(|| {
                "shortens the replay after a restore to a later moment".to_owned()
            }),
            _ => one
                .problem
                .clone()
                .unwrap_or_else(|| "serves no epoch: runs are missing".to_owned()),
        };
        format!(
            "backup    {}: {what}, up to epoch {}, {} bytes, {} s old, {serves}\n",
            one.name, one.end_epoch, one.bytes, one.age_seconds
        )
    };
    output::text(&backups.iter().map(line).collect::<String>())
}
