//! Copies of the database that were set back. Such a copy must not change the database's archive.
//!
//! The run keeps a copy of the disks from an earlier crash, or from the middle of a life. A step restarts the copy
//! beside the database, writes to it, and lets it meet a copy of the archive. A copy that is refused continues on a named
//! timeline. Then both are dropped.

use std::sync::Arc;

use perdura::archive::backlog::BacklogOptions;
use perdura::{Archiving, Core, Error, Progress};
use perdura_archive::{ArchiverStep, Object, Store};
use perdura_base::error::Family;
use perdura_base::{Epoch, StreamId, Uuid};
use perdura_device::SimDisk;
use perdura_wal::{FlushProgress, Rung};

use crate::machine::{Engine, copies_of};
use crate::over_core::{OverCore, anchor_of};
use crate::report::Check;

use super::branch::Branch;
use super::world::ArchiveWorld;

/// The maximum number of steps that a copy takes at the archive.
const STEPS_MAX: u32 = 400;

/// The database as it was at a crash, or in the middle of a life.
pub(crate) struct OlderCopy {
    uuid: Uuid,
    disks: Vec<Arc<SimDisk>>,
}

/// The archive's end and its files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ArchiveFiles {
    end: Epoch,
    objects: Vec<Object>,
}

impl ArchiveFiles {
    pub(crate) fn of(store: &Arc<SimDisk>, uuid: &Uuid) -> Result<ArchiveFiles, Error> {
        let store = Store::read_only(store.life(), uuid)?;
        let manifest = store.manifest();
        // Runs that no manifest names yet are a part of the archive.
        let runs = store.readable_runs()?;
        let last = runs.last().map(|run| run.id().epochs.last());
        Ok(ArchiveFiles {
            end: last.unwrap_or(manifest.held().0),
            objects: manifest.objects.clone(),
        })
    }
}

impl ArchiveWorld {
    /// Keeps a copy of the disks before some restarts, and in the middle of some lives.
    pub(crate) fn remember(&mut self) -> Check {
        if self.rng.u8(0..3) > 0 {
            return Ok(());
        }
        let disks = self.copy_disks();
        if let Some(anchor) = anchor_of(&disks[0])? {
            self.past = Some(OlderCopy {
                uuid: anchor.uuid,
                disks,
            });
        }
        Ok(())
    }

    /// Restarts the copy, and lets it meet a copy of the archive. Some calls make another copy instead.
    pub(crate) fn set_back(&mut self) -> Check {
        if self.rng.u8(0..3) == 0 {
            return self.remember();
        }
        let uuid = self.uuid();
        let Some(past) = self.past.as_ref().filter(|past| past.uuid == uuid) else {
            return Ok(());
        };
        if !self.told.exists || self.store_may_fail() {
            return Ok(());
        }
        let disks = copies_of(&past.disks);
        let store = copies_of(std::slice::from_ref(&self.store)).remove(0);
        let failed = |error: Error| format!("a copy that was set back: {error}");
        let before = ArchiveFiles::of(&store, &uuid).map_err(failed)?;
        let options = self.world.options();
        let core = Core::open(
            self.world.env(&disks),
            options,
            Arc::new(Progress::default()),
        );
        let core = core.map_err(failed)?;
        let kept = Epoch(core.report().durable_epoch);
        match self.write_to(&core, before.end.0.saturating_sub(kept.0)) {
            Ok(()) | Err(Error::LogFull(_) | Error::OutOfMemory { .. }) => {}
            Err(error) => return Err(failed(error)),
        }
        let is_set_back = kept < before.end;
        #[cfg(test)]
        crate::tests::mistakes::forget_end(&core, before.end).map_err(failed)?;
        // Writes that were in flight are in the copy, and a crash may have taken them from the database.
        let life = |core: &Core| core.anchor().get().lineage.life_at(before.end);
        let may_differ = life(&core) != life(self.world.core());
        let refused = self.meet(&core, &store);
        let after = ArchiveFiles::of(&store, &uuid).map_err(failed)?;
        self.reach(if is_set_back {
            "set_back"
        } else {
            "not_set_back"
        });
        let what = format!(
            "a copy that left the history after epoch {kept}, and an archive up to {}",
            before.end
        );
        match (is_set_back, refused) {
            (true, None) => Err(format!("{what}: the copy archives")),
            (true, Some(_)) if before != after => Err(format!("{what}: the archive changed")),
            (true, Some(error)) if error.family() != Family::Corruption => {
                Err(format!("{what}: {error}"))
            }
            (false, Some(Error::OtherHistory { .. })) if may_differ && before == after => Ok(()),
            (false, Some(error)) => Err(format!("{what}: {error}")),
            (true, Some(_)) => self.continue_on_branch(&Branch {
                core: &core,
                disks: &disks,
                store: &store,
            }),
            (false, None) => Ok(()),
        }
    }

    /// Writes to the copy, so that it has at least `more` later epochs in about half of the cases.
    pub(crate) fn write_to(&mut self, core: &Core, more: u64) -> Result<(), Error> {
        let count = match self.rng.bool() {
            true => more.min(40) + self.rng.u64(1..4),
            false => self.rng.u64(0..4),
        };
        let table = core.database(0);
        for nth in 0..count {
            let (key, value) = (format!("other:{}", nth % 3), nth.to_le_bytes());
            let ((), _) = core.transact(&core.all_partitions(), |tx| {
                tx.put(table, key.as_bytes(), &value, None)
            })?;
            Engine::close_epoch(core);
            for stream in 0..self.course.streams {
                while Engine::flush_step(core, StreamId(stream))? != FlushProgress::Idle {}
            }
        }
        Ok(())
    }

    /// Archives the copy's log. Returns the first error, or `None` if the archive has the whole log.
    pub(crate) fn meet(&mut self, core: &Core, store: &Arc<SimDisk>) -> Option<Error> {
        let mut archiving = Archiving::new(store.life(), self.fresh());
        if self.rng.bool() {
            archiving = archiving.with_backlog(BacklogOptions {
                bytes_max: 4 << 20,
                ..BacklogOptions::default()
            });
        }
        let durable = core.wal().durable(Rung::Disk);
        for _ in 0..STEPS_MAX {
            archiving.cut_at(durable);
            archiving.look_for_archive();
            let step = archiving.step(core);
            if let Some(error) = archiving.take_trouble() {
                return Some(error);
            }
            match step {
                Err(error) => return Some(error),
                Ok(ArchiverStep::Idle) => break,
                Ok(ArchiverStep::Working | ArchiverStep::Run(_)) => {}
            }
        }
        None
    }
}
