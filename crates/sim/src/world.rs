//! The product's world: a machine with its engine, and the client's knowledge of it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fastrand::Rng;
use perdura::catalog::CatalogRows;
use perdura::{Core, CoreOptions, Env, Error, MemoryAccount, Progress};
use perdura_device::{Clock, Disk, SimDisk};
use perdura_recovery::Disks;
use perdura_recovery::{Method, RestartOptions, Schedule};

use crate::drafting::Drafting;
use crate::machine::{Machine, engine, keep_locked};
use crate::model::Model;
use crate::scanning::Scanning;
use crate::swarm::Swarm;

/// An answer that waits for its epoch.
pub struct Promise {
    /// The ticket: from when on the client may be told.
    pub(crate) ticket: u64,
    /// The newest epoch that the answer depends on.
    pub(crate) needs: u64,
}

engine!(Core, Promise, |core: &Core, promise: &Promise| {
    (promise.ticket <= core.durable()).then_some(promise.needs)
});

/// Everything a run consists of.
pub struct World {
    pub(crate) machine: Machine<Core>,
    pub(crate) swarm: Swarm,
    pub(crate) model: Model,
    pub(crate) scan: Option<Scanning>,
    pub(crate) drafts: Vec<Drafting>,
    /// Whether the last life ended with the anchor's mark of a clean shutdown, if that is known.
    pub(crate) closed_cleanly: Option<bool>,
    pub(crate) purge_turn: u64,
    pub(crate) scratch: Vec<u8>,
}

impl Deref for World {
    type Target = Machine<Core>;

    fn deref(&self) -> &Machine<Core> {
        &self.machine
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Machine<Core> {
        &mut self.machine
    }
}

/// A restart of these disks by `method` that changes nothing on them.
pub(crate) fn dry_run_options(
    env: &Env,
    method: &'static Method,
    schedule: Schedule,
) -> RestartOptions<'static> {
    RestartOptions {
        disks: env.disks.clone(),
        clock: Arc::clone(&env.clock),
        schedule,
        method,
        supplied: &[],
        dry_run: true,
        memory: Arc::new(MemoryAccount::new(u64::MAX)),
        catalog: &CatalogRows,
        progress: Arc::new(Progress::default()),
    }
}

impl World {
    /// A machine with empty disks.
    #[must_use]
    pub fn new(seed: u64, rng: Rng, swarm: Swarm) -> World {
        let count = if swarm.disks_apart {
            u64::from(swarm.streams) + 1
        } else {
            1
        };
        World {
            machine: Machine::new(seed, rng, swarm.course(), count),
            swarm,
            model: Model::default(),
            scan: None,
            drafts: Vec::new(),
            closed_cleanly: Some(false),
            purge_turn: 0,
            scratch: Vec::new(),
        }
    }

    /// What an engine on the given disks sees of the outside.
    pub(crate) fn env(&self, disks: &[Arc<SimDisk>]) -> Env {
        let logs = (0..self.swarm.streams)
            .map(|s| match self.swarm.disks_apart {
                true => disks[usize::from(s) + 1].life() as Arc<dyn Disk>,
                false => disks[0].life() as Arc<dyn Disk>,
            })
            .collect();
        let data = disks[0].life() as Arc<dyn Disk>;
        keep_locked(disks);
        Env {
            disks: Disks {
                images: vec![Arc::clone(&data)],
                data,
                logs,
            },
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            seed: self.seed,
        }
    }

    pub(crate) fn options(&self) -> CoreOptions {
        self.swarm.options.clone()
    }

    pub(crate) fn open_core(&self, disks: &[Arc<SimDisk>]) -> Result<Core, Error> {
        let core = Core::open(
            self.env(disks),
            self.options(),
            Arc::new(Progress::default()),
        )?;
        // In some runs segments are prepared by steps alone, and writers are refused until then.
        if self.swarm.odds.prepare > 1 {
            core.wal().prepare_by(|| ());
        }
        Ok(core)
    }

    /// The engine; steps are taken only while it is open.
    pub(crate) fn core(&self) -> &Core {
        self.engine()
    }

    /// The engine and everything that only it knew are gone.
    pub(crate) fn forget_engine(&mut self) {
        self.machine.forget();
        self.drafts.clear();
        self.purge_turn = 0;
    }
}
