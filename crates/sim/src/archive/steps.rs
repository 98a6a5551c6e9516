//! The steps of the archive within a life. The seed decides whether the archiver, the merger, a backup or the agent
//! takes the next step.

use std::sync::Arc;

use perdura::{Core, MergingStep};
use perdura_archive::backup::BackupSummary;
use perdura_archive::retention::retaining::Removed;
use perdura_archive::store::{Lease, Publication};
use perdura_archive::{
    ArchiverStep, Codec, Edit, MergedRun, Merger, MergerOptions, MergerStep, Object, ObjectId,
    Progress, Role, Store, Verdict, Writer,
};
use perdura_base::Error;
use perdura_device::Clock;
use perdura_recovery::Anchor;
use perdura_recovery::checkpoint::Pin;
use perdura_restore::backup::BackupCopy;
use perdura_restore::last_cut::LastCut;
use perdura_wal::Rung;

use crate::over_core::OverCore;
use crate::report::Check;

use super::world::ArchiveWorld;

/// A backup in progress.
pub(crate) struct Backing {
    store: Arc<Store>,
    _alone: Lease,
    stage: Stage,
}

enum Stage {
    /// The image is being copied, and the pin holds it until the copy ends.
    Copy(Box<BackupCopy>, Pin),
    /// The backup waits until the archive holds the log up to the image's end.
    Wait(BackupSummary),
    Publish(Box<Publication>, BackupSummary),
}

/// A simulated process that merges. It can access only the archive's directory.
pub(crate) struct Agent {
    store: Arc<Store>,
    merger: Option<Merger>,
}

impl ArchiveWorld {
    /// Takes a step of the archive. Its kind is chosen at random, by the odds in the character.
    pub(crate) fn archive_step(&mut self) -> Check {
        if self.is_gone && self.rng.u8(0..4) == 0 {
            return self.store_absence();
        }
        let odds = self.character.odds.all();
        match self.world.machine.draw_kind(&odds) {
            0 => self.archiver_steps(),
            1 => {
                let durable = self.world.core().wal().durable(Rung::Disk);
                if let Some(archiving) = &mut self.archiving {
                    archiving.cut_at(durable);
                }
                self.archiver_steps()
            }
            2 => self.merger_steps(),
            3 => self.backup_steps(),
            4 => self.agent_steps(),
            5 => self.drill(),
            6 => self.verify_archive(),
            7 => self.plan_store_fault(),
            8 => self.store_power(),
            9 => self.store_absence(),
            10 => {
                self.age();
                Ok(())
            }
            11 => self.set_back(),
            _ => self.look_up_time(),
        }
    }

    fn draw_stride(&mut self) -> u32 {
        let stride = self.character.stride;
        self.rng.u32(1..=stride)
    }

    fn archiver_steps(&mut self) -> Check {
        if self.rng.u8(0..3) == 0
            && let Some(archiving) = &mut self.archiving
        {
            archiving.look_for_archive();
        }
        for _ in 0..self.draw_stride() {
            match self.archiver_step()? {
                Some(ArchiverStep::Working | ArchiverStep::Run(_)) => {}
                Some(ArchiverStep::Idle) | None => break,
            }
        }
        Ok(())
    }

    /// Takes a step of the archiver. Returns `None` if the step failed and an injected fault explains the failure.
    pub(crate) fn archiver_step(&mut self) -> Check<Option<ArchiverStep>> {
        let (Some(archiving), Some(core)) = (&mut self.archiving, &self.world.machine.engine)
        else {
            return Ok(None);
        };
        let (was_away, is_held) = (archiving.is_away(), core.wal().is_growth_held());
        let step = archiving.step(core);
        if let Some(held) = archiving.held() {
            self.told.epoch = self.told.epoch.max(held.epoch.0);
        }
        let drained = archiving.backlog_stats(core).drained_runs;
        let marks = [
            (!was_away && archiving.is_away(), "archive_away"),
            (drained > self.drained, "drained"),
            (!is_held && core.wal().is_growth_held(), "backlog_full"),
        ];
        self.drained = drained;
        let trouble = archiving.take_trouble();
        marks
            .into_iter()
            .filter(|mark| mark.0)
            .for_each(|mark| self.reach(mark.1));
        match trouble {
            Some(Error::Locked { .. }) if !self.is_let_go => self.let_go()?,
            Some(error) => self.store_failed("the archive", &error)?,
            None => {}
        }
        self.archiver_stepped(step)
    }

    fn archiver_stepped(
        &mut self,
        step: Result<ArchiverStep, Error>,
    ) -> Check<Option<ArchiverStep>> {
        let (Some(archiving), Some(core)) = (&self.archiving, &self.world.machine.engine) else {
            return Ok(None);
        };
        match step {
            Ok(step) => {
                self.is_let_go = false;
                self.told.exists |= archiving.lent().get().is_some();
                if let ArchiverStep::Run(run) = &step {
                    let end = run.end.epoch.0;
                    assert!(
                        end <= core.wal().durable(Rung::Disk).0,
                        "a run has epochs that are durable"
                    );
                    // A database that could not read its archive may not know where the archive ends. Its backlog then
                    // also gets epochs that the archive already has, even while the backlog moves to the archive. The
                    // move leaves these epochs out.
                    let in_archive = archiving.lent().get().is_some();
                    assert!(
                        self.told.kept < end || !in_archive,
                        "a run of the archive has epochs that are new"
                    );
                    self.told.kept = self.told.kept.max(end);
                    self.note(end);
                    self.reach("run");
                }
                Ok(Some(step))
            }
            Err(Error::Locked { .. }) if !self.is_let_go => self.let_go().map(|()| None),
            Err(error) => self.store_failed("the archiver", &error).map(|()| None),
        }
    }

    /// Makes the backup and the merger release an archive that has failed: ends the backup, and takes steps of the
    /// merger.
    fn let_go(&mut self) -> Check {
        self.end_backup();
        self.merger_steps()?;
        self.is_let_go = true;
        Ok(())
    }

    pub(crate) fn merger_options(&self) -> MergerOptions {
        let grain = self.character.grain;
        MergerOptions {
            fan_in: self.character.fan_in,
            codec: Codec::Lz4,
            policy: Arc::new(move |_, listed| {
                let Some(grain) = grain else {
                    return Verdict::Each;
                };
                let kept = listed
                    .iter()
                    .filter(|moment| moment.epoch.0.is_multiple_of(grain));
                Verdict::Only(kept.copied().collect())
            }),
            ..MergerOptions::default()
        }
    }

    fn merger_steps(&mut self) -> Check {
        let now_us = self.clock.wall_us();
        for _ in 0..self.draw_stride() {
            let Some(merging) = &mut self.merging else {
                break;
            };
            match merging.step(now_us) {
                Ok(MergingStep::Worked) => {}
                Ok(MergingStep::Removed(Removed {
                    backups: 0,
                    runs: 0,
                })) => {}
                Ok(MergingStep::Removed(removed)) => {
                    return Err(format!("each moment is promised, and {removed:?} went"));
                }
                Ok(MergingStep::Merged(merged)) => self.merged(&merged),
                Ok(MergingStep::Elsewhere) if self.agent.is_none() => {
                    return Err("another process merges, and there is none".into());
                }
                Ok(MergingStep::Idle | MergingStep::Elsewhere) => break,
                Err(error) => return self.store_failed("the merger", &error),
            }
        }
        Ok(())
    }

    fn merged(&mut self, merged: &MergedRun) {
        assert!(
            merged.inputs >= 2 && merged.id.level > 0,
            "runs become one of a higher level"
        );
        self.reach(if merged.id.level > 1 {
            "merged_again"
        } else {
            "merged"
        });
        self.note(merged.published.number);
    }

    fn backup_steps(&mut self) -> Check {
        if self.backing.is_none() {
            return self.begin_backup();
        }
        for _ in 0..self.draw_stride() {
            let Some(backing) = self.backing.take() else {
                break;
            };
            let Backing {
                store,
                _alone,
                stage,
            } = backing;
            let stage = self.advance_backup(&store, stage)?;
            self.image_is_held = matches!(stage, Some(Stage::Copy(..)));
            if let Some(stage) = stage {
                self.backing = Some(Backing {
                    store,
                    _alone,
                    stage,
                });
            }
        }
        Ok(())
    }

    fn begin_backup(&mut self) -> Check {
        let (Some(archiving), Some(core)) = (&self.archiving, &self.world.machine.engine) else {
            return Ok(());
        };
        let Some(store) = archiving.lent().get() else {
            return Ok(());
        };
        let alone = match store.lease_backups() {
            Ok(alone) => alone,
            Err(error) => return self.store_failed("the lease of backups", &error),
        };
        let Some(pin) = core.pin_newest() else {
            return Ok(());
        };
        let image = pin.anchor().image(pin.slot());
        let manifest = store.manifest();
        // The product takes a checkpoint before a backup, so its image is new and not older than the archive. This
        // function skips an image that already has a backup or is older than the archive.
        let is_older = image.begin_epoch.is_none_or(|begin| begin < manifest.begin)
            || manifest.increments().any(|id| id.k > image.k);
        if is_older || manifest.backups().any(|id| id.k == image.k) {
            return Ok(());
        }
        let anchor = Arc::clone(pin.anchor());
        match self.begin_copy(&store, anchor) {
            Ok(None) => Ok(()),
            Ok(Some(copy)) => {
                let stage = Stage::Copy(Box::new(copy), pin);
                self.backing = Some(Backing {
                    store,
                    _alone: alone,
                    stage,
                });
                self.image_is_held = true;
                Ok(())
            }
            // The archive already has a backup of this image.
            Err(Error::Usage(_)) => Ok(()),
            Err(error) => self.store_failed("a backup's begin", &error),
        }
    }

    /// Begins the copy of an image: of all its pages, or of those that changed since the last cut. `None`: no row of a
    /// key-addressed table has changed.
    fn begin_copy(
        &mut self,
        store: &Arc<Store>,
        anchor: Arc<Anchor>,
    ) -> Result<Option<BackupCopy>, Error> {
        let disk = Arc::clone(store.disk());
        let disks = self.world.env(&self.disks).disks;
        let dir = store.backups_dir();
        let wants_increment = self.world.ledger.is_some() && self.rng.u8(0..3) > 0;
        let since = match wants_increment {
            true => LastCut::read(store)?,
            false => None,
        };
        match since {
            Some(since) => BackupCopy::begin_increment(&disks, anchor, disk, &dir, since),
            None => BackupCopy::begin(&disks, anchor, disk, &dir).map(Some),
        }
    }

    /// Returns whether an increment must be given up, because the next checkpoint overwrites its image.
    fn is_late(&self, copy: &BackupCopy) -> bool {
        let core = self.world.machine.engine.as_ref();
        copy.is_increment() && core.is_some_and(Core::checkpoint_is_held)
    }

    /// Takes a step of a backup. Returns `None` when the backup has ended.
    fn advance_backup(&mut self, store: &Arc<Store>, stage: Stage) -> Check<Option<Stage>> {
        match stage {
            Stage::Copy(copy, _) if self.rng.u8(0..100) == 0 || self.is_late(&copy) => {
                self.reach(if copy.is_increment() {
                    "increment_given_up"
                } else {
                    "backup_given_up"
                });
                match copy.abandon() {
                    Ok(()) => Ok(None),
                    Err(error) => self
                        .store_failed("giving a backup up", &error)
                        .map(|()| None),
                }
            }
            Stage::Copy(mut copy, pin) => match copy.step() {
                Ok(Progress::More) => Ok(Some(Stage::Copy(copy, pin))),
                Ok(Progress::Done(summary)) => Ok(Some(Stage::Wait(summary))),
                Err(error) => self.store_failed("a backup", &error).map(|()| None),
            },
            Stage::Wait(summary) => {
                let end = summary.header.id.end;
                // Runs that wait in a backlog do not count.
                let held = match store.refresh() {
                    Ok(manifest) => manifest.held().0,
                    Err(error) => {
                        return self.store_failed("a backup's wait", &error).map(|()| None);
                    }
                };
                if held < end {
                    if let Some(archiving) = &mut self.archiving {
                        archiving.cut_at(end);
                    }
                    return Ok(Some(Stage::Wait(summary)));
                }
                let id = summary.header.id;
                let object = |id| Object {
                    id,
                    bytes: summary.bytes,
                    crc: summary.crc,
                };
                let publication = store.publish(match summary.header.continues() {
                    None => Edit::AddBackup(object(ObjectId::Sweep(id))),
                    Some(base) => Edit::AddIncrement {
                        increment: object(ObjectId::Increment(id)),
                        base,
                    },
                });
                Ok(Some(Stage::Publish(Box::new(publication), summary)))
            }
            Stage::Publish(mut publication, summary) => match publication.step() {
                Ok(Progress::More) => Ok(Some(Stage::Publish(publication, summary))),
                Ok(Progress::Done(published)) => {
                    self.copy_published(&summary, published.number);
                    Ok(None)
                }
                // Another attempt has already published it.
                Err(Error::Usage(_)) if self.is_told(&summary) => Ok(None),
                Err(error) => self
                    .store_failed("a backup's publication", &error)
                    .map(|()| None),
            },
        }
    }

    fn is_told(&mut self, summary: &BackupSummary) -> bool {
        let told = self.told.copies(summary.header.continues().is_some());
        told.contains(&summary.header.id)
    }

    /// Notes a backup or an increment that a manifest names.
    fn copy_published(&mut self, summary: &BackupSummary, number: u64) {
        let id = summary.header.id;
        let is_increment = summary.header.continues().is_some();
        let told = self.told.copies(is_increment);
        assert!(!told.contains(&id), "a copy is added once");
        told.push(id);
        self.note(number);
        self.reach(match is_increment {
            true => "increment",
            false => "backup",
        });
    }

    fn agent_steps(&mut self) -> Check {
        if self.agent.is_none() {
            return self.begin_agent();
        }
        if self.rng.u8(0..8) == 0 {
            self.agent = None;
            self.reach("agent_killed");
            return Ok(());
        }
        let options = self.merger_options();
        for _ in 0..self.draw_stride() {
            let Some(agent) = &mut self.agent else { break };
            let Some(merger) = &mut agent.merger else {
                match Merger::new(Arc::clone(&agent.store), options, Arc::clone(&self.region)) {
                    Ok(merger) => agent.merger = Some(merger),
                    Err(Error::Locked { .. }) if self.merging.is_some() => {}
                    Err(error) => {
                        self.agent = None;
                        self.store_failed("the agent's lease", &error)?;
                    }
                }
                break;
            };
            match merger.step() {
                Ok(MergerStep::Worked) => {}
                Ok(MergerStep::Merged(merged)) => self.merged(&merged),
                Ok(MergerStep::GivenUp(..)) => self.reach("merge_given_up"),
                Ok(MergerStep::Idle) => break,
                Err(error) => {
                    self.agent = None;
                    return self.store_failed("the agent", &error);
                }
            }
        }
        Ok(())
    }

    fn begin_agent(&mut self) -> Check {
        if !self.told.exists {
            return Ok(());
        }
        let life = self.fresh();
        let writer = Writer {
            role: Role::Agent,
            life,
        };
        match Store::open(self.store.life(), &self.uuid(), writer, None) {
            Ok((store, _)) => {
                self.agent = Some(Agent {
                    store,
                    merger: None,
                });
                self.reach("agent");
                Ok(())
            }
            Err(error) => self.store_failed("the agent's opening", &error),
        }
    }

    /// Reads and checks every object of the archive.
    fn verify_archive(&mut self) -> Check {
        if !self.told.exists || self.is_gone {
            return Ok(());
        }
        let verified = Store::read_only(self.store.life(), &self.uuid())
            .and_then(|store| store.verify(&self.region));
        match verified {
            Ok(verified) => match verified.faults.first() {
                Some(fault) if !self.store_may_fail() => {
                    Err(format!("verify: {}: {}", fault.path, fault.error))
                }
                _ => Ok(()),
            },
            Err(error) => self.store_failed("verify", &error),
        }
    }
}
