//! The product's world: a machine with an engine, and the state that the client expects.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fastrand::Rng;
use perdura::typed::replay::Replayer;
use perdura::{Core, CoreOptions, Env};
use perdura_recovery::{Methods, RestartOptions, Schedule};

use crate::content::scramble;
use crate::drafting::Drafting;
use crate::ledger::Ledger;
use crate::machine::Machine;
use crate::model::{Model, State};
use crate::over_core::{OverCore, dry_run_options};
use crate::report::Check;
use crate::scanning::Scanning;
use crate::steps::Reading;
use crate::swarm::Swarm;

/// The state of a run in the product's world.
pub struct World {
    pub(crate) machine: Machine<Core>,
    pub(crate) swarm: Swarm,
    pub(crate) model: Model,
    /// The client of a typed table. `None`: the run has no such table.
    pub(crate) ledger: Option<Ledger>,
    pub(crate) scan: Option<Scanning>,
    pub(crate) drafts: Vec<Drafting>,
    pub(crate) snapshots: Vec<Reading>,
    /// True if the last life ended with a clean shutdown, which marks the anchor. `None`: unknown.
    pub(crate) closed_cleanly: Option<bool>,
    pub(crate) purge_turn: u64,
    /// The source of random numbers for scripts.
    pub(crate) script_rng: Rng,
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

impl OverCore for World {
    type State = State;

    fn machine(&self) -> &Machine<Core> {
        &self.machine
    }

    fn disks_apart(&self) -> bool {
        self.swarm.disks_apart
    }

    fn options(&self) -> CoreOptions {
        self.swarm.options.clone()
    }

    fn prepares_by_steps(&self) -> bool {
        self.swarm.odds.prepare > 1
    }

    fn closed_cleanly(&self) -> Option<bool> {
        self.closed_cleanly
    }

    fn state_at(&self, durable: u64) -> State {
        self.model.state_at(durable)
    }

    fn dry_run_options(&self, env: &Env, methods: Methods, schedule: Schedule) -> RestartOptions {
        let options = self.options();
        let replayer = Replayer::new(options.typed, options.value_bytes_max);
        RestartOptions {
            ordered: Some(Arc::new(replayer)),
            ..dry_run_options(env, methods, schedule)
        }
    }

    fn compare_with(&self, core: &Core, expected: &State) -> Check {
        self.compare(core, expected)
    }
}

impl World {
    /// Returns a world with empty disks.
    #[must_use]
    pub fn new(seed: u64, rng: Rng, swarm: Swarm) -> World {
        let logs = swarm.course.log_disks(swarm.disks_apart);
        World {
            machine: Machine::new(seed, rng, swarm.course.clone(), 1 + logs),
            swarm,
            model: Model::default(),
            ledger: None,
            scan: None,
            drafts: Vec::new(),
            snapshots: Vec::new(),
            closed_cleanly: Some(false),
            purge_turn: 0,
            script_rng: Rng::with_seed(scramble(seed)),
            scratch: Vec::new(),
        }
    }

    /// Returns the engine. Steps are taken only while it is open.
    pub(crate) fn core(&self) -> &Core {
        self.engine()
    }

    /// Drops the engine and everything that it held in memory.
    pub(crate) fn forget_engine(&mut self) {
        self.machine.forget();
        self.drafts.clear();
        self.snapshots.clear();
        self.purge_turn = 0;
    }
}
