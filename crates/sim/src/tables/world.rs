//! The world of typed tables: a machine with its engine, the oracle, and the open snapshots.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fastrand::Rng;
use perdura::typed::replay::Replayer;
use perdura::{Core, CoreOptions, Env, Error, PartitionId};
use perdura_recovery::{Methods, RestartOptions, Schedule};

use crate::cluster::Cluster;
use crate::content::scramble;
use crate::machine::Machine;
use crate::over_core::{OverCore, dry_run_options};
use crate::report::Check;
use crate::tree;
use crate::tree::rows::rows_of;

use super::oracle::{Oracle, State};
use super::snapshots::Held;
use super::swarm::Swarm;
use super::tree::Tenant;

/// The expected content of a database.
pub(crate) struct Expected {
    tables: State,
    /// The tree's rows. Empty if the run has no tree.
    tree: tree::client::State,
}

/// The state of a run in the world of typed tables.
pub(crate) struct World {
    pub machine: Machine<Core>,
    pub swarm: Swarm,
    pub oracle: Oracle,
    /// The tree beside the tables. `None`: the run has no tree.
    pub tenant: Option<Tenant>,
    pub snapshots: Vec<Held>,
    /// True if the anchor recorded a clean shutdown at the end of the last life. `None`: unknown.
    pub closed_cleanly: Option<bool>,
    /// True if the last attempt to open the database failed.
    pub opens_again: bool,
    /// In a run without a log, the checkpoint of the image that the anchor names. A crash must not lose this image.
    pub must_image: u64,
    /// In a run without a log, the checkpoint of the image that the last restart loaded.
    pub loaded_image: u64,
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
    type State = Expected;
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

    fn state_at(&self, durable: u64) -> Expected {
        let rows = self.tenant.as_ref().map(|tenant| tenant.state_at(durable));
        Expected {
            tables: self.oracle.state_at(durable),
            tree: rows.unwrap_or_default(),
        }
    }

    fn survived(&self, core: &Core) -> u64 {
        match self.swarm.unlogged {
            true => core.report().checkpoint,
            false => self.life.kept(core),
        }
    }

    fn make(&self, env: &Env) -> Result<(), Error> {
        self.make_with_tree(env)
    }

    fn read_rest(&self, core: &Core) -> Result<(), Error> {
        match self.tenant {
            Some(_) => rows_of(core).map(drop),
            None => Ok(()),
        }
    }

    /// Returns whether the model can compute the state at `survived`. It cannot if an older image replaces a damaged
    /// one, and that older image was made before the last restart.
    fn remembers(&self, survived: u64) -> bool {
        self.is_logged() || survived >= self.loaded_image
    }

    fn is_logged(&self) -> bool {
        !self.swarm.unlogged
    }

    fn dry_run_options(&self, env: &Env, methods: Methods, schedule: Schedule) -> RestartOptions {
        let options = self.options();
        let replayer = Replayer::new(options.typed, options.value_bytes_max);
        RestartOptions {
            ordered: Some(Arc::new(replayer)),
            tree: options.tree,
            ..dry_run_options(env, methods, schedule)
        }
    }

    fn compare_with(&self, core: &Core, expected: &Expected) -> Check {
        self.compare(core, &expected.tables)?;
        self.compare_tree(core, &expected.tree)
    }
}

impl World {
    /// Returns a world with empty disks.
    pub fn new(seed: u64, rng: Rng, mut swarm: Swarm) -> World {
        let logs = swarm.course.log_disks(swarm.disks_apart);
        let has_nodes = !swarm.unlogged && scramble(seed ^ 0x6e6f_6465).is_multiple_of(4);
        // A restart after rot does not use the nodes, but might need the log that they hold. So runs with nodes have
        // no rot.
        swarm.course.rot &= !has_nodes;
        let mut machine = Machine::new(seed, rng, swarm.course.clone(), 1 + logs);
        machine.cluster = has_nodes.then(|| Cluster::new(seed, Arc::clone(&machine.clock)));
        World {
            machine,
            oracle: Oracle::new(swarm.options.partitions),
            tenant: swarm.tree.as_ref().map(Tenant::new),
            swarm,
            snapshots: Vec::new(),
            closed_cleanly: Some(false),
            opens_again: false,
            must_image: 0,
            loaded_image: 0,
        }
    }

    /// Returns the engine. Steps are taken only while it is open.
    pub fn core(&self) -> &Core {
        self.engine()
    }

    /// Returns the number that orders a commit in the model. With a log it is the commit's epoch. Without a log it is
    /// the first checkpoint that begins after the commit. The image of this checkpoint is the first that contains the
    /// commit.
    pub fn moment(&self, epoch: u64) -> u64 {
        match self.swarm.unlogged {
            true => self.core().heap().ckpt_epoch().0 + 1,
            false => epoch,
        }
    }

    /// Updates `must_image` to the image that the anchor now names. In a run without a log, only this image survives
    /// a crash.
    pub fn note_image(&mut self) {
        if !self.swarm.unlogged {
            return;
        }
        let record = self.core().anchor().get();
        let named = record.newest_image().map(|slot| record.image(slot).k.0);
        let named = named.unwrap_or_default();
        assert!(
            self.must_image <= named,
            "checkpoint {} was named, and {named} is",
            self.must_image
        );
        self.must_image = named;
    }

    /// Returns how many transactions each partition of an open engine has counted.
    pub fn numbers(core: &Core) -> Vec<u64> {
        let partitions = core.heap().geometry().partitions;
        assert!(partitions > 0, "a database has a partition");
        let ids = (0..partitions).map(PartitionId);
        ids.map(|id| core.heap().lock(id).pseq()).collect()
    }
}
