//! The archive's disk: faults, absence, power cuts, and the content that must survive.

use perdura_archive::Store;
use perdura_base::Error;
use perdura_base::error::Family;
use perdura_device::{CrashProfile, FaultPlan};

use crate::faults;
use crate::report::Check;

use super::world::ArchiveWorld;

impl ArchiveWorld {
    /// Returns how many faults of the archive's disk have struck so far.
    fn store_faults(&self) -> u64 {
        self.store.faults_struck()
    }

    /// Returns whether the archive's disk has a reason to fail: a fault, a power cut, or its
    /// absence.
    pub(crate) fn store_may_fail(&self) -> bool {
        self.is_gone || !self.store.has_power() || self.store_faults() > self.store_faults_before
    }

    /// Accepts an error of a step of the archive if a fault explains it, and repairs the archive's disk.
    /// Sometimes abandons the backup.
    ///
    /// # Errors
    /// A contradiction, if no fault explains the error.
    pub(crate) fn store_failed(&mut self, step: &str, error: &Error) -> Check {
        let is_explained = self.store_may_fail()
            || self.faults_struck() > self.faults_before
            // A failed publication stops the archive's store until the archiver reopens it.
            || matches!(error, Error::LogFull(_) | Error::Stopped(_));
        if error.family() == Family::Corruption || !is_explained {
            return Err(format!("{step}: {error}"));
        }
        self.reach("archive_failed");
        if self.rng.bool() {
            self.end_backup();
        }
        if !self.is_gone {
            self.mend_store()?;
        }
        Ok(())
    }

    /// Repairs the archive's disk: restores its power and removes all planned faults.
    pub(crate) fn mend_store(&mut self) -> Check {
        if !self.store.has_power() {
            self.cut_store_power();
            self.check_told()?;
        }
        self.store.set_plan(FaultPlan::default());
        self.store_faults_before = self.store_faults();
        assert!(
            !self.store_may_fail(),
            "nothing explains a failure of a disk that was mended"
        );
        Ok(())
    }

    /// Crashes the machine that has the archive's disk. An agent on this machine dies too.
    fn cut_store_power(&mut self) {
        self.agent = None;
        self.close_archive();
        let drawn = CrashProfile::ALL[self.rng.usize(0..CrashProfile::ALL.len())];
        let profile = self.course.profile.unwrap_or(drawn);
        let seed = self.rng.u64(..);
        self.store.crash(profile, seed);
        self.store.set_plan(FaultPlan::default());
        assert!(
            self.store.has_power() && self.merging.is_none(),
            "a machine comes up with power, and nothing is open on it"
        );
        self.is_gone = false;
        self.tally.crashes += 1;
        self.reach("archive_crash");
        if self.engine.is_some() {
            self.begin_archiving();
        }
    }

    /// Simulates the effect of a database crash on the archive. The dead process no longer has the archive open, and
    /// the archive's disk may have lost power too.
    pub(crate) fn store_crashes_too(&mut self) {
        self.close_archive();
        if self.rng.u8(0..100) < self.character.together {
            self.cut_store_power();
            self.store_faults_before = self.store_faults();
            self.reach("both_crash");
        }
    }

    /// Cuts the power of the archive's disk.
    pub(crate) fn store_power(&mut self) -> Check {
        self.cut_store_power();
        self.check_told()?;
        self.store_faults_before = self.store_faults();
        Ok(())
    }

    /// Makes the archive's disk unavailable, or available again.
    pub(crate) fn store_absence(&mut self) -> Check {
        if self.is_gone {
            self.is_gone = false;
            return self.mend_store();
        }
        self.store.set_plan(FaultPlan {
            cut_after_ops: Some(1),
            ..FaultPlan::default()
        });
        self.is_gone = true;
        self.reach("archive_gone");
        Ok(())
    }

    /// Plans a fault of the archive's disk.
    pub(crate) fn plan_store_fault(&mut self) -> Check {
        if self.is_gone {
            return Ok(());
        }
        let store = [std::sync::Arc::clone(&self.store)];
        faults::plan(&mut self.world.machine.rng, &store, 40);
        Ok(())
    }

    /// Checks that the archive has all acknowledged data: the runs up to the acknowledged epoch, the backups, and each
    /// file that the newest manifest names. The archive's disk must have power and no fault.
    pub(crate) fn check_told(&mut self) -> Check {
        if !self.told.exists || self.engine.is_none() {
            return Ok(());
        }
        let failed = |error: Error| format!("the archive after a crash: {error}");
        let uuid = self.uuid();
        let store = Store::read_only(self.store.life(), &uuid).map_err(failed)?;
        let manifest = store.manifest();
        assert_eq!(manifest.uuid, uuid, "it is the database's archive");
        let held = manifest.held().0;
        if held.0 < self.told.epoch {
            return Err(format!(
                "the log was archived up to epoch {}, and the archive has {held}",
                self.told.epoch
            ));
        }
        let lost = |id: &&_| !manifest.backups().any(|other| other == **id);
        if let Some(lost) = self.told.backups.iter().find(lost) {
            return Err(format!(
                "{} was made, and the archive lacks it",
                lost.name()
            ));
        }
        let lost = |id: &&_| !manifest.increments().any(|other| other == **id);
        if let Some(lost) = self.told.increments.iter().find(lost) {
            return Err(format!(
                "{} was made, and the archive lacks it",
                lost.increment_name()
            ));
        }
        for object in &manifest.objects {
            store.verify_object(object, &self.region).map_err(failed)?;
        }
        Ok(())
    }
}
