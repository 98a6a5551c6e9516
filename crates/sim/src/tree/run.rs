//! The world of the tree in the simulator's loop.

use std::sync::Arc;

use perdura_base::Error;
use perdura_device::SimDisk;
use perdura_steal::Keyed;

use crate::lives::{Lives, Rarity, run_drawn};
use crate::report::{Check, CrashOptions, Tally};
use crate::swarm::pick;

use super::memory::Memory;
use super::swarm::{Swarm, legal};
use super::world::World;

/// Runs one seed.
pub(crate) fn run_seed(seed: u64, options: &CrashOptions) -> (Tally, u64, Check) {
    run_drawn(seed, 0x7eee, options, Swarm::draw, World::new)
}

impl Lives for World {
    type Engine = Keyed;
    const OTHER_WAYS: Rarity = Rarity::OFTEN;
    const ROTS: u32 = 2;

    fn open_on(&self, disks: &[Arc<SimDisk>]) -> Result<Keyed, Error> {
        let drained = self.prepare(disks)?;
        let options = &self.swarm.options;
        let keyed = match self.open_prepared(disks, options.clone())? {
            Some(keyed) => keyed,
            None => Keyed::create(self.env(disks), options.clone(), None)?,
        };
        if self.swarm.options.mirror.is_some() {
            self.next.replace((Some(Memory::beside(&keyed)?), drained));
        }
        Ok(keyed)
    }

    fn draw_way(&mut self) {
        let methods = legal(self.swarm.options.scheme);
        self.swarm.options.method = pick(&mut self.machine.rng, &methods).name;
    }

    fn step(&mut self) -> Check {
        self.draw_step()?;
        self.step_of_memory()
    }

    fn forget_all(&mut self) {
        self.crash_memory();
        self.keys.clients.forget();
        self.machine.forget();
    }

    fn check_restart(&mut self) -> Check {
        self.check_state()
    }

    fn try_again(&mut self) {
        self.next.take();
    }

    fn check_copies(&mut self, copies: Option<Vec<Arc<SimDisk>>>) -> Check {
        let Some(copies) = copies.filter(|_| !self.keyed().report().created) else {
            self.take_memory();
            return Ok(());
        };
        self.prepare(&copies)
            .map_err(|error| format!("a copy: {error}"))?;
        let every = self.rng.u8(0..4) == 0;
        let checked = self.check_methods(&copies, every);
        self.take_memory();
        checked
    }

    fn check_rotten(&self, disks: &[Arc<SimDisk>], damage: &str) -> Check<Option<u64>> {
        self.check_damaged(disks, damage)
    }
}
