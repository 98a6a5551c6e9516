//! The store that the archiver adds to, and its steps: a run, the manifest that names it, and notes of the clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_archive::store::Publication;
use perdura_archive::{
    ArchivedRun, Archiver, ArchiverStep, BackupId, Edit, Generation, Object, ObjectId, Progress,
    Store,
};
use perdura_base::{CkptEpoch, Epoch, Result};
use perdura_wal::{EpochEnds, Rung};

use super::backlog::Backlog;
use crate::core::Core;
use crate::proving::Proving;

/// The time between two notes that the archive has everything, nanoseconds.
const NOTE_EVERY_NS: u64 = 60_000_000_000;

/// The store that the archiver adds to: the archive, or the backlog while the archive is away.
pub(super) struct Running {
    pub(super) store: Arc<Store>,
    pub(super) archiver: Archiver,
    /// A written run, and the manifest change under way that adds the run to `store`.
    pub(super) naming: Option<(Publication, ArchivedRun)>,
    /// The manifest change under way that notes the time until which the archive has everything.
    pub(super) noting: Option<Publication>,
    /// The time of the last such note by the monotonic clock, nanoseconds. `None`: none was made.
    pub(super) noted_ns: Option<u64>,
    pub(super) row: Generation,
    pub(super) backlog: Option<Backlog>,
    /// True if the backlog took the last turn. The backlog and the archiver take turns.
    pub(super) turns: bool,
    /// For each virtual backup, the checkpoint epoch of the image whose key-addressed rows it has.
    pub(super) cut_rows: BTreeMap<BackupId, CkptEpoch>,
}

impl Running {
    /// Notes that the archive has everything until now, if that is so. In an idle hour, a restore to a time of that hour
    /// then has the last state.
    fn note_caught_up(&mut self, core: &Core) -> Result<ArchiverStep> {
        let now_ns = core.clock().mono_ns();
        let is_due = |noted: u64| now_ns.saturating_sub(noted) >= NOTE_EVERY_NS;
        if self.backlog.is_some() || !self.row.makes_runs() || !self.noted_ns.is_none_or(is_due) {
            return Ok(ArchiverStep::Idle);
        }
        // The clock is read first. So a block that is not seen below gets a later stamp.
        let wall_us = core.clock().wall_us();
        let durable = core.wal().durable_end(Rung::Disk);
        let has_all = !self.archiver.is_collecting()
            && self.archiver.read_end().ends == durable.ends
            && core.wal().is_all_before(&durable);
        if !has_all {
            return Ok(ArchiverStep::Idle);
        }
        let (epoch, _) = self.store.manifest().held();
        assert!(epoch <= durable.epoch, "only what is durable is archived");
        self.noted_ns = Some(now_ns);
        self.noting = Some(self.store.publish(Edit::CaughtUp { epoch, wall_us }));
        Ok(ArchiverStep::Working)
    }

    /// Returns the lowest checkpoint epoch of an image whose key-addressed rows a backup has. A virtual backup that cannot be
    /// opened counts as the oldest.
    fn oldest_rows(&mut self) -> Option<CkptEpoch> {
        let manifest = self.store.manifest();
        let mut oldest = None;
        for id in manifest.backups() {
            let mut k = id.k;
            if k == CkptEpoch(0) {
                let store = &self.store;
                let read = || {
                    let backup = store.open_backup(id);
                    backup.map_or(CkptEpoch(0), |backup| backup.header().rows_k())
                };
                k = *self.cut_rows.entry(id).or_insert_with(read);
            }
            oldest = Some(oldest.map_or(k, |oldest: CkptEpoch| oldest.min(k)));
        }
        self.cut_rows
            .retain(|id, _| manifest.object(ObjectId::Cut(*id)).is_some());
        debug_assert!(
            self.cut_rows.len() <= manifest.backups().count(),
            "each virtual backup is known once"
        );
        oldest
    }

    /// Takes a step of the archiver, or of the manifest change that adds its run.
    pub(super) fn step(&mut self, core: &Core, proving: &Proving) -> Result<ArchiverStep> {
        if let Some(mut publication) = self.noting.take() {
            if let Progress::More = publication.step()? {
                self.noting = Some(publication);
            }
            return Ok(ArchiverStep::Working);
        }
        if let Some((mut publication, run)) = self.naming.take() {
            let Progress::Done(_) = publication.step()? else {
                self.naming = Some((publication, run));
                return Ok(ArchiverStep::Working);
            };
            assert_eq!(
                end_of(&self.store),
                run.end,
                "the log is cut only behind what a durable manifest names"
            );
            core.set_archived(&run.end)?;
            return Ok(ArchiverStep::Run(run));
        }
        if self.backlog.is_none()
            && let Some(oldest) = self.oldest_rows()
        {
            core.note_backup(oldest);
        }
        let durable = core.wal().durable_end(Rung::Disk);
        let now_ns = core.clock().mono_ns();
        let run = match self.archiver.step(&durable, now_ns)? {
            ArchiverStep::Run(run) => run,
            ArchiverStep::Idle => return self.note_caught_up(core),
            ArchiverStep::Working => return Ok(ArchiverStep::Working),
        };
        if !self.row.makes_runs() {
            core.set_archived(&run.end)?;
            return Ok(ArchiverStep::Run(run));
        }
        let mut images = core.images_for_archive();
        proving.add_images(&mut images);
        // The anchor is noted after the run's last frame was read. So the noted anchor declares the family of every
        // ordered frame in the run.
        self.store.note_anchor(core.anchor_for_archive());
        let edit = Edit::AddRun {
            run: Object::of(&run.summary),
            ends: run.end.ends.clone(),
            images: Some(images),
            moments: run.moments.clone(),
        };
        self.naming = Some((self.store.publish(edit), run));
        Ok(ArchiverStep::Working)
    }
}

/// Returns the end of an archive's runs. If the archive has no run, returns the point where its first run will start.
pub(super) fn end_of(store: &Store) -> EpochEnds {
    let manifest = store.manifest();
    assert!(manifest.end > Epoch(0), "epochs count from 1");
    EpochEnds {
        epoch: Epoch(manifest.end.0 - 1),
        ends: manifest.positions.clone(),
    }
}
