//! The draw of the next step.

use crate::locked::close_part;
use crate::report::Check;

use super::client::KeyStep;
use super::world::World;

impl World {
    /// Takes one step. Chooses its kind at random, by the run's weights.
    pub fn draw_step(&mut self) -> Check {
        let odds = self.swarm.odds;
        match self.machine.draw_kind(&odds) {
            0 => return self.step_of_clients(KeyStep::Begin),
            1 => return self.step_of_clients(KeyStep::Put),
            2 => return self.step_of_clients(KeyStep::Remove),
            3 => return self.step_of_clients(KeyStep::Commit),
            4 => return self.step_of_clients(KeyStep::Abort),
            5 => drop(self.keyed().close_epoch()),
            6 => close_part(&mut self.machine),
            7 => return self.flush_one(),
            8 => return self.checkpoint_begin(),
            9 => return self.checkpoint_steps(),
            10 => return self.step_of_clients(KeyStep::Read),
            11 => return self.step_of_clients(KeyStep::WritePages),
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

    /// Takes a step of the clients.
    fn step_of_clients(&mut self, step: KeyStep) -> Check {
        let (rng, keyed) = self.machine.parts();
        match self.keys.step(step, rng, keyed.txns()) {
            Ok(Ok(Some(committed))) => self.promise(committed.epoch.0, committed),
            Ok(checked) => return checked.map(drop),
            Err(error) => return self.tolerate("a step of clients", &error),
        }
        Ok(())
    }
}
