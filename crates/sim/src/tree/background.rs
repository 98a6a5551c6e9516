//! Draws the next step.

use crate::locked::close_part;
use crate::report::Check;

use super::client::write_pages;
use super::world::World;

impl World {
    /// Takes one step, drawn by the run's odds.
    pub fn draw_step(&mut self) -> Check {
        let odds = self.swarm.odds;
        match self.machine.draw_kind(&odds) {
            0 => self.keys.clients.begin(self.machine.engine().txns()),
            1 => return self.write(false),
            2 => return self.write(true),
            3 => self.commit(),
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

    fn write(&mut self, removes: bool) -> Check {
        let (rng, keyed) = self.machine.parts();
        match self.keys.write(rng, keyed.txns(), removes) {
            Ok(checked) => checked,
            Err(error) => self.tolerate("write", &error),
        }
    }

    fn commit(&mut self) {
        let clients = &mut self.keys.clients;
        if let Some(at) = clients.pick(&mut self.machine.rng, false) {
            let committed = clients.commit(at, self.machine.engine().txns());
            self.machine.promise(committed.epoch.0, committed);
        }
    }

    fn abort(&mut self) -> Check {
        let (rng, keyed) = self.machine.parts();
        match self.keys.abort(rng, keyed.txns()) {
            Ok(()) => Ok(()),
            Err(error) => self.tolerate("abort", &error),
        }
    }

    fn read(&mut self) -> Check {
        let (rng, keyed) = self.machine.parts();
        match self.keys.read(rng, keyed.txns()) {
            Ok(checked) => checked,
            Err(error) => self.tolerate("read", &error),
        }
    }

    fn write_pages(&mut self) -> Check {
        let (rng, keyed) = self.machine.parts();
        match write_pages(rng, keyed.txns(), keyed.options().dirty_max()) {
            Ok(()) => Ok(()),
            Err(error) => self.tolerate("write_step", &error),
        }
    }
}
