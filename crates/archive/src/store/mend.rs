//! The contents of an archive whose newest manifest is damaged or missing.
//!
//! The files show what an older manifest cannot know. Runs that follow its runs belong to the archive. A merged run
//! replaces the runs that were merged into it. A file that does not open decides nothing.
//!
//! ```text
//!  manifest:  [1..5) [5..9)          [1..5) was merged with [5..9), and [9..12) was added
//!  files:     [1..9)        [9..12)
//!  mended:    [1..9)        [9..12)
//! ```
//!
//! # Invariants
//! * The mended runs reach the highest epoch of any run's name. Otherwise mending fails: a restore would return an older
//!   state in silence.
//! * A missing run that no other run replaces stays in the manifest. A restore that needs it names it. Missing runs at
//!   the start go only if a newer manifest is damaged, which may have left them out, or in a rebuild.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use perdura_base::{Epoch, Error, Result};
use perdura_device::Disk;
use perdura_page::RegionDigest;

use super::chain::Newest;
use super::verify::file_crc;
use super::{Store, restart};
use crate::backup::{Backup, BackupHeader, BackupId, BackupKind};
use crate::manifest::object::{BACKUPS, RUNS};
use crate::manifest::{Manifest, Object, ObjectId, object_damage};
use crate::name::RunId;

/// The cost of a missing run, in runs that exist. It is more than all runs of an archive.
const MISSING: u64 = 1 << 32;

/// The treatment of the first runs if they are missing, although no damaged manifest may have left them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// The manifest keeps their names. The files may come back, and a file that no manifest names is removed.
    Stays,
    /// The archive begins after them, because an operator says so.
    Goes,
}

/// The files in the folders of an archive.
pub(super) struct Files {
    pub(super) runs: Vec<String>,
    pub(super) backups: Vec<String>,
}

impl Files {
    /// Lists the folders of runs and of backups.
    pub(super) fn list(disk: &dyn Disk, dir: &str) -> Result<Files> {
        let list = |folder: &str| disk.list(&format!("{dir}/{folder}"));
        Ok(Files {
            runs: list(RUNS)?,
            backups: list(BACKUPS)?,
        })
    }

    pub(super) fn runs(&self) -> BTreeSet<RunId> {
        self.runs
            .iter()
            .filter_map(|name| RunId::parse(name))
            .collect()
    }

    pub(super) fn backups(&self) -> BTreeSet<BackupId> {
        let names = self.backups.iter();
        names.filter_map(|name| BackupId::parse(name)).collect()
    }

    fn increments(&self) -> BTreeSet<BackupId> {
        let names = self.backups.iter();
        names
            .filter_map(|name| BackupId::parse_increment(name))
            .collect()
    }
}

/// Returns the runs of the fewest files that tile the epochs from `begin` to the highest epoch that can be reached.
/// Missing runs are used only where nothing else leads on.
pub(super) fn tiling(named: &BTreeSet<RunId>, files: &BTreeSet<RunId>, begin: Epoch) -> Vec<RunId> {
    let mut cheapest: BTreeMap<Epoch, (u64, Option<RunId>)> = BTreeMap::from([(begin, (0, None))]);
    // Runs sort by their first epochs. So all ways to an epoch are known before the first run that begins there.
    for run in named.union(files) {
        let Some((cost, _)) = cheapest.get(&run.epochs.begin).copied() else {
            continue;
        };
        let cost = cost + if files.contains(run) { 1 } else { MISSING };
        let known = cheapest.get(&run.epochs.end).map(|(cost, _)| *cost);
        if known.is_none_or(|known| cost < known) {
            cheapest.insert(run.epochs.end, (cost, Some(*run)));
        }
    }
    let mut runs = Vec::new();
    let mut at = cheapest.last_key_value();
    while let Some((_, (_, Some(run)))) = at {
        runs.push(*run);
        at = cheapest.get_key_value(&run.epochs.begin);
    }
    runs.reverse();
    assert!(
        runs.windows(2)
            .all(|pair| pair[0].epochs.end == pair[1].epochs.begin),
        "the runs tile their epochs"
    );
    runs
}

impl Store {
    /// Returns the manifest that the files of the archive show. `None`: it is the manifest in `newest`.
    /// The files must have been listed after that manifest was read.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the name of a run shows a higher epoch than the files lead to; errors of the disk.
    pub(super) fn mend(
        &self,
        newest: &Newest,
        files: &Files,
        lost: Lost,
    ) -> Result<Option<Manifest>> {
        let mut intact = files.runs();
        let named: BTreeSet<RunId> = newest.manifest.runs().collect();
        if newest.damaged.is_empty() && named.is_subset(&intact) {
            return Ok(None);
        }
        // Only an undamaged run can replace others. Each turn finds the tiling or removes a damaged run.
        let objects = 'tiled: loop {
            let mut runs = tiling(&named, &intact, newest.manifest.begin);
            if lost == Lost::Goes || !newest.damaged.is_empty() {
                // The damaged manifest may have left them out.
                let missing = runs.iter().take_while(|run| !intact.contains(run));
                runs.drain(..missing.count());
            }
            let mut objects = Vec::with_capacity(runs.len());
            for id in runs {
                match self.stand_in(&newest.manifest, id) {
                    Ok(object) => objects.push(object),
                    Err(Error::Corrupt(_) | Error::Foreign { .. }) => {
                        intact.remove(&id);
                        continue 'tiled;
                    }
                    Err(error) => return Err(error),
                }
            }
            break objects;
        };
        let mut mended = newest.manifest.clone();
        mended.objects = objects;
        self.set_ends(&newest.manifest, &mut mended)?;
        self.check_reached(&mended, files)?;
        let is_there = |object: &&Object| files.backups.contains(&object.id.name());
        let there = newest.manifest.objects.iter().filter(is_there);
        let backups = there.clone().filter(|object| object.id.backup().is_some());
        mended.objects.extend(backups);
        // An increment without its backup is of no use.
        let has_base = |id: BackupId| {
            let base = newest.manifest.sweep_before(id.k);
            base.is_some_and(|base| mended.object(ObjectId::Sweep(base)).is_some())
        };
        let increments: Vec<Object> = there
            .filter(|object| object.id.increment().is_some_and(has_base))
            .copied()
            .collect();
        mended.objects.extend(increments);
        mended
            .objects
            .extend(self.unnamed_backups(&mended.clone(), files)?);
        mended.objects.sort_unstable_by_key(|object| object.id);
        assert!(
            mended.end >= newest.manifest.end,
            "an archive grows at its end"
        );
        assert_eq!(mended.fault(), None, "what the files show is a manifest");
        let has_stand_in = mended.runs().any(|run| !named.contains(&run));
        if lost == Lost::Stays && newest.damaged.is_empty() && !has_stand_in {
            // Nothing shows a newer manifest, so the named runs are lost. Each restore that needs one names it.
            return Ok(None);
        }
        Ok((mended.objects != newest.manifest.objects).then_some(mended))
    }

    /// Returns the entry of a run: the manifest's, or one for a run that the manifest does not name.
    fn stand_in(&self, manifest: &Manifest, id: RunId) -> Result<Object> {
        let object = ObjectId::Run(id);
        if let Some(named) = manifest.object(object) {
            return Ok(*named);
        }
        let run = self.open_run(id)?;
        run.verify(&RegionDigest::new())?;
        assert_eq!(run.id(), id, "a run is opened by its name");
        self.entry(object, run.bytes())
    }

    /// Sets where the mended runs begin and end.
    fn set_ends(&self, manifest: &Manifest, mended: &mut Manifest) -> Result<()> {
        let (first, last) = (mended.runs().next(), mended.runs().last());
        let Some((first, last)) = first.zip(last) else {
            mended.begin = manifest.end;
            return Ok(());
        };
        (mended.begin, mended.end) = (first.epochs.begin, last.epochs.end);
        if mended.end != manifest.end {
            mended.positions = self.open_run(last)?.ends().to_vec();
        }
        Ok(())
    }

    /// Fails if the name of a run, or of a cut, shows an epoch that the mended runs do not lead to.
    fn check_reached(&self, mended: &Manifest, files: &Files) -> Result<()> {
        let end = match restart::judge_runs(mended, &self.dir, &files.runs)?
            .adopt
            .last()
        {
            Some(run) => run.epochs.end,
            None => mended.end,
        };
        let is_beyond = |id: &BackupId| id.k.0 == 0 && id.end >= end;
        if let Some(cut) = files.backups().into_iter().rfind(is_beyond) {
            let expected = format!("runs of epochs {end} to {}, of which it was made", cut.end);
            let path = self.path(&cut.path(BACKUPS));
            return Err(object_damage(&path, 0, expected, "no such runs"));
        }
        Ok(())
    }

    /// Returns whether a backup can join the archive. The runs before `end` must have its epochs, and no merge may have
    /// combined records across its state. The manifest's images say so for a sweep. For a cut, the run around its epoch
    /// does.
    fn may_join(&self, manifest: &Manifest, header: &BackupHeader, end: Epoch) -> Result<bool> {
        let id = header.id;
        assert_eq!(header.uuid, manifest.uuid, "both are of one database");
        if header.kind == BackupKind::Sweep && manifest.has_later_increment(id) {
            return Ok(false);
        }
        if header.kind == BackupKind::Sweep {
            let has_epochs =
                header.begin > id.end || manifest.begin <= header.begin && id.end < end;
            return Ok(has_epochs && manifest.images.retained.contains(&id.k));
        }
        match manifest.run_around(id.end).map(|run| self.open_run(run)) {
            None => Ok(true),
            Some(Err(Error::Corrupt(_) | Error::Foreign { .. })) => Ok(false),
            Some(Err(error)) if error.is_not_found() => Ok(false),
            Some(run) => Ok(run?.has_moment(id.end)),
        }
    }

    /// Returns entries for the backups that the manifest does not name and that can join the archive. They are whole,
    /// because a file gets its name last. Runs that the manifest does not name count.
    pub(super) fn unnamed_backups(
        &self,
        manifest: &Manifest,
        files: &Files,
    ) -> Result<Vec<Object>> {
        let runs = tiling(&manifest.runs().collect(), &files.runs(), manifest.begin);
        let end = runs.last().map_or(manifest.end, |run| run.epochs.end);
        self.backups_before(end, manifest, files)
    }

    /// Returns entries for the backups and increments that the manifest does not name and that can join the archive, if
    /// the runs before `end` are a part of it.
    pub(super) fn backups_before(
        &self,
        end: Epoch,
        manifest: &Manifest,
        files: &Files,
    ) -> Result<Vec<Object>> {
        let mut objects = Vec::new();
        for id in files.backups() {
            let named = [ObjectId::Sweep(id), ObjectId::Cut(id)];
            if named.iter().any(|id| manifest.object(*id).is_some()) {
                continue;
            }
            let Some(backup) = whole(self.open_backup(id))? else {
                continue;
            };
            if !self.may_join(manifest, backup.header(), end)? {
                continue;
            }
            let object = match backup.header().kind {
                BackupKind::Sweep => ObjectId::Sweep(id),
                BackupKind::Cut => ObjectId::Cut(id),
            };
            objects.push(self.entry(object, backup.bytes())?);
        }
        let mut all = manifest.clone();
        all.objects.extend_from_slice(&objects);
        let increments = self.unnamed_increments(end, &all, files)?;
        objects.extend(increments);
        Ok(objects)
    }

    /// Returns entries for the increments that the manifest does not name and that can join the archive. Their epochs
    /// are before `end`, and they continue the newest sweep before them.
    fn unnamed_increments(
        &self,
        end: Epoch,
        manifest: &Manifest,
        files: &Files,
    ) -> Result<Vec<Object>> {
        let mut objects = Vec::new();
        for id in files.increments() {
            let object = ObjectId::Increment(id);
            if manifest.object(object).is_some() || id.end >= end {
                continue;
            }
            let Some(increment) = whole(self.open_increment(id))? else {
                continue;
            };
            if increment.header().continues() != manifest.sweep_before(id.k) {
                continue;
            }
            objects.push(self.entry(object, increment.bytes())?);
        }
        Ok(objects)
    }

    /// Returns an entry for a whole file that no manifest names. Reads the file for its checksum.
    fn entry(&self, id: ObjectId, bytes: u64) -> Result<Object> {
        let path = self.path(&id.path());
        let crc = file_crc(self.disk.as_ref(), &path, bytes)?;
        Ok(Object { id, bytes, crc })
    }
}

/// Returns `None` for a backup or an increment that is damaged, or that another process has removed.
fn whole(opened: Result<Arc<Backup>>) -> Result<Option<Arc<Backup>>> {
    match opened {
        Ok(backup) => Ok(Some(backup)),
        Err(Error::Corrupt(_) | Error::Foreign { .. }) => Ok(None),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::EpochRange;

    fn run(begin: u64, end: u64, level: u8) -> RunId {
        RunId {
            epochs: EpochRange::new(Epoch(begin), Epoch(end)).expect("a range"),
            level,
            generation: 0,
        }
    }

    fn tiled(named: &[RunId], files: &[RunId], begin: u64) -> Vec<RunId> {
        let set = |runs: &[RunId]| runs.iter().copied().collect();
        tiling(&set(named), &set(files), Epoch(begin))
    }

    #[test]
    fn a_merged_run_stands_for_its_inputs() {
        let named = [run(1, 5, 0), run(5, 9, 0)];
        let files = [run(1, 9, 1), run(9, 12, 0)];
        assert_eq!(tiled(&named, &files, 1), files);
    }

    #[test]
    fn missing_runs_are_used_only_where_nothing_else_leads_on() {
        let named = [run(1, 5, 0), run(5, 9, 0), run(9, 12, 0), run(12, 13, 0)];
        assert_eq!(tiled(&named, &named[1..], 1), named);
        assert_eq!(tiled(&named, &[named[1], named[3]], 1), named);
        let merged = run(5, 12, 1);
        let expected = [named[0], merged, named[3]];
        assert_eq!(tiled(&named, &[merged], 1), expected);
    }

    #[test]
    fn a_way_that_leads_nowhere_is_left() {
        let named = [run(1, 5, 0), run(5, 9, 0)];
        let files = [run(1, 7, 1), run(1, 5, 0), run(5, 9, 0), run(20, 30, 0)];
        assert_eq!(tiled(&named, &files, 1), named);
    }
}
