//! The world of typed tables: a machine with its engine, the oracle, and the snapshots that are open.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fastrand::Rng;
use perdura::typed::replay::Replayer;
use perdura::{Core, CoreOptions, Env, PartitionId};
use perdura_recovery::{Method, RestartOptions, Schedule};

use crate::machine::Machine;
use crate::over_core::{OverCore, dry_run_options};
use crate::report::Check;

use super::oracle::{Oracle, State};
use super::snapshots::Held;
use super::swarm::Swarm;

/// Everything a run consists of.
pub(crate) struct World {
    pub machine: Machine<Core>,
    pub swarm: Swarm,
    pub oracle: Oracle,
    pub snapshots: Vec<Held>,
    /// Whether the last life ended with the anchor's mark of a clean shutdown, if that is known.
    pub closed_cleanly: Option<bool>,
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
    const THREADS: (u8, usize) = (4, 4);

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
        false
    }

    fn closed_cleanly(&self) -> Option<bool> {
        self.closed_cleanly
    }

    fn live(&self) -> &State {
        self.oracle.live()
    }

    fn state_at(&self, durable: u64) -> State {
        self.oracle.state_at(durable)
    }

    fn dry_run_options(
        &self,
        env: &Env,
        method: &'static Method,
        schedule: Schedule,
    ) -> RestartOptions<'static> {
        let options = self.options();
        let replayer = Replayer::new(options.typed, options.value_bytes_max);
        RestartOptions {
            ordered: Some(Arc::new(replayer)),
            ..dry_run_options(env, method, schedule)
        }
    }

    fn compare_with(&self, core: &Core, expected: &State) -> Check {
        self.compare(core, expected)
    }
}

impl World {
    /// A machine with empty disks.
    pub fn new(seed: u64, rng: Rng, swarm: Swarm) -> World {
        let logs = if swarm.disks_apart { swarm.streams } else { 0 };
        World {
            machine: Machine::new(seed, rng, swarm.course(), 1 + u64::from(logs)),
            oracle: Oracle::new(swarm.options.partitions),
            swarm,
            snapshots: Vec::new(),
            closed_cleanly: Some(false),
        }
    }

    /// The engine; steps are taken only while it is open.
    pub fn core(&self) -> &Core {
        self.engine()
    }

    /// The number of each partition of an open engine.
    pub fn numbers(core: &Core) -> Vec<u64> {
        let partitions = core.heap().geometry().partitions;
        assert!(partitions > 0, "a database has a partition");
        let ids = (0..partitions).map(PartitionId);
        ids.map(|id| core.heap().lock(id).pseq()).collect()
    }
}
