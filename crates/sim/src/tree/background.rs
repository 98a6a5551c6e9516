//! Draws the next step.

use crate::locked::close_part;
use crate::report::Check;

use super::world::World;

impl World {
    /// Takes one step, drawn by the run's odds.
    pub fn draw_step(&mut self) -> Check {
        let odds = self.swarm.odds;
        match self.machine.draw_kind(&odds) {
            0 => self.clients.begin(self.machine.engine()),
            1 => return self.write(false),
            2 => return self.write(true),
            3 => self.clients.commit(&mut self.machine),
            4 => return self.abort(),
            5 => drop(self.keyed().close_epoch()),
            6 => close_part(&mut self.machine),
            7 => return self.flush_one(),
            8 => return self.checkpoint_begin(),
            9 => return self.checkpoint_steps(),
            10 => return self.read(),
            11 => return self.write_pages(),
            12 => {
                self.machine
                    .clock
                    .advance_us(self.machine.rng.u64(0..2_000_000));
                if self.machine.rng.bool() {
                    self.keyed().checkpoint_cancel();
                }
                return self.prepare_one();
            }
            _ => return self.vouch(),
        }
        Ok(())
    }

    /// Steps of the writer of pages: as long as it should work, or one that nobody asked for.
    fn write_pages(&mut self) -> Check {
        for _ in 0..self.rng.u8(1..=8) {
            if let Err(error) = self.keyed().txns().write_step() {
                return self.tolerate("write_step", &error);
            }
            if !self.keyed().is_dirty() {
                break;
            }
        }
        Ok(())
    }
}
