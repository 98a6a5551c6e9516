//! A copy that was set back and continues on a named timeline. The archive of this timeline is a folder of the archive
//! that the copy has left, and neither may change the other.

use std::path::Path;
use std::sync::Arc;

use perdura::{Archiving, Core, Error};
use perdura_archive::backlog::FOLDER;
use perdura_archive::{ArchiverStep, Object, ObjectId, Store};
use perdura_base::Uuid;
use perdura_device::{CrashProfile, Disk, Folder, SimDisk};
use perdura_recovery::{TimelineName, timeline_dir};
use perdura_restore::RestorePlan;
use perdura_restore::backup::BackupCopy;
use perdura_wal::Rung;

use crate::over_core::OverCore;
use crate::report::Check;

use super::set_back::ArchiveFiles;
use super::world::ArchiveWorld;

/// A copy of the database, the copy's disks, and the copy of the archive that has refused it.
pub(crate) struct Branch<'a> {
    pub core: &'a Core,
    pub disks: &'a [Arc<SimDisk>],
    pub store: &'a Arc<SimDisk>,
}

/// The name of the timeline on which copies continue.
fn name() -> TimelineName {
    "other".parse().expect("a name")
}

/// Returns the disk with the archive of the named timeline.
fn folder(store: &Arc<SimDisk>) -> Result<Arc<dyn Disk>, Error> {
    let dir = timeline_dir(Path::new(""), Some(&name()));
    let disk = Folder::new(store.life(), dir.to_str().expect("plain letters"))?;
    Ok(Arc::new(disk))
}

impl ArchiveWorld {
    /// Continues a copy on a named timeline and archives it there. Then restores the timeline's last moment, which must
    /// equal the copy.
    pub(crate) fn continue_on_branch(&mut self, branch: &Branch<'_>) -> Check {
        let failed = |error: Error| format!("a copy on a named timeline: {error}");
        let (core, uuid) = (branch.core, self.uuid());
        // Files that were being written may vanish in a later crash.
        branch.store.crash(CrashProfile::Worst, self.fresh());
        let before = ArchiveFiles::of(branch.store, &uuid).map_err(failed)?;
        core.end_archive(Some(&name())).map_err(failed)?;
        remove_backlog(branch.disks).map_err(failed)?;
        let anchor = core.anchor().get();
        assert_eq!(
            anchor.timeline,
            Some(name()),
            "the anchor names the timeline"
        );
        assert!(anchor.archived.is_none(), "the new timeline has no archive");
        match self.archive_branch(branch) {
            Ok(()) => {}
            // The copy's disks may have no room for more.
            Err(Error::LogFull(_) | Error::OutOfMemory { .. }) => return Ok(()),
            Err(error) => return Err(failed(error)),
        }
        if self.rng.bool() {
            branch.store.crash(CrashProfile::Worst, self.fresh());
        }
        let after = ArchiveFiles::of(branch.store, &uuid).map_err(failed)?;
        if before != after {
            return Err("a named timeline changed the archive that its copy has left".into());
        }
        self.restore_branch(branch, uuid)?;
        if self.meet(core, branch.store).is_none() {
            return Err(
                "a copy on a named timeline archives into the timeline that it left".into(),
            );
        }
        self.reach("branched");
        Ok(())
    }

    /// Writes to the copy, archives it, and adds a backup to the timeline's archive.
    fn archive_branch(&mut self, branch: &Branch<'_>) -> Result<(), Error> {
        let core = branch.core;
        self.write_to(core, 0)?;
        let mut archiving = Archiving::new(folder(branch.store)?, self.fresh());
        archive_all(&mut archiving, core)?;
        core.checkpoint_now()?;
        self.write_to(core, 0)?;
        archive_all(&mut archiving, core)?;
        let store = archiving.lent().get().expect("it has just been written");
        let _alone = store.lease_backups()?;
        let disks = self.world.env(branch.disks).disks;
        let (anchor, disk) = (core.anchor().get(), Arc::clone(store.disk()));
        let copy = BackupCopy::begin(&disks, anchor, disk, &store.backups_dir())?;
        let summary = copy.run()?;
        store.add_backup(Object {
            id: ObjectId::Sweep(summary.header.id),
            bytes: summary.bytes,
            crc: summary.crc,
        })?;
        Ok(())
    }

    /// Restores the last moment of the timeline, and compares it with the copy.
    fn restore_branch(&mut self, branch: &Branch<'_>, uuid: Uuid) -> Check {
        let failed = |error: Error| format!("the restore of a named timeline: {error}");
        let plan = folder(branch.store)
            .and_then(|disk| Store::read_only(disk, &uuid))
            .and_then(|store| RestorePlan::from_archive(&store, None, |_, _| ()));
        let plan = plan.map_err(failed)?;
        let durable = branch.core.wal().durable(Rung::Disk);
        assert_eq!(plan.target(), durable, "the timeline has everything");
        let disks = self.empty_disks();
        let report = self.restore_onto(&plan, &disks).map_err(failed)?;
        assert_eq!(report.parent, uuid, "the copy is the parent");
        let restored = self.open_restored(&disks).map_err(failed)?;
        let (found, expected) = (restored.digest(), branch.core.digest());
        match found.map_err(failed)? == expected.map_err(failed)? {
            true => Ok(()),
            false => Err("a restored timeline has another digest than its copy".into()),
        }
    }
}

/// Removes the runs that wait for the archive that the copy has left, as `perdura archive end` does.
fn remove_backlog(disks: &[Arc<SimDisk>]) -> Result<(), Error> {
    for disk in disks {
        let life = disk.life();
        let waiting = disk.files().into_iter().map(|(path, _)| path);
        for path in waiting.filter(|path| path.starts_with(FOLDER)) {
            life.remove(&path)?;
        }
    }
    Ok(())
}

/// Archives everything that is durable.
fn archive_all(archiving: &mut Archiving, core: &Core) -> Result<(), Error> {
    let durable = core.wal().durable(Rung::Disk);
    loop {
        archiving.cut_at(durable);
        archiving.look_for_archive();
        let step = archiving.step(core)?;
        if let Some(error) = archiving.take_trouble() {
            return Err(error);
        }
        if step == ArchiverStep::Idle && archiving.has_all() {
            return Ok(());
        }
    }
}
