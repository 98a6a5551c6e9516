//! The sources of a restore: an archive, and what survives of the lost database's log.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use perdura::Error;
use perdura_archive::{ObjectId, Store};
use perdura_device::{Clock, Disk, FileDisk, SystemClock};
use perdura_restore::{At, RUNS_MAX, RestorePlan, Scratch, Sources};

use super::lost_log::LostLogPlaces;
use crate::exit::Usage;
use crate::verb::repair::must_be_empty;

/// The directory of the new database, which was empty or missing before the restore.
pub struct Target<'a> {
    to: &'a Path,
    existed: bool,
}

impl Target<'_> {
    /// Returns the target directory. Fails if it is not empty, or is in the archive.
    pub fn begin<'a>(to: &'a Path, archive: &Path) -> anyhow::Result<Target<'a>> {
        must_be_empty(to)?;
        must_be_outside(to, archive)?;
        Ok(Target {
            to,
            existed: to.is_dir(),
        })
    }

    /// Removes everything that a failed restore has written to the directory.
    pub fn undo(&self) -> Result<(), Error> {
        let undone = || -> std::io::Result<()> {
            for entry in std::fs::read_dir(self.to)? {
                let entry = entry?;
                if entry.file_name() == "lost+found" {
                    continue;
                }
                match entry.file_type()?.is_dir() {
                    true => std::fs::remove_dir_all(entry.path())?,
                    false => std::fs::remove_file(entry.path())?,
                }
            }
            match self.existed {
                true => Ok(()),
                false => std::fs::remove_dir(self.to),
            }
        };
        undone().map_err(|source| Error::io("remove", self.to.display().to_string(), source))
    }
}

/// Fails if a directory is in the archive, where its files would count as the archive's.
fn must_be_outside(to: &Path, archive: &Path) -> anyhow::Result<()> {
    let archive = archive.canonicalize()?;
    // A directory that does not exist yet is where its first existing parent is.
    let mut parents = to.ancestors().map(|parent| match parent {
        empty if empty.as_os_str().is_empty() => Path::new("."),
        parent => parent,
    });
    let existing = parents.find_map(|parent| parent.canonicalize().ok());
    if existing.is_some_and(|existing| existing.starts_with(&archive)) {
        bail!(Usage(format!(
            "{} is inside the archive: give a directory outside of it",
            to.display()
        )));
    }
    Ok(())
}

/// A plan, and the time that it is for.
pub struct Planned {
    pub plan: RestorePlan,
    /// The time that was asked for, microseconds since 1970. `None`: an epoch or the last state was asked for.
    pub asked_us: Option<u64>,
    /// The highest acknowledged epoch, if the log lacks it and its loss is accepted.
    pub lost_to: Option<u64>,
}

/// Returns the plan to restore the moment `at` from an archive and a log. Does not use the backups in
/// `without`, which were found damaged. If no plan is possible, leaves the target directory unchanged.
pub fn plan(
    store: &Store,
    log: &LostLogPlaces,
    at: Option<At>,
    without: &[ObjectId],
    target: &Target<'_>,
) -> Result<Planned, Error> {
    let mut sources = Sources {
        without: without.to_vec(),
        ..Sources::archive(store)
    };
    if log.is_empty() && store.manifest().runs().count() <= RUNS_MAX {
        return choose(&sources, at);
    }
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(target.to)?);
    let _lock = disk.lock("LOCK")?;
    let mut lost_to = None;
    let mut planned = || {
        let scratch = Scratch::begin(Arc::clone(&disk))?;
        if !log.is_empty() {
            let tail = log.read(store, &disk, &scratch)?;
            sources.tail = tail.runs;
            lost_to = tail.lost_to.map(|epoch| epoch.0);
        }
        sources.scratch = Some(scratch);
        choose(&sources, at)
    };
    let planned = planned();
    if planned.is_err() {
        target.undo()?;
    }
    planned.map(|planned| Planned { lost_to, ..planned })
}

/// Returns the plan to restore the last state of an archive alone.
pub fn plan_of_archive(store: &Store) -> Result<RestorePlan, Error> {
    let sources = Sources::archive(store);
    sources.plan(None, super::passed_over)
}

fn choose(sources: &Sources<'_>, at: Option<At>) -> Result<Planned, Error> {
    let now_us = SystemClock::new().wall_us();
    let chosen = at.map(|at| at.resolve(sources.store, &sources.tail, now_us));
    let chosen = chosen.transpose()?;
    let plan = sources.plan(chosen.map(|chosen| chosen.epoch), super::passed_over)?;
    Ok(Planned {
        plan,
        asked_us: chosen.and_then(|chosen| chosen.asked_us),
        lost_to: None,
    })
}
