//! The world of steal mode in the simulator's loop.

use std::sync::Arc;

use perdura_base::Error;
use perdura_device::SimDisk;
use perdura_steal::Steal;

use crate::faults;
use crate::lives::{Lives, Rarity, run_drawn};
use crate::report::{Check, CrashOptions, Tally};

use super::row::Row;
use super::swarm::{Swarm, draw_level};
use super::world::{State, World, spot};

/// Runs one seed.
pub(crate) fn run_seed(seed: u64, options: &CrashOptions) -> (Tally, u64, Check) {
    run_drawn(seed, 0x57ea1, options, Swarm::draw, World::new)
}

impl Lives for World {
    type Engine = Steal;
    const OTHER_WAYS: Rarity = Rarity {
        mixed: 2,
        later: 20,
        never_interrupted: 40,
    };
    const ROTS: u32 = 1;

    fn open_on(&self, disks: &[Arc<SimDisk>]) -> Result<Steal, Error> {
        let options = &self.swarm.options;
        match Steal::open(self.env(disks), options.clone())? {
            Some(steal) => Ok(steal),
            None => Steal::create(self.env(disks), options.clone()),
        }
    }

    fn draw_way(&mut self) {
        let (method, schedule) = draw_level(&mut self.machine.rng, self.swarm.scheme);
        self.swarm.options.method = method.name;
        self.swarm.options.schedule = schedule;
    }

    fn settle_in(&mut self) -> Check {
        match self.swarm.filled {
            true => self.fill(),
            false => Ok(()),
        }
    }

    fn plan_fault(&mut self) {
        if self.rng.u8(0..4) == 0 {
            // A full disk cancels checkpoints but does not stop the engine.
            let images = self.image_disks(&self.disks).to_vec();
            faults::plan_full(&mut self.rng, &images);
        } else {
            faults::plan(&mut self.machine.rng, &self.machine.disks, faults::LIFE_OPS);
        }
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
        copies.map_or(Ok(()), |copies| self.check_other_ways(&copies))
    }

    fn check_rotten(&self, disks: &[Arc<SimDisk>], damage: &str) -> Check<Option<u64>> {
        self.check_damaged(disks, damage)
    }
}

impl World {
    /// Writes the rows that exist before the first transaction. These writes are not logged, so a checkpoint follows
    /// at once.
    fn fill(&mut self) -> Check {
        faults::clear(&self.disks);
        let slot_bytes = self.swarm.options.slot_bytes;
        let rows: Vec<Row> = (0..self.swarm.rows_max / 2)
            .map(|_| Row(self.rng.u64(..)))
            .collect();
        let bytes = |row: &Row| {
            let mut bytes = Vec::new();
            row.fill(slot_bytes, &mut bytes);
            bytes
        };
        let steal = self.steal();
        let filled = steal.fill(rows.iter().map(bytes));
        filled.map_err(|error| format!("fill: {error}"))?;
        let now = steal.checkpoint_now();
        now.map_err(|error| format!("the first checkpoint: {error}"))?;
        let mut state = State::new();
        let mut found = Vec::new();
        for partition in (0..self.swarm.options.partitions).map(perdura_base::PartitionId) {
            for place in steal.places(partition) {
                found.clear();
                steal.read(place, &mut found);
                let row = rows.iter().find(|row| bytes(row) == found);
                let row = row.ok_or("a row that was not among those filled in")?;
                state.insert(spot(place), *row);
            }
        }
        if state.len() != rows.len() {
            return Err(format!(
                "{} rows filled in, {} found",
                rows.len(),
                state.len()
            ));
        }
        self.clients.oracle.load(state);
        self.tally.checkpoints += 1;
        Ok(())
    }

    fn check_other_ways(&mut self, copies: &[Arc<SimDisk>]) -> Check {
        if self.steal().report().created {
            return Ok(());
        }
        let every = self.rng.u8(0..8) == 0;
        self.check_methods(copies, every)?;
        let choice = self.rng.u64(..);
        self.check_other_image(copies, choice)
    }
}
