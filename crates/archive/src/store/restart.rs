//! The treatment of the files that the opening of an archive finds.
//!
//! A crash leaves temporary files, files not yet named by a manifest, and files no longer named. The files that the
//! newest manifest names are the archive. An undamaged run that continues the archive was published just before the
//! crash. It is adopted, so that the log need not be read again. Every other run or backup that the manifest does not
//! name is removed, because its contents are still in the log or in the inputs of the merge. If the folder is in a
//! state that no crash leaves, it is damaged, and the opening changes nothing.
//!
//! | file | treatment |
//! |---|---|
//! | temporary | removed |
//! | an object of the manifest | kept; missing or of another size: reported, and the opening continues |
//! | a run whose epochs are all in the manifest's runs | removed |
//! | a run that begins where the manifest's runs end | adopted if undamaged, otherwise removed |
//! | several runs that begin there | the longest is adopted; of equally long runs, the highest (level, generation) |
//! | a run that begins before the end of the manifest's runs and ends after it | partial overlap: damage |
//! | a run that begins after the end of the manifest's runs | gap: damage |
//! | a backup or an increment that the manifest does not name | removed, unless it has joined the archive ([`Store::lease_backups`](super::Store::lease_backups)) |
//! | any other file | kept, because it does not belong to the archive |

use std::collections::BTreeSet;

use perdura_base::Result;

use crate::backup::BackupId;
use crate::manifest::object::{BACKUPS, RUNS};
use crate::manifest::{Manifest, ObjectId, object_damage, reads_both_of_equal_ranges};
use crate::name::{RunId, TEMPORARY};

/// The kind of work that made a file. At most one process at a time does each kind of work. That process removes the
/// unfinished files of earlier processes that did the same kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Duty {
    /// Archiving the log. Makes runs of level 0.
    Archiving,
    /// Merging. Makes runs of higher levels.
    Merging,
    /// Making backups.
    BackingUp,
    /// No kind of work in particular: any process may remove the file. The file is a level-0 run whose epochs are all
    /// in the archive, and no process makes such a run any more.
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

/// The treatment of the files that an opening found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The files to remove, as paths relative to the database's folder. Each path comes with the [`Duty`] of the
    /// process that may remove the file.
    pub remove: Vec<(Duty, String)>,
    /// The runs to adopt if they are undamaged, in this order.
    pub adopt: Vec<RunId>,
    /// The objects of the manifest whose files are missing.
    pub lost: Vec<ObjectId>,
}

/// Compares the file names in the folders of runs and backups with the newest manifest. The caller must have listed the
/// folders after it read the manifest.
///
/// # Errors
/// [`Corrupt`](perdura_base::Error::Corrupt) for runs that leave a gap or partly overlap.
pub fn plan(manifest: &Manifest, dir: &str, runs: &[String], backups: &[String]) -> Result<Plan> {
    let mut plan = judge_runs(manifest, dir, runs)?;
    plan.lost = lost(manifest, runs, backups);
    let others = manifest
        .objects
        .iter()
        .filter(|object| object.id.run().is_none());
    let known: BTreeSet<String> = others.map(|object| object.id.name()).collect();
    for name in backups {
        let stem = name.strip_suffix(TEMPORARY).unwrap_or(name);
        let is_of_backups =
            BackupId::parse(stem).is_some() || BackupId::parse_increment(stem).is_some();
        if is_of_backups && !known.contains(name) {
            plan.remove
                .push((Duty::BackingUp, format!("{BACKUPS}/{name}")));
        }
    }
    Ok(plan)
}

/// Compares the file names in the folder of runs with the manifest. Does not check that the manifest's runs exist.
///
/// # Errors
/// [`Corrupt`](perdura_base::Error::Corrupt) for runs that leave a gap or partly overlap.
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
        let is_twice =
            reads_both_of_equal_ranges() && manifest.runs().any(|other| other.epochs == id.epochs);
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
            return Err(object_damage(&path, 0, expected, found));
        }
    }
    assert!(
        plan.adopt.is_empty() || end > manifest.end,
        "a run that is adopted continues the archive"
    );
    Ok(plan)
}

/// Returns the objects of the manifest whose files are missing.
fn lost(manifest: &Manifest, runs: &[String], backups: &[String]) -> Vec<ObjectId> {
    let set = |names: &[String]| -> BTreeSet<String> { names.iter().cloned().collect() };
    let (runs, backups) = (set(runs), set(backups));
    let is_lost = |id: &ObjectId| match id.run() {
        Some(run) => !runs.contains(&run.name()),
        None => !backups.contains(&id.name()),
    };
    let named = manifest.objects.iter().map(|object| object.id);
    named.filter(is_lost).collect()
}
