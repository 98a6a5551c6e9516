//! The comparison after a restart. Restarts by other methods must give the rows of the first restart.

use std::sync::Arc;

use perdura_base::PartitionId;
use perdura_device::SimDisk;
use perdura_recovery::{Level, Method, RestartOptions, Schedule, restart};
use perdura_steal::Steal;

use crate::lives::Lives;
use crate::other_image::OtherImage;
use crate::over_core::anchor_of;
use crate::report::Check;
use crate::restarted::{check_void, started};
use crate::swarm::draw_schedule;

use super::swarm::{draw_level, legal};
use super::world::{State, World, place, spot};

impl World {
    /// Compares an open database with the expected rows.
    pub fn compare(&self, steal: &Steal, expected: &State) -> Check {
        let mut count = 0;
        for partition in (0..self.swarm.options.partitions).map(PartitionId) {
            for found in steal.places(partition) {
                let spot = spot(found);
                let mut bytes = Vec::new();
                let there = steal.read(found, &mut bytes);
                self.same(spot, expected.get(&spot).copied(), there.then_some(&bytes))?;
                count += 1;
            }
        }
        if count == expected.len() {
            return Ok(());
        }
        for (spot, row) in expected {
            let mut bytes = Vec::new();
            let there = steal.read(place(*spot), &mut bytes);
            self.same(*spot, Some(*row), there.then_some(&bytes))?;
        }
        Err(format!("{count} rows, the model has {}", expected.len()))
    }

    /// Compares the model with the result of a restart from undamaged disks.
    pub fn verify(&self, steal: &Steal) -> Check {
        let report = steal.report();
        let durable = report.durable_epoch;
        self.check_kept(durable)?;
        self.check_images_met(report)?;
        check_void(report, steal.wal().current().0)?;
        let expected = self.clients.oracle.state_at(durable);
        self.compare(steal, &expected).map_err(|what| {
            format!(
                "after the restart at epoch {durable} by {} at level {}: {what}",
                report.method, report.level
            )
        })
    }

    /// Verifies the open database as [`verify`](Self::verify) does. The oracle then forgets everything that was not
    /// durable.
    pub fn check_state(&mut self) -> Check {
        self.verify(self.steal())?;
        let durable = self.steal().report().durable_epoch;
        self.clients.oracle.restart(durable);
        self.count_restart(durable);
        Ok(())
    }

    /// Checks that the method, the level and the order of jobs do not change the result of a restart. `before` holds
    /// the disks as they were before the latest restart. If `every`, restarts them with every legal method at every
    /// level. Otherwise restarts them with one method and level, chosen at random. Each of these restarts must lead to
    /// the rows of the latest restart.
    pub fn check_methods(&mut self, before: &[Arc<SimDisk>], every: bool) -> Check {
        let mut ways: Vec<(&'static Method, Schedule)> = Vec::new();
        if every {
            for level in Level::ALL {
                for method in legal(self.swarm.scheme, level) {
                    ways.push((method, draw_schedule(&mut self.rng, level)));
                    if self.rng.u8(0..4) == 0 {
                        ways.push((method, Schedule::new(level, self.rng.usize(1..=3))));
                    }
                }
            }
        } else {
            ways.push(draw_level(&mut self.machine.rng, self.swarm.scheme));
        }
        let made = self.steal().digest();
        for (method, schedule) in ways {
            if self.dry_run(before, method, schedule)? != made {
                let report = self.steal().report();
                return Err(format!(
                    "{} at level {} gives other rows than {} at level {}",
                    method.name,
                    schedule.level.number(),
                    report.method,
                    report.level
                ));
            }
        }
        Ok(())
    }

    fn dry_run(
        &self,
        disks: &[Arc<SimDisk>],
        method: &'static Method,
        schedule: Schedule,
    ) -> Check<String> {
        let env = self.env(disks);
        let options = RestartOptions {
            mode: perdura_recovery::RestartMode::Dry,
            ..RestartOptions::of_records(env.disks, env.clock, schedule, method)
        };
        match restart(&options) {
            Ok(Some(restarted)) => Ok(perdura_steal::digest(&restarted.heap)),
            Ok(None) => Err("dry run: there is no database".to_owned()),
            Err(error) => Err(format!("dry run by {}: {error}", method.name)),
        }
    }

    /// Damages the newest image, wholly or in one page. A restart from the older image must then lead to the rows of
    /// the open database. Another restart, after the next checkpoint, must lead to them too. `before` holds the disks
    /// from before the open database's own restart.
    pub fn check_other_image(&self, before: &[Arc<SimDisk>], choice: u64) -> Check {
        let anchor = anchor_of(&before[0])?.ok_or("the anchor is gone")?;
        let standby = OtherImage {
            engine: self.steal(),
            before,
            image_disks: self.image_disks(before),
            open: |disks: &[Arc<SimDisk>]| self.open_on(disks),
            compare: |other: &Steal| self.compare(other, self.clients.oracle.committed()),
        };
        standby.check(&anchor, choice)
    }

    /// Checks a restart after rot. The restart must fail with an error of the corruption family, or recover whole
    /// epochs without a gap. Their last epoch must be at least the machine's `evidence`. Returns this last epoch, or
    /// `None` after an error.
    pub fn check_damaged(&self, disks: &[Arc<SimDisk>], damage: &str) -> Check<Option<u64>> {
        let kept = |steal: &Steal| steal.report().durable_epoch;
        let started = started(self.open_on(disks), kept, self.evidence, damage)?;
        let Some((steal, durable)) = started else {
            return Ok(None);
        };
        self.compare(&steal, &self.clients.oracle.state_at(durable))
            .map_err(|what| format!("{damage}: started at epoch {durable}: {what}"))?;
        Ok(Some(durable))
    }
}
