//! The draw of the next step.

use crate::report::Check;

use super::swarm::KINDS_OF_TABLES;
use super::tree_swarm::STEPS;
use super::world::World;

impl World {
    /// Does one step. Chooses the kind of step at random, by the run's odds.
    pub fn draw_step(&mut self) -> Check {
        let odds = self.swarm.odds;
        match self.machine.draw_kind(&odds) {
            0 => return self.call_step(),
            1 => return self.edit_step(),
            2 => self.close(),
            3 => return self.flush_one(),
            4 => return self.checkpoint_begin(),
            5 => return self.checkpoint_steps(),
            6 => return self.prepare_one(),
            7 => return self.purge(),
            8 => drop(self.core().wal().append_beacon()),
            9 => self.move_clock(),
            10 => return self.vouch(),
            11 => return self.snapshot_step(),
            12 => return self.empty_step(),
            13 => return self.drop_step(),
            kind => return self.tree_step(STEPS[kind - KINDS_OF_TABLES]),
        }
        Ok(())
    }

    /// Takes a step of the purge. In this mode no row expires and no collection is orphaned. So the purge frees pages
    /// but deletes no row.
    fn purge(&mut self) -> Check {
        match self.core().purge_step() {
            Ok(_) => Ok(()),
            Err(error) => self.tolerate("purge_step", &error),
        }
    }
}
