//! The state of a run in the world of the archive, and the functions that the simulator's loop calls.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fastrand::Rng;
use perdura::archive::backlog::BacklogOptions;
use perdura::{Archiving, Core, Error, Merging, Progress};
use perdura_archive::backup::BackupId;
use perdura_base::Uuid;
use perdura_device::SimDisk;
use perdura_page::RegionDigest;
use perdura_recovery::read_anchor;

use crate::content::scramble;
use crate::ledger::{Ledger, declared};
use crate::lives::{Lives, Rarity};
use crate::machine::Machine;
use crate::over_core::OverCore;
use crate::report::Check;
use crate::restarted::has_rotted;
use crate::swarm::Swarm;
use crate::world::World;

use super::character::Character;
use super::set_back::OlderCopy;
use super::steps::{Agent, Backing};
use super::timeline::Timeline;
use super::times::Samples;

/// The acknowledgements of the archive. Everything acknowledged must survive any failure of the archive's disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    /// True if the archive exists.
    pub exists: bool,
    /// The last epoch that the archive has acknowledged.
    pub epoch: u64,
    /// The last epoch that the archive or the backlog has acknowledged.
    pub kept: u64,
    pub backups: Vec<BackupId>,
    pub increments: Vec<BackupId>,
}

impl Told {
    /// Returns the acknowledged increments if `is_increment` is true. Otherwise returns the acknowledged backups.
    pub(crate) fn copies(&mut self, is_increment: bool) -> &mut Vec<BackupId> {
        match is_increment {
            true => &mut self.increments,
            false => &mut self.backups,
        }
    }
}

/// A lost database with an archive that still exists.
pub(crate) struct Ancestor {
    pub uuid: Uuid,
    pub timeline: Timeline,
    pub told: Told,
}

/// The state of a run in the world of the archive.
pub(crate) struct ArchiveWorld {
    /// The database and its client.
    pub world: World,
    pub character: Character,
    pub timeline: Timeline,
    /// The archive's disk.
    pub store: Arc<SimDisk>,
    pub region: Arc<RegionDigest>,
    pub archiving: Option<Archiving>,
    pub merging: Option<Merging>,
    /// True if the archive has failed, and the backup and the merger have been made to close it.
    pub is_let_go: bool,
    pub backing: Option<Backing>,
    pub agent: Option<Agent>,
    pub told: Told,
    pub ancestors: Vec<Ancestor>,
    /// The database as it was at an earlier crash.
    pub past: Option<OlderCopy>,
    /// The clock, as the run has seen it since the database was made.
    pub samples: Samples,
    /// True while the archive's disk is unavailable. A later step makes it available again.
    pub is_gone: bool,
    /// Count of faults of the archive's disk that have already explained an error. Only a later fault explains a new
    /// error.
    pub store_faults_before: u64,
    /// The number of calls of [`fresh`](Self::fresh).
    pub drawn: u64,
    /// The number of the archive's runs (files of page records) that this life has moved from its backlog to the
    /// archive.
    pub drained: u64,
}

impl Deref for ArchiveWorld {
    type Target = Machine<Core>;

    fn deref(&self) -> &Machine<Core> {
        &self.world.machine
    }
}

impl DerefMut for ArchiveWorld {
    fn deref_mut(&mut self) -> &mut Machine<Core> {
        &mut self.world.machine
    }
}

impl ArchiveWorld {
    /// Returns a world with empty disks.
    pub(crate) fn new(seed: u64, rng: Rng, swarm: Swarm, character: Character) -> ArchiveWorld {
        ArchiveWorld {
            world: World::new(seed, rng, swarm),
            character,
            timeline: Timeline::default(),
            store: SimDisk::new(scramble(seed ^ 0x5702e)),
            region: Arc::new(RegionDigest::new()),
            archiving: None,
            merging: None,
            is_let_go: false,
            backing: None,
            agent: None,
            told: Told::default(),
            ancestors: Vec::new(),
            past: None,
            samples: Samples::default(),
            is_gone: false,
            store_faults_before: 0,
            drawn: 0,
            drained: 0,
        }
    }

    /// Gives the database of some runs a typed table, whose changes are ordered frames. Half of these runs take more
    /// checkpoints, so that increments follow their backups.
    pub(crate) fn with_ledger(mut self) -> ArchiveWorld {
        if let Some((ledger, log)) = Ledger::draw(self.seed) {
            self.world.swarm.options.typed = declared(log);
            self.world.ledger = Some(ledger);
            if scramble(self.seed ^ 0x1c6e).is_multiple_of(2) {
                self.world.swarm.course.steps *= 3;
                self.world.swarm.odds.begin *= 4;
                self.world.swarm.odds.sweep *= 6;
                self.character.odds.back_up = 3 * self.character.odds.back_up.max(2);
            }
        }
        self
    }

    /// Returns a number that no earlier call has returned.
    pub(crate) fn fresh(&mut self) -> u64 {
        self.drawn += 1;
        scramble(self.seed ^ scramble(self.drawn))
    }

    /// Returns the database's identity.
    pub(crate) fn uuid(&self) -> Uuid {
        self.world.core().anchor().get().uuid
    }

    /// Counts that the run has reached the rare state `mark`.
    pub(crate) fn reach(&mut self, mark: &'static str) {
        *self.tally.reached.entry(mark).or_default() += 1;
    }

    /// Begins to archive a new life.
    pub(crate) fn begin_archiving(&mut self) {
        let life = self.fresh();
        let store = Arc::clone(&self.store);
        let mut archiving =
            Archiving::new(store, life).with_workspace(self.character.workspace_bytes);
        if let Some(bytes_max) = self.character.backlog {
            archiving = archiving.with_backlog(BacklogOptions {
                bytes_max,
                ..BacklogOptions::default()
            });
        }
        self.merging = Some(Merging::new(
            archiving.lent(),
            self.merger_options(),
            self.retention(),
        ));
        self.archiving = Some(archiving);
        self.drained = 0;
    }

    /// Abandons the backup in progress.
    pub(crate) fn end_backup(&mut self) {
        self.backing = None;
        self.image_is_held = false;
    }

    /// Closes everything of the archive that the database's process has open.
    pub(crate) fn close_archive(&mut self) {
        self.end_backup();
        self.merging = None;
        self.archiving = None;
    }
}

impl Lives for ArchiveWorld {
    type Engine = Core;
    const OTHER_WAYS: Rarity = Rarity {
        mixed: 20,
        later: 100,
        never_interrupted: 200,
    };
    const ROTS: u32 = 1;

    /// Opens the database as the product does: first compares the archive, if there is one, with the log. Skips the
    /// comparison if the archive cannot be read.
    fn open_on(&self, disks: &[Arc<SimDisk>]) -> Result<Core, Error> {
        let anchor = read_anchor(disks[0].life().as_ref())?;
        let mut options = self.world.options();
        if let Some(anchor) = anchor.filter(|anchor| anchor.archived.is_some()) {
            let archiving = Archiving::new(self.store.life(), 0);
            match archiving.end_of(&anchor.uuid, &self.world.env(disks).disks.logs) {
                Ok(end) => options.archived = end,
                Err(_) if self.store_may_fail() => {}
                Err(error) => return Err(error),
            }
        }
        let core = Core::open(
            self.world.env(disks),
            options,
            Arc::new(Progress::default()),
        )?;
        if self.world.prepares_by_steps() {
            core.wal().prepare_by(|| ());
        }
        Ok(core)
    }

    fn draw_way(&mut self) {
        self.world.draw_way();
    }

    fn settle_in(&mut self) -> Check {
        self.world.settle_in()
    }

    fn plan_fault(&mut self) {
        self.world.plan_fault();
    }

    fn step(&mut self) -> Check {
        self.sample();
        if self.world.ledger.as_mut().is_some_and(Ledger::is_turn) {
            return self.world.ledger_step();
        }
        if self.rng.u8(0..100) < self.character.share {
            return self.archive_step();
        }
        self.world.step()
    }

    fn end_life(&mut self, overdue: bool) -> Check {
        if overdue {
            self.end_backup();
        }
        self.world.end_life(overdue)
    }

    fn forget_all(&mut self) {
        self.close_archive();
        self.world.forget_all();
    }

    fn crash(&mut self) {
        self.power_cut();
        self.store_crashes_too();
    }

    fn restart(&mut self) -> Check {
        self.remember()?;
        self.lose()?;
        self.rot_image()?;
        self.come_back()
    }

    fn try_again(&mut self) {
        self.world.try_again();
    }

    fn check_restart(&mut self) -> Check {
        let durable = self.world.core().report().durable_epoch;
        if durable < self.told.kept {
            return Err(format!(
                "epoch {} was archived, the restart kept only {durable}",
                self.told.kept
            ));
        }
        assert!(
            self.archiving.is_none() && self.backing.is_none(),
            "the former life has the archive open no more"
        );
        self.timeline.keep(&self.world.model, durable);
        self.world.check_restart()?;
        self.begin_archiving();
        Ok(())
    }

    fn check_copies(&mut self, copies: Option<Vec<Arc<SimDisk>>>) -> Check {
        // The checks of copies also restart with the newest image damaged. If the older image has rotted, it might
        // not replace the newest. So copies of rotten disks are left out.
        let copies = copies.filter(|_| !self.disks.iter().any(|disk| has_rotted(disk)));
        self.world.check_copies(copies)
    }

    fn check_rotten(&self, disks: &[Arc<SimDisk>], damage: &str) -> Check<Option<u64>> {
        self.world.check_rotten(disks, damage)
    }

    fn clean_up(&mut self) -> Check {
        self.archive_all()?;
        self.check_ancestors()?;
        self.world.clean_up()
    }
}
