//! The tree in a database with tables: the clients, and the comparison after a restart.

use std::sync::Arc;

use fastrand::Rng;
use perdura::digest::digest;
use perdura::{Core, Env, Error, create_with_tree};
use perdura_device::SimDisk;
use perdura_recovery::found::find;
use perdura_recovery::restart::NewTree;
use perdura_recovery::{Level, Methods, check_methods};
use perdura_steal::{KeyTxns, Route};

use crate::locked::CLIENTS_MAX;
use crate::over_core::{OverCore, Promise, anchor_of};
use crate::report::Check;
use crate::swarm::draw_schedule;
use crate::tree::client::{KeyClients, KeyStep, State, TABLES};
use crate::tree::rows::compare;
use crate::tree::swarm::legal;

use super::tree_swarm::TreeSwarm;
use super::world::World;

/// The maximum number of ways to restart that most checks try. One of 16 checks tries all ways.
const WAYS: usize = 3;

/// The clients and the transactions of the tree in a world of tables.
pub(crate) struct Tenant {
    keys: KeyClients,
    /// The engine's interface for the tree's transactions in this life.
    txns: Option<KeyTxns>,
}

impl Tenant {
    /// Returns the tree's clients for a new world.
    pub fn new(tree: &TreeSwarm) -> Tenant {
        Tenant {
            keys: KeyClients::new(tree.keys.clone(), tree.dirty_max),
            txns: None,
        }
    }

    /// Returns the tree's expected rows if exactly the epochs up to `durable` survived.
    pub fn state_at(&self, durable: u64) -> State {
        self.keys.clients.oracle.state_at(durable)
    }

    /// Returns whether no transaction is open.
    pub fn is_idle(&self) -> bool {
        self.keys.clients.are_idle()
    }

    /// Drops everything that ended with the last life.
    pub fn forget(&mut self) {
        self.keys.clients.forget();
        self.txns = None;
    }

    /// Prepares the clients for a new life. The restart has recovered the epochs up to `kept`, and the caller has
    /// compared the recovered state with the model.
    pub fn begin(&mut self, core: &Core, kept: u64) {
        self.keys.clients.oracle.restart(kept);
        self.txns = KeyTxns::over(core, Route::Scattered);
    }
}

impl World {
    /// Creates a database with a tree, if the run has a tree and the disks have no database.
    pub fn make_with_tree(&self, env: &Env) -> Result<(), Error> {
        let Some(tree) = &self.swarm.tree else {
            return Ok(());
        };
        if find(env.disks.data.as_ref(), &env.disks.logs)?.is_some() {
            return Ok(());
        }
        let new = NewTree {
            scheme: tree.scheme,
            page_bytes: tree.page_bytes,
            tables: &TABLES,
            rows: &mut std::iter::empty(),
            percent: 90,
        };
        create_with_tree(env, &self.swarm.options, new)
    }

    /// Chooses, at random, the method by which the next restart replays the tree's records.
    pub fn draw_tree_method(&mut self) {
        if let Some(tree) = &self.swarm.tree {
            let methods = legal(tree.scheme);
            let method = methods[self.machine.rng.usize(0..methods.len())];
            self.swarm.options.methods = Methods::from(method);
        }
    }

    /// At the end of some lives, commits the transactions of the tree's clients. The next restart rolls back all
    /// transactions that are still open.
    pub fn commit_at_times(&mut self) -> Check {
        if self.tenant.is_none() || self.stopped || self.rng.u8(0..4) > 0 {
            return Ok(());
        }
        (0..CLIENTS_MAX).try_for_each(|_| self.tree_step(KeyStep::Commit))
    }

    /// Takes a step of the tree's clients, or of the tree's page writer.
    pub fn tree_step(&mut self, step: KeyStep) -> Check {
        let World {
            machine,
            tenant: Some(tenant),
            ..
        } = self
        else {
            return Ok(());
        };
        let txns = tenant.txns.as_ref().expect("the restart was compared");
        match tenant.keys.step(step, &mut machine.rng, txns) {
            Ok(Ok(Some(committed))) => {
                let (ticket, needs) = (committed.epoch.0, committed.epoch.0);
                machine.promise(ticket, Promise { ticket, needs });
                *machine.tally.reached.entry("tree_commit").or_default() += 1;
                Ok(())
            }
            Ok(checked) => checked.map(drop),
            Err(error) => machine.tolerate("a step of the tree", &error),
        }
    }

    /// Compares the tree of an open engine with the expected rows.
    pub fn compare_tree(&self, core: &Core, expected: &State) -> Check {
        match &self.tenant {
            Some(_) => compare(core, expected).map_err(|what| format!("the tree: {what}")),
            None => Ok(()),
        }
    }

    /// Checks that every restart method gives the same digest. Restarts from the disks `before`, which have the state
    /// before the last restart. Tries all legal ways to restart, or some of them. The digest must equal that of the
    /// open engine, unless nodes mirror the log. The nodes may hold more of the log than the disks.
    pub fn check_methods(&self, before: &[Arc<SimDisk>], choice: u64) -> Check {
        let (Some(tree), Some(anchor)) = (&self.swarm.tree, anchor_of(&before[0])?) else {
            return Ok(());
        };
        let mut rng = Rng::with_seed(choice);
        let mut ways = Vec::new();
        for method in legal(tree.scheme) {
            for ordered in ["auto", "value", "command"] {
                let methods = Methods::by_names(&format!("{ordered},{}", method.name))?;
                let legal = |level: &Level| check_methods(&methods, &anchor, *level).is_ok();
                let levels = Level::ALL.into_iter().filter(legal);
                ways.extend(levels.map(|level| (ordered, method.name, level)));
            }
        }
        rng.shuffle(&mut ways);
        if rng.u8(0..16) > 0 {
            ways.truncate(WAYS);
        }
        let mut expected = match anchor.mirrored {
            Some(_) => None,
            None => Some(self.digest_now()?),
        };
        for (ordered, of_tree, level) in ways {
            let methods = Methods::by_names(&format!("{ordered},{of_tree}"))?;
            let found = self.dry_run(before, methods, draw_schedule(&mut rng, level))?;
            if found != *expected.get_or_insert(found) {
                let level = level.number();
                return Err(format!(
                    "by {ordered} and {of_tree} at level {level}: other rows"
                ));
            }
        }
        Ok(())
    }

    /// Flushes the log and returns the digest of the open engine.
    fn digest_now(&self) -> Check<u64> {
        let failed = |error: Error| format!("the digest: {error}");
        self.core().flush_all().map_err(failed)?;
        digest(&self.core().data()).map_err(failed)
    }
}
