//! Runs of steal mode: lives and crashes in a chain, until the run counts.

use fastrand::Rng;
use perdura_base::error::Family;

use crate::content::scramble;
use crate::faults;
use crate::report::{CrashOptions, Tally};
use crate::run::{NESTED_MAX, TRANSACTIONS_MIN, account, guarded};
use crate::world::Check;

use super::oracle::State;
use super::row::Row;
use super::swarm::{Swarm, draw_level};
use super::world::{World, spot};

/// One run.
pub(crate) fn run_seed(seed: u64, options: &CrashOptions) -> (Tally, u64, Check) {
    let mut rng = Rng::with_seed(scramble(seed ^ 0x57ea1));
    let swarm = Swarm::draw(&mut rng, options.streams, options.profile);
    let mut world = World::new(seed, rng, swarm);
    let result = guarded(|| world.run());
    account(&mut world.tally, &mut world.trace, &world.disks);
    (std::mem::take(&mut world.tally), world.trace, result)
}

impl World {
    fn counts(&self) -> bool {
        self.tally.transactions >= TRANSACTIONS_MIN && self.tally.checkpoints > 0
    }

    /// Lives and crashes until everything planned has happened and the run counts.
    fn run(&mut self) -> Check {
        self.restart()?;
        if self.swarm.filled {
            self.fill()?;
        }
        let mut lives = 0;
        loop {
            lives += 1;
            self.live(lives)?;
            let last = lives >= self.swarm.crashes && self.counts();
            self.crash();
            if last && self.swarm.rot {
                self.rot()?;
            }
            self.restart()?;
            if last {
                return Ok(());
            }
        }
    }

    /// Rows from before the first transaction: unlogged, so that a checkpoint follows at once.
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
        self.oracle.load(state);
        self.tally.checkpoints += 1;
        Ok(())
    }

    /// A life of the machine, until it is time to crash.
    fn live(&mut self, number: u32) -> Check {
        self.faults_before = self.faults_struck();
        let overdue = number > self.swarm.crashes;
        if overdue {
            faults::clear(&self.disks);
        } else if self.rng.u8(0..100) < self.swarm.faults {
            if self.rng.u8(0..4) == 0 {
                // It cancels checkpoints and stops nothing.
                let images = self.image_disks(&self.disks).to_vec();
                faults::plan_full(&mut self.rng, &images);
            } else {
                faults::plan(&mut self.rng, &self.disks, 150);
            }
        }
        if self.rng.u8(0..3) == 0 {
            self.checkpoint_begin()?;
        }
        let steps = self.rng.u32(self.swarm.steps / 2..=self.swarm.steps);
        let space_returns = self.rng.u32(0..=self.swarm.steps);
        let mut grace = self.rng.u8(0..4);
        for step in 0..steps {
            if self.stopped {
                let Some(left) = grace.checked_sub(1) else {
                    break;
                };
                grace = left;
            }
            if step == space_returns && self.swarm.faults > 0 && !self.stopped {
                faults::clear(&self.disks);
            }
            // A life that only makes the run count ends soon after it does.
            if overdue && self.counts() && self.rng.u8(0..8) == 0 {
                break;
            }
            self.step()?;
            self.observe();
        }
        if overdue && !self.stopped && self.tally.checkpoints == 0 {
            self.checkpoint_now()?;
        }
        Ok(())
    }

    /// Restarts until the database is up, through crashes within, and compares.
    fn restart(&mut self) -> Check {
        let depth = match self.rng.u8(0..100) < self.swarm.nested {
            true => self
                .rng
                .u32(1..=NESTED_MAX)
                .min(self.rng.u32(1..=NESTED_MAX)),
            false => 0,
        };
        // Copies are costly. They tell most while a slot holds a mixture, and once the interrupted
        // checkpoint has been taken again.
        let since = self.interrupted.map(|then| self.tally.checkpoints - then);
        let one_in = match since {
            Some(1 | 2) => 2,
            Some(_) => 20,
            None => 40,
        };
        let other_ways = self.rng.u8(0..one_in) == 0;
        for attempt in 0..=depth {
            let before = self.faults_struck();
            if attempt < depth {
                faults::plan(&mut self.rng, &self.disks, 12);
            }
            let (method, schedule) = draw_level(&mut self.rng, self.swarm.scheme);
            self.swarm.options.method = method.name;
            self.swarm.options.schedule = schedule;
            let copies = other_ways.then(|| self.copy_disks());
            match self.open_on(&self.disks) {
                // What a restart leaves for later may be all that met the power cut.
                Ok(_) if self.disks.iter().any(|disk| !disk.has_power()) => self.crash(),
                Ok(steal) => {
                    self.steal = Some(steal);
                    self.faults_before = before;
                    self.check_restart()?;
                    return copies.map_or(Ok(()), |copies| self.check_other_ways(&copies));
                }
                Err(error) if error.family() == Family::Corruption => {
                    return Err(format!("the restart refuses: {error}"));
                }
                Err(error) if self.faults_struck() == before => {
                    return Err(format!("the restart failed without a fault: {error}"));
                }
                Err(_) => self.crash(),
            }
        }
        Err("the restart failed without a fault".to_owned())
    }

    fn check_other_ways(&mut self, copies: &[std::sync::Arc<perdura_device::SimDisk>]) -> Check {
        if self.steal().report().created {
            return Ok(());
        }
        let every = self.rng.u8(0..8) == 0;
        self.check_methods(copies, every)?;
        let choice = self.rng.u64(..);
        self.check_other_image(copies, choice)
    }

    /// Bit rot: one bit of one file, on a copy of the disks.
    fn rot(&mut self) -> Check {
        let copies = self.copy_disks();
        let disk = self.rng.usize(0..copies.len());
        let files = copies[disk].files();
        if files.is_empty() {
            return Ok(());
        }
        let (path, _) = &files[self.rng.usize(0..files.len())];
        let bytes = copies[disk].read_all(path);
        let bytes = bytes.map_err(|error| error.to_string())?;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut at = self.rng.usize(0..bytes.len());
        // Most of a file is zeros; where there is something, damage is more telling.
        if self.rng.u8(0..4) > 0 {
            at = (at..bytes.len()).find(|at| bytes[*at] != 0).unwrap_or(at);
        }
        let at = u64::try_from(at).unwrap_or(0);
        copies[disk].flip(path, at, self.rng.u8(0..8));
        let damage = format!("byte {at} of {path} flipped");
        let started = self.check_damaged(&copies, &damage)?;
        *self.tally.faults.entry("rot").or_default() += 1;
        self.note(started.unwrap_or(u64::MAX));
        Ok(())
    }
}
