//! The loss of the database's disks. A restore from the archive then begins the next life.

use perdura_archive::Store;
use perdura_base::Epoch;
use perdura_base::num::to_u64;
use perdura_recovery::image::directory_path;
use perdura_recovery::read_anchor;

use crate::model::Model;
use crate::report::Check;

use super::restoring::Wish;
use super::timeline::Timeline;
use super::times::Samples;
use super::world::{Ancestor, ArchiveWorld};

/// The maximum number of lost databases whose archives the run still checks.
const ANCESTORS_MAX: usize = 3;

impl ArchiveWorld {
    /// Makes the database lose all disks before some restarts, if the archive can restore the database.
    pub(crate) fn lose(&mut self) -> Check {
        if !self.told.exists
            || self.told.backups.is_empty()
            || self.rng.u8(0..100) >= self.character.losses
        {
            return Ok(());
        }
        let anchor =
            read_anchor(self.disks[0].life().as_ref()).map_err(|error| error.to_string())?;
        let Some(anchor) = anchor else { return Ok(()) };
        self.is_gone = false;
        self.mend_store()?;
        let uuid = anchor.uuid;
        let store = Store::read_only(self.store.life(), &uuid)
            .map_err(|error| format!("the archive of a lost database: {error}"))?;
        let manifest = store.manifest();
        let held = manifest.held().0;
        if held.0 < self.told.epoch {
            return Err(format!(
                "epoch {} was archived, and the archive has {held}",
                self.told.epoch
            ));
        }
        // The archive may hold transactions of the last life that were durable but never acknowledged.
        let mut timeline = self.timeline.clone();
        let runs = store.readable_runs();
        let runs = runs.map_err(|error| format!("the runs of a lost database: {error}"))?;
        let held = runs.last().map_or(held, |run| run.id().epochs.last());
        timeline.keep(&self.world.model, held.0);
        let target = self.draw_target(&timeline, held);
        let wish = Wish {
            uuid,
            target,
            backup: None,
        };
        let plan = match self.plan(&wish) {
            Ok(plan) => plan,
            // The drawn moment is gone, because merging has removed it.
            Err(_) if target.is_some() => return Ok(()),
            Err(error) => return Err(format!("the restore of a lost database: {error}")),
        };
        let disks = self.empty_disks();
        let report = self
            .restore_onto(&plan, &disks)
            .map_err(|error| format!("the restore of a lost database: {error}"))?;
        self.reach(if target.is_some() {
            "lost_and_rewound"
        } else {
            "lost_and_restored"
        });
        let told = std::mem::take(&mut self.told);
        self.ancestors.push(Ancestor {
            uuid,
            timeline: timeline.clone(),
            told,
        });
        if self.ancestors.len() > ANCESTORS_MAX {
            self.ancestors.remove(0);
        }
        let epoch = report.epoch.0;
        assert!(
            report.parent == uuid && report.uuid != uuid,
            "a restored database is another one, and names its parent"
        );
        assert_eq!(disks.len(), self.disks.len(), "it has as many disks");
        timeline.branch(epoch);
        let state = timeline.state_at(epoch, &Model::default());
        self.timeline = timeline;
        self.samples = Samples::default();
        self.agent = None;
        self.world.model.begin_with(state);
        self.world.scan = None;
        self.world.closed_cleanly = None;
        let machine = &mut self.world.machine;
        machine.disks = disks;
        machine.must_survive = 0;
        machine.evidence = 0;
        machine.interrupted = None;
        machine.note(epoch);
        Ok(())
    }

    /// Damages the newer image before some restarts, if both images are complete. The next life then starts from the
    /// older image, although the archive may have a backup of the newer image.
    pub(crate) fn rot_image(&mut self) -> Check {
        if self.rng.u8(0..100) >= self.character.rots {
            return Ok(());
        }
        let anchor =
            read_anchor(self.disks[0].life().as_ref()).map_err(|error| error.to_string())?;
        let Some(anchor) = anchor else { return Ok(()) };
        let both = anchor.images.iter().all(|image| image.is_complete());
        if let Some(slot) = anchor.newest_image().filter(|_| both) {
            let directory = directory_path(slot, anchor.image(slot).k);
            if !self.disks[0].flip(&directory, 40, 3) {
                return Err(format!(
                    "{directory} is not there although the anchor names it"
                ));
            }
            self.reach("image_rotted");
        }
        Ok(())
    }

    /// Chooses, at random, the moment to restore. The next life begins at this moment. `None`, the most frequent
    /// result, means the archive's last moment.
    fn draw_target(&mut self, timeline: &Timeline, held: Epoch) -> Option<Epoch> {
        let epochs = timeline.epochs(&Model::default());
        if self.rng.bool() || epochs.is_empty() {
            return None;
        }
        let nth = self.rng.usize(0..epochs.len());
        epochs
            .into_iter()
            .nth(nth)
            .map(Epoch)
            .filter(|epoch| *epoch < held)
    }

    /// Checks that the archives of lost databases still restore their moments.
    pub(crate) fn check_ancestors(&mut self) -> Check {
        for ancestor in std::mem::take(&mut self.ancestors) {
            let Ancestor {
                uuid,
                timeline,
                told,
            } = ancestor;
            assert!(
                told.exists && to_u64(told.backups.len()) > 0,
                "it was restored"
            );
            self.restore_one(uuid, &timeline, &Model::default())
                .map_err(|wrong| format!("of a database that was lost: {wrong}"))?;
            self.reach("ancestor_restored");
        }
        Ok(())
    }
}
