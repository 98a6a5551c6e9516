//! A manifest for an archive that has no undamaged one, from the names and the ends of its files.

use std::sync::Arc;

use perdura_base::{Error, Result, Uuid};
use perdura_device::Disk;

use super::chain::{self, Newest};
use super::mend::{Files, Lost, tiling};
use super::open::{Opening, folder, lock};
use super::{Opened, Store};
use crate::backup::{Backup, BackupKind};
use crate::manifest::object::{BACKUPS, RUNS};
use crate::manifest::{Clock, FIRST, Manifest, Role, Writer, damage};
use crate::merge::Images;
use crate::name::RunId;
use crate::reader::Run;

impl Store {
    /// Publishes the manifest that the files of the archive show, in the role of the database. An undamaged manifest
    /// is the base, if there is one. Otherwise parent and anchor of the database are unknown until the database opens the
    /// archive.
    ///
    /// # Errors
    /// [`Error::Locked`] while the database has the archive open; [`Error::Usage`] for an archive without a run.
    /// [`Error::Corrupt`] if the name of a run shows a higher epoch than the files lead to. Errors of the disk.
    pub fn rebuild(disk: Arc<dyn Disk>, uuid: &Uuid, life: u64) -> Result<(Arc<Store>, Opened)> {
        let dir = folder(uuid);
        let lock = lock(disk.as_ref(), &dir, Role::Database.name())?;
        let writer = Writer {
            role: Role::Database,
            life,
        };
        let newest = match chain::newest(disk.as_ref(), &dir, uuid) {
            Ok(Some(newest)) => newest,
            Ok(None) | Err(Error::Corrupt(_) | Error::Foreign { .. }) => {
                of_files(disk.as_ref(), uuid, writer)?
            }
            Err(error) => return Err(error),
        };
        let opening = Opening {
            writer,
            lock,
            lost: Lost::Goes,
        };
        Store::open_by(disk, newest, opening, None)
    }
}

/// Returns a manifest without objects. Mending adds the files of the archive to it.
fn of_files(disk: &dyn Disk, uuid: &Uuid, writer: Writer) -> Result<Newest> {
    let dir = folder(uuid);
    let numbers = chain::numbers(disk, &dir)?;
    let files = Files::list(disk, &dir)?;
    let Some((first, last)) = longest(&files) else {
        return Err(Error::Usage(format!(
            "{dir} on {} has no run, so no manifest can be made of it. Begin a new archive in another directory",
            disk.name()
        )));
    };
    let number = numbers.last().copied().unwrap_or(FIRST);
    assert!(
        first.epochs.begin <= last.epochs.begin,
        "runs are in the order of their epochs"
    );
    let begin = first.epochs.begin;
    let manifest = Manifest {
        number,
        uuid: *uuid,
        writer,
        oldest: number,
        predecessor: 0,
        parent: None,
        is_whole: false,
        begin,
        end: begin,
        positions: Run::open(disk, &format!("{dir}/{RUNS}"), last, uuid)?
            .ends()
            .to_vec(),
        images: images_of_backups(disk, uuid, &files)?,
        objects: Vec::new(),
        anchor: Vec::new(),
        clock: Clock::default(),
    };
    let path = format!("{dir}/{}", chain::name(number));
    Ok(Newest {
        manifest,
        crc: 0,
        damaged: vec![damage(&path, 0, "an undamaged manifest", "none")],
        numbers,
    })
}

/// Returns the first and the last run of the longest sequence of runs up to the highest epoch. `None`: there is no run.
fn longest(files: &Files) -> Option<(RunId, RunId)> {
    let runs = files.runs();
    let highest = runs.iter().map(|run| run.epochs.end).max()?;
    let of = |first: &RunId| {
        let last = tiling(&runs, &runs, first.epochs.begin).pop()?;
        (last.epochs.end == highest).then_some((*first, last))
    };
    let found = runs.iter().find_map(of);
    assert!(found.is_some(), "the highest run leads to its own end");
    found
}

/// Returns the images of which the backups are copies. Records on different sides of such an image are not combined.
fn images_of_backups(disk: &dyn Disk, uuid: &Uuid, files: &Files) -> Result<Images> {
    let dir = format!("{}/{BACKUPS}", folder(uuid));
    let mut images = Images::default();
    for id in files.backups() {
        match Backup::open(disk, &dir, id, uuid) {
            Ok(backup) if backup.header().kind == BackupKind::Sweep => images.retained.push(id.k),
            Ok(_) | Err(Error::Corrupt(_) | Error::Foreign { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    images.retained.sort_unstable();
    images.retained.dedup();
    assert!(images.building.is_none(), "a backup is of a complete image");
    Ok(images)
}
