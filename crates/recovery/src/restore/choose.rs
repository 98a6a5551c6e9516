//! Which of an archive's backups a restore begins with.
//!
//! The nearest one before the moment needs the fewest runs; a later one serves as well, because records are taken out of it.
//! A backup that cannot be opened is passed over: an older one and more runs give the same state. An archive that has all
//! that the database has ever logged needs no backup: its runs lead from no page to each moment.

use std::sync::Arc;

use perdura_archive::Store;
use perdura_archive::backup::{Backup, BackupHeader, BackupId, BackupKind, BackupWriter};
use perdura_base::{Epoch, Error, Result};
use perdura_device::{Disk, MemDisk};

use super::RestorePlan;
use crate::anchor::Anchor;

impl RestorePlan {
    /// The plan to restore the state of `target`, or the last one that an archive holds. `passed_over` hears why a
    /// backup does not serve.
    ///
    /// # Errors
    /// [`Error::Usage`] if the archive has no backup; else the reason why the nearest backup does not serve.
    pub fn from_archive(
        store: &Store,
        target: Option<Epoch>,
        mut passed_over: impl FnMut(BackupId, &Error),
    ) -> Result<RestorePlan> {
        let runs = store.readable_runs()?;
        let mut backups: Vec<BackupId> = store.manifest().backups().collect();
        let last = runs.last().map(|run| run.id().epochs.last());
        let wanted = target.or(last).unwrap_or_default();
        // Those before the moment, the nearest first, then those behind it.
        backups.sort_by_key(|id| {
            let is_behind = id.end > wanted;
            (is_behind, id.end.0.abs_diff(wanted.0))
        });
        let since = TablesSince::of(store)?;
        let mut first = None;
        for id in backups {
            let plan = store.open_backup(id).and_then(|backup| {
                since.check(&backup, wanted)?;
                RestorePlan::new(backup, runs.clone(), target)
            });
            match plan {
                Ok(plan) => return Ok(plan),
                Err(error) => {
                    passed_over(id, &error);
                    first.get_or_insert(error);
                }
            }
        }
        if let Some(empty) = beginning(store)?
            && let Ok(plan) = RestorePlan::new(empty, runs, target)
        {
            return Ok(plan);
        }
        Err(first.unwrap_or_else(|| {
            Error::Usage(format!(
                "the archive of {} has no backup: make one with `perdura backup create` while the database is there",
                store.uuid()
            ))
        }))
    }

    /// Log streams of the database.
    #[must_use]
    pub fn streams(&self) -> usize {
        usize::from(self.backup.header().streams)
    }

    /// The backup that it begins with.
    #[must_use]
    pub fn backup(&self) -> BackupId {
        self.backup.header().id
    }
}

/// The state before the first epoch, if the runs lead from it to each moment and the archive says what the database is like.
fn beginning(store: &Store) -> Result<Option<Arc<Backup>>> {
    let manifest = store.manifest();
    let anchor = manifest.anchor()?.map(Anchor::of).transpose()?;
    let anchor = anchor.filter(|anchor| manifest.has_all() && anchor.families.is_empty());
    let Some(anchor) = anchor else {
        return Ok(None);
    };
    let header = BackupHeader {
        uuid: anchor.uuid,
        id: BackupId::cut(Epoch(0)),
        kind: BackupKind::Cut,
        consistent: false,
        begin: Epoch(1),
        wall_us: anchor.created_us,
        chunks: anchor.geometry.chunks(),
        hash_seed: anchor.geometry.hash_seed,
        scheme: anchor.scheme.code(),
        streams: anchor.streams,
        families: 0,
        segments: (anchor.segments.first, anchor.segments.max),
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

/// Since when a database has key-addressed tables, as far as its archive tells: the log has changes of theirs that are in no
/// run.
struct TablesSince {
    /// The anchor declares their frames.
    are_declared: bool,
    /// The highest end of a backup that was made before; up to there the runs have all changes.
    plain_end: Epoch,
}

impl TablesSince {
    fn of(store: &Store) -> Result<TablesSince> {
        let manifest = store.manifest();
        let anchor = manifest.anchor()?.map(Anchor::of).transpose()?;
        let are_declared = anchor.is_some_and(|anchor| !anchor.families.is_empty());
        let mut plain_end = Epoch(0);
        for id in manifest.backups().filter(|_| are_declared) {
            // One that is damaged is passed over when its turn comes.
            if let Ok(backup) = store.open_backup(id)
                && backup.header().families == 0
            {
                plain_end = plain_end.max(id.end);
            }
        }
        Ok(TablesSince {
            are_declared,
            plain_end,
        })
    }

    /// Whether the runs lead from this backup to a moment.
    fn check(&self, backup: &Backup, target: Epoch) -> Result<()> {
        let is_plain = backup.header().families == 0;
        if !self.are_declared || !is_plain || target <= self.plain_end {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "epoch {target} cannot be restored from {}: the database has key-addressed tables since some epoch behind {}, \
             and their log is not in the archive; restore that epoch or one before, or that of a later backup",
            backup.header().id.name(),
            self.plain_end
        )))
    }
}
