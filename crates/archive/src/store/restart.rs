//! The treatment of the files that an opening finds.
//!
//! A crash leaves temporary files, files that no manifest names yet, and files that no manifest names any more. The
//! manifest decides: the files that it names are the archive. A whole run that continues it was published just before
//! the crash. It is adopted, so that the log need not be read again. Every other file without a name in the manifest is
//! removed, because the log or the inputs still have its contents. Anything that no crash leaves is damage, and the
//! opening changes nothing.
//!
//! | file | judgement |
//! |---|---|
//! | temporary | goes |
//! | a run of the manifest | stays; missing or of another size: damage |
//! | a backup of the manifest | stays; missing or of another size: reported; the opening continues, another serves |
//! | a run within the epochs of the runs | contained: goes |
//! | a run that begins where the runs end | adopted if it is whole, else it goes |
//! | several that begin there | the longest, of equal ranges the one of the higher (level, generation); the others go |
//! | a run that has epochs of the runs, and some behind them | partial overlap: damage |
//! | a run that begins behind the end of the runs | hole: damage |
//! | a backup that is not named | goes |
//! | any other name | stays; it is not the archive's |

use std::collections::BTreeSet;

use perdura_base::Result;
use perdura_base::flaw::{Flaw, armed};

use crate::backup::BackupId;
use crate::manifest::object::{BACKUPS, RUNS};
use crate::manifest::{Manifest, damage};
use crate::name::{RunId, TEMPORARY};

/// The work in which a file is made. One process at a time does each, and removes the leftovers of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Duty {
    /// Runs of level 0: the log is archived.
    Archiving,
    /// Runs of higher levels.
    Merging,
    /// Backups.
    BackingUp,
    /// Runs of level 0 within the archive's epochs. No process makes such runs, and the process that finds one removes
    /// it.
    Any,
}

impl Duty {
    fn of_run(id: RunId) -> Duty {
        if id.level == 0 {
            Duty::Archiving
        } else {
            Duty::Merging
        }
    }
}

/// The actions of an opening.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The files to remove, below the folder of the database, each with the work that removes it.
    pub remove: Vec<(Duty, String)>,
    /// The runs to adopt if they are whole, in this order.
    pub adopt: Vec<RunId>,
    /// The backups that the manifest names and whose files are missing.
    pub lost: Vec<BackupId>,
}

/// Judges the names in the folders of runs and backups. They were listed after the manifest was read, which is the newest.
///
/// # Errors
/// [`Corrupt`](perdura_base::Error::Corrupt) for a run that the manifest names and that is missing, for a partial
/// overlap and for a hole.
pub fn plan(manifest: &Manifest, dir: &str, runs: &[String], backups: &[String]) -> Result<Plan> {
    check_runs(manifest, dir, runs)?;
    let mut plan = judge_runs(manifest, dir, runs)?;
    plan.lost = lost(manifest, backups);
    let known: BTreeSet<BackupId> = manifest.backups().collect();
    for name in backups {
        let stem = name.strip_suffix(TEMPORARY);
        let is_named = stem.is_none();
        let id = BackupId::parse(stem.unwrap_or(name));
        if id.is_some_and(|id| !is_named || !known.contains(&id)) {
            plan.remove
                .push((Duty::BackingUp, format!("{BACKUPS}/{name}")));
        }
    }
    Ok(plan)
}

/// Judges the names in the folder of runs. Does not check that the runs of the manifest exist.
///
/// # Errors
/// [`Corrupt`](perdura_base::Error::Corrupt) for a partial overlap and for a hole.
pub fn judge_runs(manifest: &Manifest, dir: &str, runs: &[String]) -> Result<Plan> {
    let mut plan = Plan::default();
    let named: BTreeSet<RunId> = manifest.runs().collect();
    let mut others: Vec<RunId> = Vec::new();
    for name in runs {
        if let Some(id) = name.strip_suffix(TEMPORARY).and_then(RunId::parse) {
            plan.remove
                .push((Duty::of_run(id), format!("{RUNS}/{name}")));
        } else if let Some(id) = RunId::parse(name).filter(|id| !named.contains(id)) {
            others.push(id);
        }
    }
    others.sort_by_key(|id| {
        let rank = (id.epochs.end, id.level, id.generation);
        (id.epochs.begin, std::cmp::Reverse(rank))
    });
    let mut end = manifest.end;
    debug_assert!(manifest.begin <= end, "the manifest was decoded");
    for id in others {
        let is_twice = armed(Flaw::EqualRangesBothRead)
            && manifest.runs().any(|other| other.epochs == id.epochs);
        if id.epochs.begin == end || is_twice {
            plan.adopt.push(id);
            end = end.max(id.epochs.end);
        } else if id.epochs.end <= end {
            let is_new = id.level == 0;
            let duty = if is_new { Duty::Any } else { Duty::Merging };
            plan.remove.push((duty, id.path(RUNS)));
        } else {
            let path = format!("{dir}/{}", id.path(RUNS));
            let expected = format!("no run, or a run that begins with epoch {end}");
            let found = if id.epochs.begin < end {
                "a run that contains some of the epochs before too"
            } else {
                "a gap before its first epoch"
            };
            return Err(damage(&path, 0, expected, found));
        }
    }
    assert!(
        plan.adopt.is_empty() || end > manifest.end,
        "a run that is adopted continues the archive"
    );
    Ok(plan)
}

/// Fails if the file of a run is missing.
fn check_runs(manifest: &Manifest, dir: &str, runs: &[String]) -> Result<()> {
    let runs: BTreeSet<&str> = runs.iter().map(String::as_str).collect();
    for id in manifest.runs() {
        if !runs.contains(id.name().as_str()) {
            let path = format!("{dir}/{}", id.path(RUNS));
            let expected = format!("a run, as manifest {} says", manifest.number);
            return Err(damage(&path, 0, expected, "no file"));
        }
    }
    Ok(())
}

/// Returns the backups whose files are missing.
fn lost(manifest: &Manifest, backups: &[String]) -> Vec<BackupId> {
    let backups: BTreeSet<&str> = backups.iter().map(String::as_str).collect();
    let is_lost = |id: &BackupId| !backups.contains(id.name().as_str());
    manifest.backups().filter(is_lost).collect()
}
