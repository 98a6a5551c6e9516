//! Chooses which of the archive's backups a restore begins with.
//!
//! The nearest backup before the moment to restore needs the fewest runs. A backup after that moment can be used, too:
//! the restore can remove the records after the moment from the backup's pages. A backup that cannot be opened is
//! skipped. The restore can begin with an older backup instead, but then needs more runs. An archive with the whole log
//! of the database needs no backup: its runs lead from an empty database to every moment.

use std::sync::Arc;

use perdura_archive::backup::{Backup, BackupHeader, BackupId, BackupKind, BackupWriter};
use perdura_archive::keyed::{Keyed, candidates};
use perdura_archive::merge::Images;
use perdura_archive::{Manifest, NumberChain, ObjectId, Run, RunId, Store};
use perdura_base::{Epoch, Error, Result};
use perdura_device::{Disk, MemDisk};
use perdura_recovery::anchor::Anchor;
use perdura_wal::Archived;

use crate::at::{time_of, wall_of};
use crate::backup::empty_header;
use crate::listed::Listed;
use crate::many::{Kept, RUNS_MAX, reduce};
use crate::plan::RestorePlan;
use crate::reach::Reach;
use crate::scratch::Scratch;

/// The sources of a restore: an archive and the runs after it, with limits on their use.
pub struct Sources<'a> {
    /// The archive.
    pub store: &'a Store,
    /// Runs that follow the archive's runs: see [`read_tail`](crate::read_tail).
    pub tail: Vec<Arc<Run>>,
    /// A folder for the runs that the restore merges. `None`: the restore merges no runs, and reads all needed runs
    /// simultaneously.
    pub scratch: Option<Scratch>,
    /// The maximum number of runs that the restore reads simultaneously, at least 2.
    pub runs_max: usize,
    /// Backups and increments that were found damaged and must not be used.
    pub without: Vec<ObjectId>,
}

/// The files that a restore begins with: a backup, and a later cut of key-addressed tables.
struct Start {
    backup: Arc<Backup>,
    keyed: Option<Keyed>,
}

impl Start {
    fn of(backup: Arc<Backup>) -> Start {
        Start {
            backup,
            keyed: None,
        }
    }
}

/// A backup that a restore may begin with, and the newest cut of key-addressed tables that continues it.
struct Choice {
    object: ObjectId,
    id: BackupId,
    keyed: Option<Keyed>,
}

impl Choice {
    /// Returns the last epoch that the files have. A backup with increments is as near as the newest of them.
    fn end(&self) -> Epoch {
        let keyed = self.keyed.as_ref();
        keyed.map_or(self.id.end, |keyed| keyed.header().moment())
    }
}

/// Returns the plan. Fails if the last state was asked for, and later commits are known than those of the plan's state.
fn check_last(plan: RestorePlan, known: Epoch, target: Option<Epoch>) -> Result<RestorePlan> {
    let restorable = plan.target();
    assert!(
        target.is_none_or(|target| target == restorable),
        "the plan is for the target"
    );
    if target.is_some() || known <= restorable {
        return Ok(plan);
    }
    Err(Error::OlderOnly {
        restorable,
        known,
        why: "no runs lead further",
    })
}

impl Sources<'_> {
    /// Returns sources that consist of an archive alone.
    #[must_use]
    pub fn archive(store: &Store) -> Sources<'_> {
        Sources {
            store,
            tail: Vec::new(),
            scratch: None,
            runs_max: RUNS_MAX,
            without: Vec::new(),
        }
    }

    /// Returns the plan to restore the state of `target`, or the last state if `target` is `None`. Calls `passed_over`
    /// with each backup and each increment that cannot be used, and the reason.
    ///
    /// # Errors
    /// [`Error::Usage`] if the archive has no backup; otherwise the reason why the nearest backup cannot be used.
    /// [`Error::OlderOnly`] if the last state was asked for and only an older one can be restored.
    pub fn plan(
        &self,
        target: Option<Epoch>,
        mut passed_over: impl FnMut(ObjectId, &Error),
    ) -> Result<RestorePlan> {
        self.store
            .with_newest(|manifest| self.plan_by(manifest, target, &mut passed_over))
    }

    fn plan_by(
        &self,
        manifest: &Manifest,
        target: Option<Epoch>,
        passed_over: &mut impl FnMut(ObjectId, &Error),
    ) -> Result<RestorePlan> {
        let objects = manifest.objects.iter().map(|object| object.id);
        let usable = objects.filter(|object| !self.without.contains(object));
        let backups: Vec<(ObjectId, BackupId)> = usable
            .filter_map(|object| Some((object, object.backup()?)))
            .collect();
        let mut runs = Listed::of_archive(self.store)?;
        runs.extend(self.tail.iter().cloned().map(Listed::Open));
        // The database may add runs at any time. Only the runs that were listed above count as known.
        let last = runs.last().map(|run| run.id().epochs.last());
        let known = last.map_or(manifest.held().0, |last| last.max(manifest.held().0));
        let wanted = target.or(last).unwrap_or_default();
        let mut choices = Vec::with_capacity(backups.len());
        for (object, id) in backups {
            let keyed = self.newest_cut(manifest, id, wanted, passed_over)?;
            choices.push(Choice { object, id, keyed });
        }
        // Backups before the moment come first, then backups after it. In both groups the nearest backup comes first.
        choices.sort_by_key(|choice| {
            let end = choice.end();
            (end > wanted, end.0.abs_diff(wanted.0))
        });
        let since = TablesSince::of(self.store)?;
        let mut first = None;
        for (Choice { object, id, keyed }, attempt) in choices.into_iter().zip(1..) {
            let mut is_later = false;
            let plan = self.store.open_backup(id).and_then(|backup| {
                let header = backup.header();
                is_later = header.is_of_one_moment() && wanted < header.moment();
                since.check(&backup, wanted)?;
                self.plan_from(Start { backup, keyed }, &runs, target, attempt)
            });
            match plan {
                Ok(plan) => return check_last(plan, known, target),
                Err(error) => {
                    if !is_later {
                        passed_over(object, &error);
                    }
                    first.get_or_insert(error);
                }
            }
        }
        // An archive without runs has no write at all, so a restore without a backup would make an empty database.
        if !runs.is_empty()
            && let Some(empty) = beginning(self.store)?
            && since.check(&empty, wanted).is_ok()
            && let Ok(plan) = self.plan_from(Start::of(empty), &runs, target, 0)
        {
            return check_last(plan, known, target);
        }
        Err(first.unwrap_or_else(|| {
            Error::Usage(format!(
                "the archive of {} has no backup{}. Make one with `perdura backup create` while the database exists",
                self.store.uuid(),
                if runs.is_empty() { " and no runs" } else { "" }
            ))
        }))
    }

    /// Returns the newest cut of key-addressed tables that continues a backup and serves `wanted`. `None`: the backup is
    /// the cut.
    fn newest_cut(
        &self,
        manifest: &Manifest,
        base: BackupId,
        wanted: Epoch,
        passed_over: &mut impl FnMut(ObjectId, &Error),
    ) -> Result<Option<Keyed>> {
        let increments = candidates(manifest, base, wanted);
        if increments.is_empty() {
            return Ok(None);
        }
        // A backup that cannot be opened is reported when it is tried.
        let Ok(backup) = self.store.open_backup(base) else {
            return Ok(None);
        };
        let base = backup.header();
        for id in increments {
            let object = ObjectId::Increment(id);
            if self.without.contains(&object) {
                continue;
            }
            match Keyed::open(|id| self.open_increment(id), manifest, base, id) {
                Ok(keyed) if keyed.header().moment() <= wanted => return Ok(Some(keyed)),
                Ok(_) => {}
                Err(error) if is_of_file(&error) => passed_over(object, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Opens an increment, unless it was found damaged.
    fn open_increment(&self, id: BackupId) -> Result<Arc<Backup>> {
        if self.without.contains(&ObjectId::Increment(id)) {
            return Err(Error::corrupt(
                id.increment_name(),
                0,
                "pages that another increment needs",
                "damage that was reported before",
                "The restore begins with an older cut.",
            ));
        }
        self.store.open_increment(id)
    }

    fn plan_from(
        &self,
        Start { backup, keyed }: Start,
        runs: &[Listed],
        target: Option<Epoch>,
        attempt: u32,
    ) -> Result<RestorePlan> {
        let ids: Vec<RunId> = runs.iter().map(Listed::id).collect();
        let header = *backup.header();
        let reach = Reach::of(&header, &ids, target)?;
        let cut = keyed.as_ref().map_or(header, |keyed| *keyed.header());
        let cut_us = keyed_us(self.store, runs, &cut);
        let mut listed_us = cut_us.filter(|_| reach.target == cut.moment());
        for run in runs.iter().rev() {
            let epochs = run.id().epochs;
            // The report has the time of the last listed moment up to the target. That moment is in the target's run,
            // or else in an earlier run.
            if !reach.needs_runs() {
                // The backup alone is the state, so a damaged run hinders nothing.
                break;
            }
            if epochs.begin <= reach.target && listed_us.is_none() {
                listed_us = wall_of(&[run.open(self.store)?], reach.target);
            }
            if epochs.contains(reach.target) || epochs.contains(header.id.end) {
                reach.check_moments(run.open(self.store)?.as_ref())?;
            }
        }
        let mut needed: Vec<Listed> = runs.to_vec();
        needed.retain(|run| reach.needs(run.id()));
        check_frames(&header, &needed, self.store)?;
        let before = needed.len();
        if let Some(scratch) = self
            .scratch
            .as_ref()
            .filter(|_| needed.len() > self.runs_max)
        {
            let retained = match header.kind {
                BackupKind::Sweep => vec![header.id.k],
                BackupKind::Cut => Vec::new(),
            };
            let kept = Kept {
                reach,
                images: Images {
                    retained,
                    building: None,
                },
                uuid: header.uuid,
                generation: attempt,
            };
            needed = reduce(needed, self.runs_max, (self.store, scratch), &kept)?;
        }
        let opened = needed.iter().map(|run| run.open(self.store));
        let opened: Vec<Arc<Run>> = opened.collect::<Result<_>>()?;
        assert!(
            self.scratch.is_none() || opened.len() <= self.runs_max,
            "{} runs are read side by side, at most {}",
            opened.len(),
            self.runs_max
        );
        let mut plan = RestorePlan::of(backup, &reach, opened, listed_us);
        (plan.keyed, plan.cut_us) = (keyed, cut_us);
        plan.scratch.clone_from(&self.scratch);
        // The needed runs that are no longer in the list were merged.
        let made = needed.iter().filter(|run| matches!(run, Listed::Merged(_)));
        plan.runs_merged = before - needed.len() + made.count();
        Ok(plan)
    }
}

/// Returns whether an error is of one file of the archive, and not of the archive's disk.
pub(crate) fn is_of_file(error: &Error) -> bool {
    match error {
        Error::Io { .. } => error.is_not_found() || error.is_unreadable(),
        _ => true,
    }
}

/// Returns the time of a cut of key-addressed tables. `None`: the file is no such cut, or no moment up to it is listed.
fn keyed_us(store: &Store, runs: &[Listed], cut: &BackupHeader) -> Option<u64> {
    let is_cut = cut.is_of_one_moment();
    is_cut.then(|| time_of(store, runs, cut.moment())).flatten()
}

impl RestorePlan {
    /// Returns the plan to restore the state of `target`, or the archive's last state if `target` is `None`. Calls
    /// `passed_over` with each backup and each increment that cannot be used, and the reason.
    ///
    /// # Errors
    /// As [`Sources::plan`].
    pub fn from_archive(
        store: &Store,
        target: Option<Epoch>,
        passed_over: impl FnMut(ObjectId, &Error),
    ) -> Result<RestorePlan> {
        Sources::archive(store).plan(target, passed_over)
    }

    /// Returns the number of log streams of the database.
    #[must_use]
    pub fn streams(&self) -> usize {
        usize::from(self.backup.header().streams)
    }

    /// Returns the plan's backup or increment if `error` reports damage of it, otherwise `None`. The caller may make a
    /// plan without it, and restore into a new directory.
    #[must_use]
    pub fn damaged_object(&self, error: &Error) -> Option<ObjectId> {
        let file = match error {
            Error::Corrupt(damage) => &damage.file,
            Error::Io { file, .. } if error.is_unreadable() => file,
            _ => return None,
        };
        if file != self.backup.path() {
            return self.keyed.as_ref()?.of_path(file);
        }
        Some(match self.backup.header().kind {
            BackupKind::Sweep => ObjectId::Sweep(self.backup()),
            BackupKind::Cut => ObjectId::Cut(self.backup()),
        })
    }

    /// Returns the backup that the restore begins with.
    #[must_use]
    pub fn backup(&self) -> BackupId {
        self.backup.header().id
    }
}

/// Returns an empty backup: the state before the first epoch. Returns `None` if the archive lacks the anchor of the
/// database or any run since the first epoch.
pub(crate) fn beginning(store: &Store) -> Result<Option<Arc<Backup>>> {
    let manifest = store.manifest();
    let anchor = manifest.anchor()?.map(Anchor::of).transpose()?;
    let Some(anchor) = anchor.filter(|_| manifest.has_all()) else {
        return Ok(None);
    };
    // Before the first epoch, the log had no ordered frame.
    let header = BackupHeader {
        families: 0,
        ..empty_header(&anchor)
    };
    let (memory, dir): (Arc<dyn Disk>, _) = (Arc::new(MemDisk::new()), "backups");
    memory.make_dir(dir)?;
    let mut writer = BackupWriter::create(Arc::clone(&memory), dir, header)?;
    for _ in 0..header.chunks.partitions {
        writer.end_partition(None, Vec::new());
    }
    writer.finish()?.run()?;
    let empty = Backup::open(memory.as_ref(), dir, header.id, &header.uuid)?;
    Ok(Some(Arc::new(empty)))
}

/// Fails if a run between the backup and the target lacks the ordered frames of its epochs, because an earlier build
/// made it. Also fails if a run does not continue the numbers of the frames before it.
fn check_frames(header: &BackupHeader, runs: &[Listed], store: &Store) -> Result<()> {
    let mut chain = NumberChain::default();
    debug_assert!(
        runs.is_sorted_by_key(|run| run.id().epochs.begin),
        "the runs are in the order of their epochs"
    );
    for run in runs {
        let run = run.open(store)?;
        if header.is_of_one_moment() && !run.header().carries_frames {
            return Err(Error::Usage(format!(
                "{} leads no further than epoch {}: an earlier build made {}, which lacks the changes of key-addressed \
                 tables. Restore that epoch, or the moments of a later backup",
                header.id.name(),
                header.moment(),
                run.id().name(),
            )));
        }
        chain.follow(&run)?;
    }
    Ok(())
}

/// The runs that may lack ordered frames, because an earlier build made them. They lead from a backup without
/// key-addressed tables to moments with such tables.
pub(crate) struct TablesSince {
    /// The last epoch up to which such backups lead: the highest end epoch among them, or 0. `None`: no run lacks a
    /// frame.
    pub(crate) plain_end: Option<Epoch>,
}

impl TablesSince {
    pub(crate) fn of(store: &Store) -> Result<TablesSince> {
        let manifest = store.manifest();
        let anchor = manifest.anchor()?.map(Anchor::of).transpose()?;
        if anchor.is_none_or(|anchor| anchor.archive() != Archived::Carried) {
            return Ok(TablesSince { plain_end: None });
        }
        // A backup that cannot be opened is skipped here. The plan reports it when it tries that backup.
        let backups = manifest
            .backups()
            .filter_map(|id| store.open_backup(id).ok());
        let plain = backups.filter(|backup| backup.header().archive() == Archived::Runs);
        let plain_end = plain.map(|backup| backup.header().id.end).max();
        let plain_end = plain_end.unwrap_or_default();
        Ok(TablesSince {
            plain_end: lacks_frames(store, plain_end)?.then_some(plain_end),
        })
    }

    /// Fails if the runs may lack changes between this backup and the target.
    fn check(&self, backup: &Backup, target: Epoch) -> Result<()> {
        let is_plain = backup.header().archive() == Archived::Runs;
        let beyond = self.plain_end.filter(|end| is_plain && *end < target);
        let Some(plain_end) = beyond else {
            return Ok(());
        };
        Err(Error::Usage(format!(
            "epoch {target} cannot be restored from {}. After epoch {plain_end} the database has key-addressed tables, and \
             the runs lack their changes: an earlier build made them. Restore epoch {plain_end} or an earlier one, or \
             the moments of a later backup",
            backup.header().id.name(),
        )))
    }
}

/// Returns whether a run after `plain_end` may lack ordered frames. A run that carries none lacks none if the database had
/// none then. The first frame of a database takes the first number of every partition. So the first run with frames
/// shows whether frames before it are missing. A run that cannot be read is skipped.
fn lacks_frames(store: &Store, plain_end: Epoch) -> Result<bool> {
    let mut carries_all = true;
    for run in Listed::of_archive(store)? {
        if run.id().epochs.last() <= plain_end {
            continue;
        }
        let run = match run.open(store) {
            Ok(run) => run,
            Err(Error::Corrupt(_)) => continue,
            Err(error) => return Err(error),
        };
        carries_all &= run.header().carries_frames;
        if let Some(frames) = run.frames().filter(|frames| frames.count > 0) {
            let is_first = frames.numbers.values().all(|numbers| numbers.first == 1);
            return Ok(!carries_all && !is_first);
        }
    }
    Ok(!carries_all)
}
