//! `perdura dump`: the bytes of a stopped database, decoded.

mod anchor;
mod backup;
mod checkpoint;
mod log;
mod manifest;
mod page;
mod run;
mod tree_page;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Subcommand;
use perdura_device::{Access, Disk, File};

use crate::read_disk::ReadDisk;

/// Show the content of the files of a stopped database, or of an archive. Changes nothing.
#[derive(Debug, Subcommand)]
pub enum Object {
    Log(log::Args),
    Page(page::Args),
    Checkpoint(checkpoint::Args),
    Anchor(anchor::Args),
    Run(run::Args),
    Backup(backup::Args),
    Manifest(manifest::Args),
}

pub fn run(object: &Object) -> Result<()> {
    match object {
        Object::Log(args) => log::run(args),
        Object::Page(args) => page::run(args),
        Object::Checkpoint(args) => checkpoint::run(args),
        Object::Anchor(args) => anchor::run(args),
        Object::Run(args) => run::run(args),
        Object::Backup(args) => backup::run(args),
        Object::Manifest(args) => manifest::run(args),
    }
}

/// Opens a file read-only.
fn open_file(file: &Path) -> Result<Arc<dyn File>> {
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("{} does not name a file", file.display()))?;
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
    let disk = ReadDisk::open(dir.unwrap_or(Path::new(".")));
    Ok(disk.open(name, Access::Direct)?)
}
