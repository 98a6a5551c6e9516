//! The random choice of the next step.

use crate::locked::close_part;
use crate::report::Check;

use super::world::World;

impl World {
    /// Takes one step. Chooses the kind of the step at random, with the run's weights.
    pub fn draw_step(&mut self) -> Check {
        let odds = self.swarm.odds;
        match self.machine.draw_kind(&odds) {
            0 => self.clients.begin(self.machine.engine()),
            1 => return self.change(false),
            2 => return self.insert(),
            3 => return self.change(true),
            4 => self.commit(),
            5 => self.abort(),
            6 => drop(self.steal().close_epoch()),
            7 => close_part(&mut self.machine),
            8 => return self.flush_one(),
            9 => return self.checkpoint_begin(),
            10 => return self.checkpoint_steps(),
            11 => return self.grow(),
            12 => return self.read(),
            13 => drop(self.steal().checkpoint_cancel()),
            14 => {
                self.machine
                    .clock
                    .advance_us(self.machine.rng.u64(0..2_000_000));
                return self.prepare_one();
            }
            _ => return self.vouch(),
        }
        Ok(())
    }
}
