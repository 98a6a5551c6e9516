//! The tree's world in the simulator's loop.

use std::sync::Arc;

use perdura_base::Error;
use perdura_device::SimDisk;
use perdura_steal::Keyed;

use crate::lives::{Lives, Rarity, run_drawn};
use crate::report::{Check, CrashOptions, Tally};
use crate::swarm::pick;

use super::swarm::{Swarm, legal};
use super::world::World;

/// One run.
pub(crate) fn run_seed(seed: u64, options: &CrashOptions) -> (Tally, u64, Check) {
    run_drawn(seed, 0x7eee, options, Swarm::draw, World::new)
}

impl Lives for World {
    type Engine = Keyed;
    const OTHER_WAYS: Rarity = Rarity::OFTEN;
    const ROTS: u32 = 2;

    fn open_on(&self, disks: &[Arc<SimDisk>]) -> Result<Keyed, Error> {
        let options = &self.swarm.options;
        match Keyed::open(self.env(disks), options.clone())? {
            Some(keyed) => Ok(keyed),
            None => Keyed::create(self.env(disks), options.clone(), None),
        }
    }

    fn draw_way(&mut self) {
        let methods = legal(self.swarm.options.scheme);
        self.swarm.options.method = pick(&mut self.machine.rng, &methods).name;
    }

    fn step(&mut self) -> Check {
        self.draw_step()
    }

    fn forget_all(&mut self) {
        self.clients.forget();
        self.machine.forget();
    }

    fn check_restart(&mut self) -> Check {
        self.check_state()
    }

    fn check_copies(&mut self, copies: Option<Vec<Arc<SimDisk>>>) -> Check {
        let Some(copies) = copies.filter(|_| !self.keyed().report().created) else {
            return Ok(());
        };
        let every = self.rng.u8(0..4) == 0;
        self.check_methods(&copies, every)
    }

    fn check_rotten(&self, disks: &[Arc<SimDisk>], damage: &str) -> Check<Option<u64>> {
        self.check_damaged(disks, damage)
    }
}
