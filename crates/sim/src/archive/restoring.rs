//! Restores a moment onto empty disks and compares the result with the timeline.

use std::sync::Arc;

use perdura::{Core, Env, Progress};
use perdura_archive::backup::BackupId;
use perdura_archive::{Manifest, Store};
use perdura_base::{Epoch, Error, Uuid};
use perdura_device::{Clock, CrashProfile, FaultPlan, SimDisk};
use perdura_restore::{
    Deadlines, RestoreMeans, RestorePlan, RestoreProgress, RestoreReport, restore,
};

use crate::content::scramble;
use crate::machine::Engine;
use crate::model::{Model, State};
use crate::over_core::OverCore;
use crate::report::Check;

use super::timeline::Timeline;
use super::world::ArchiveWorld;

/// Some runs end by restoring every moment of the archive, if there are at most this many moments.
const EVERY_MAX: usize = 24;

/// The database, the moment and the backup that one restore uses.
pub(crate) struct Wish {
    pub uuid: Uuid,
    /// `None`: the last moment.
    pub target: Option<Epoch>,
    /// `None`: the nearest backup that can restore the moment.
    pub backup: Option<BackupId>,
}

/// Returns the first moment that this archive must be able to restore. A database that a restore made has a parent. The
/// moment of that restore, and all earlier moments, belong to the parent's archive.
fn first_moment(manifest: &Manifest) -> Epoch {
    let parent = manifest.parent.map(|parent| Epoch(parent.epoch.0 + 1));
    manifest.begin.max(parent.unwrap_or_default())
}

impl ArchiveWorld {
    /// Returns the environment of a database on these disks.
    fn env_of(&self, disks: &[Arc<SimDisk>]) -> Env {
        self.world.env(disks)
    }

    /// Returns as many empty disks as the database has.
    pub(crate) fn empty_disks(&mut self) -> Vec<Arc<SimDisk>> {
        let seed = self.fresh();
        let count = u64::try_from(self.disks.len()).unwrap_or(1);
        (0..count)
            .map(|i| SimDisk::new(scramble(seed ^ i)))
            .collect()
    }

    /// Reads the archive's disk and returns a plan for the restore.
    pub(crate) fn plan(&self, wish: &Wish) -> Result<RestorePlan, Error> {
        let store = Store::read_only(self.store.life(), &wish.uuid)?;
        let Some(id) = wish.backup else {
            return RestorePlan::from_archive(&store, wish.target, |_, _| ());
        };
        let backup = store.open_backup(id)?;
        let runs = store.readable_runs()?;
        RestorePlan::new(backup, runs, wish.target)
    }

    /// Restores a database onto these empty disks.
    pub(crate) fn restore_onto(
        &mut self,
        plan: &RestorePlan,
        disks: &[Arc<SimDisk>],
    ) -> Result<RestoreReport, Error> {
        let uuid = Uuid(u128::from(self.fresh()).to_le_bytes());
        let clock: Arc<dyn Clock> = self.clock.clone();
        let means = RestoreMeans {
            disks: self.env_of(disks).disks,
            uuid,
            threads: 1,
            clock: &clock,
            progress: &RestoreProgress::default(),
            deadlines: Deadlines::Keep,
        };
        restore(plan, &means)
    }

    /// Opens a restored database.
    pub(crate) fn open_restored(&self, disks: &[Arc<SimDisk>]) -> Result<Core, Error> {
        Core::open(
            self.env_of(disks),
            self.world.options(),
            Arc::new(Progress::default()),
        )
    }

    /// Restores a moment from the database's archive and compares the result with the model. Sometimes also
    /// tries one restore of each kind that must be refused.
    pub(crate) fn drill(&mut self) -> Check {
        if !self.told.exists || self.is_gone {
            return Ok(());
        }
        let uuid = self.uuid();
        let (timeline, model) = (self.timeline.clone(), self.world.model.clone());
        self.restore_one(uuid, &timeline, &model).map(drop)
    }

    /// Returns whether a moment must be restorable: merging keeps it, and its epoch lies between the archive's
    /// `begin` and `held`.
    fn is_promised(
        &self,
        epoch: Epoch,
        (begin, held): (Epoch, Epoch),
        epochs: &std::collections::BTreeSet<u64>,
    ) -> bool {
        let is_kept = self.character.grain.is_none_or(|grain| {
            epoch == held || epoch.0.is_multiple_of(grain) && epochs.contains(&epoch.0)
        });
        begin <= epoch && epoch <= held && is_kept
    }

    /// Restores a randomly chosen moment. Returns whether the archive had that moment.
    pub(crate) fn restore_one(
        &mut self,
        uuid: Uuid,
        timeline: &Timeline,
        model: &Model,
    ) -> Check<bool> {
        let store = match Store::read_only(self.store.life(), &uuid) {
            Ok(store) => store,
            Err(error) => {
                return self
                    .store_failed("a restore's opening", &error)
                    .map(|()| false);
            }
        };
        let manifest = store.manifest();
        let backups: Vec<BackupId> = manifest.backups().collect();
        if backups.is_empty() {
            return Ok(false);
        }
        let (begin, held) = (first_moment(&manifest), manifest.held().0);
        let epochs = timeline.epochs(model);
        let target = match self.rng.u8(0..8) {
            0 => None,
            1 | 2 => {
                let end = backups[self.rng.usize(0..backups.len())].end.0;
                Some(end.saturating_sub(self.rng.u64(0..6)))
            }
            3..5 if !epochs.is_empty() => {
                epochs.iter().nth(self.rng.usize(0..epochs.len())).copied()
            }
            7 => Some(self.rng.u64(0..=held.0 + 1)),
            _ => Some(self.rng.u64(begin.0.min(held.0)..=held.0)),
        };
        let target = target.map(Epoch);
        let backup = self
            .rng
            .bool()
            .then(|| backups[self.rng.usize(0..backups.len())]);
        let wish = Wish {
            uuid,
            target,
            backup,
        };
        let is_promised = self.is_promised(target.unwrap_or(held), (begin, held), &epochs);
        self.restore_and_compare(&wish, is_promised, (timeline, model))?;
        Ok(true)
    }

    /// Returns whether a backup may lead to the moment of `wish`. A backup with rows of a typed table leads to no moment
    /// before its own.
    fn is_led_to(&self, wish: &Wish) -> bool {
        let Some(target) = wish.target.filter(|_| self.world.ledger.is_some()) else {
            return true;
        };
        let Ok(store) = Store::read_only(self.store.life(), &wish.uuid) else {
            return true;
        };
        let backups = store.manifest().backups().collect::<Vec<BackupId>>();
        let mut asked = backups
            .into_iter()
            .filter(|id| wish.backup.is_none_or(|backup| backup == *id));
        asked.any(|id| {
            let backup = store.open_backup(id);
            backup.map_or(true, |backup| backup.header().moment() <= target)
        })
    }

    /// Restores the moment of `wish` and compares the result with the expected state.
    pub(crate) fn restore_and_compare(
        &mut self,
        wish: &Wish,
        is_promised: bool,
        (timeline, model): (&Timeline, &Model),
    ) -> Check {
        let what = format!("the restore of {:?} from {:?}", wish.target, wish.backup);
        let is_promised = is_promised && self.is_led_to(wish);
        let plan = match self.plan(wish) {
            Ok(plan) => plan,
            Err(Error::Usage(_)) if !is_promised => {
                self.reach("restore_refused");
                return Ok(());
            }
            Err(error) => return self.store_failed(&what, &error),
        };
        assert!(
            wish.target.is_none_or(|target| target == plan.target()),
            "a plan restores what was asked for"
        );
        let expected = &timeline.state_at(plan.target().0, model);
        let disks = self.empty_disks();
        if self.rng.u8(0..100) < self.character.interrupted {
            self.interrupt(&plan, expected)?;
        }
        let report = match self.restore_onto(&plan, &disks) {
            Ok(report) => report,
            Err(error) => return self.store_failed(&what, &error),
        };
        assert_eq!(report.epoch, plan.target(), "what was planned was restored");
        assert_eq!(
            report.parent, wish.uuid,
            "of the database that was asked for"
        );
        assert_ne!(report.uuid, wish.uuid, "and is another one");
        if report.taken_out > 0 {
            self.reach("restored_before_sweep_end");
        }
        self.reach("restored");
        if report.carried.frames() > 0 {
            self.reach("frames_restored");
        }
        let core = self
            .open_restored(&disks)
            .map_err(|error| format!("{what}: it does not open: {error}"))?;
        self.world
            .compare_with(&core, expected)
            .map_err(|wrong| format!("{what}: {wrong}"))?;
        self.check_digest(&core, report.epoch.0, report.parent == self.uuid())
    }

    /// Compares the digests of the restored and the running database. Does so only if the restored moment is the last
    /// moment of the running database, and everything in the running database is durable.
    fn check_digest(&mut self, core: &Core, epoch: u64, is_own: bool) -> Check {
        let Some(live) = &self.world.machine.engine else {
            return Ok(());
        };
        // For an ancestor's archive, `restore_and_compare` has compared the rows, which is enough.
        if !is_own || self.stopped || !live.is_idle() || epoch < live.durable() {
            return Ok(());
        }
        assert!(
            epoch <= live.durable(),
            "only what is durable is archived, and restored"
        );
        let digest = |core: &Core| {
            let digest = core.digest();
            digest.map_err(|error| format!("the digest: {error}"))
        };
        if digest(core)? != digest(live)? {
            return Err("a restored database has another digest than the live one".into());
        }
        self.reach("digest_equal");
        Ok(())
    }

    /// Cuts the power during a restore, after a random number of disk operations. The disks must then hold no database,
    /// a database that cannot be opened, or the whole restored database.
    fn interrupt(&mut self, plan: &RestorePlan, expected: &State) -> Check {
        let disks = self.empty_disks();
        let cut = self.rng.u64(1..=30).min(self.rng.u64(1..=30));
        for disk in &disks {
            disk.set_plan(FaultPlan {
                cut_after_ops: Some(cut),
                ..FaultPlan::default()
            });
        }
        let done = self.restore_onto(plan, &disks);
        if done.is_err() && self.store_may_fail() {
            return Ok(());
        }
        if disks.iter().all(|disk| disk.has_power()) {
            return done
                .map(drop)
                .map_err(|error| format!("a restore failed without a fault: {error}"));
        }
        self.tally.crashes += 1;
        self.reach("restore_interrupted");
        let profile = CrashProfile::ALL[self.rng.usize(0..CrashProfile::ALL.len())];
        for disk in &disks {
            let seed = self.rng.u64(..);
            disk.crash(profile, seed);
        }
        if disks.iter().all(|disk| disk.files().is_empty()) {
            return Ok(());
        }
        match self.open_restored(&disks) {
            Err(_) => {}
            Ok(core) if core.report().created => {
                return Err("what an interrupted restore has left opens as a new database".into());
            }
            Ok(core) => self
                .world
                .compare_with(&core, expected)
                .map_err(|wrong| format!("an interrupted restore opens: {wrong}"))?,
        }
        Ok(())
    }

    /// Archives everything at the end of a run. The last moment of the archive must then equal the live state. If the
    /// archive has few moments, some runs restore every moment.
    pub(crate) fn archive_all(&mut self) -> Check {
        self.is_gone = false;
        self.mend_store()?;
        crate::faults::clear(&self.disks);
        self.flush_all()?;
        if self.stopped || self.archiving.is_none() {
            return Ok(());
        }
        let durable = Epoch(self.engine().durable());
        while let Some(archiving) = &mut self.archiving {
            if archiving.held().is_some_and(|end| end.epoch >= durable) {
                break;
            }
            archiving.cut_at(durable);
            archiving.look_for_archive();
            self.archiver_step()?;
        }
        let uuid = self.uuid();
        let store =
            Store::read_only(self.store.life(), &uuid).map_err(|error| error.to_string())?;
        let manifest = store.manifest();
        let backups: Vec<BackupId> = manifest.backups().collect();
        if backups.is_empty() {
            return Ok(());
        }
        let (begin, held) = (first_moment(&manifest), manifest.held().0);
        let (timeline, model) = (self.timeline.clone(), self.world.model.clone());
        let epochs = timeline.epochs(&model);
        let every = epochs.len() <= EVERY_MAX && self.rng.u8(0..4) == 0;
        let moments = epochs
            .iter()
            .map(|epoch| Some(Epoch(*epoch)))
            .filter(|_| every);
        let moments: Vec<Option<Epoch>> = moments.chain([None]).collect();
        if every {
            self.reach("every_moment");
        }
        for target in moments {
            let backup = Some(backups[self.rng.usize(0..backups.len())]);
            let is_promised = self.is_promised(target.unwrap_or(held), (begin, held), &epochs);
            self.restore_and_compare(
                &Wish {
                    uuid,
                    target,
                    backup,
                },
                is_promised,
                (&timeline, &model),
            )?;
        }
        Ok(())
    }
}
