//! `perdura backup`

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use perdura::{Db, Options};
use serde::Serialize;

use super::archive::Which;
use crate::offline::Directories;
use crate::output;

/// Copy a database's image to an archive, and list the copies.
#[derive(Debug, Subcommand)]
pub enum Action {
    Create(Create),
    List(List),
}

/// Make a backup of a stopped database, and archive its log.
///
/// Opens the database, takes a checkpoint, copies its image to the archive, and archives the log up to its end: from then on
/// `perdura restore` makes the database anew of the archive alone. The first backup makes the archive; a server with the
/// setting `archive` goes on with it, and the log is kept until the archive has it.
#[derive(Debug, Parser)]
#[command(
    after_help = "Example:\n  perdura backup create --data perdura-data --archive /backup/perdura"
)]
pub struct Create {
    #[command(flatten)]
    directories: Directories,
    /// The archive's directory, on another disk than the database.
    #[arg(long, value_name = "DIR")]
    archive: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// List the backups of an archive.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  perdura backup list --archive /backup/perdura")]
pub struct List {
    #[command(flatten)]
    which: Which,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub fn run(action: &Action) -> Result<()> {
    match action {
        Action::Create(args) => create(args),
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
    let dir = args.directories.data.display().to_string();
    let paths = args.directories.paths();
    anyhow::ensure!(paths.data.is_dir(), "there is no database in {dir}");
    let options = Options {
        log_dirs: paths.logs,
        image_dirs: paths.images,
        archive: Some(args.archive.clone()),
        ..Options::new(paths.data)
    };
    let db = Db::open(options).with_context(|| dir.clone())?;
    let summary = db.back_up();
    let closed = db.close();
    let summary = summary.with_context(|| args.archive.display().to_string())?;
    closed.with_context(|| dir)?;
    let made = Made {
        name: summary.header.id.name(),
        end_epoch: summary.header.id.end.0,
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
struct Listed {
    name: String,
    end_epoch: u64,
    checkpoint: u64,
    bytes: u64,
}

fn list(args: &List) -> Result<()> {
    let store = args.which.open()?;
    let manifest = store.manifest();
    let objects = manifest.objects.iter();
    let backups = objects.filter_map(|object| {
        let id = object.id.backup()?;
        Some(Listed {
            name: id.name(),
            end_epoch: id.end.0,
            checkpoint: id.k.0,
            bytes: object.bytes,
        })
    });
    let backups: Vec<Listed> = backups.collect();
    if args.json {
        return output::json(&backups);
    }
    let line = |one: &Listed| {
        format!(
            "backup    {}: checkpoint {}, up to epoch {}, {} bytes\n",
            one.name, one.checkpoint, one.end_epoch, one.bytes
        )
    };
    output::text(&backups.iter().map(line).collect::<String>())
}
