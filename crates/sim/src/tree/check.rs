//! The checks after a restart. The database must have the expected rows. Restarts by the other methods must give the
//! same rows.

use std::sync::Arc;

use perdura_device::SimDisk;
use perdura_recovery::Method;
use perdura_steal::Keyed;

use crate::clients_life::ClientsLife;
use crate::faults;
use crate::lives::Lives;
use crate::machine::copies_of;
use crate::report::Check;
use crate::restarted::{refused, started};
use crate::swarm::pick;

use super::rows::{compare, rows_of};
use super::swarm::legal;
use super::world::World;

impl World {
    /// Checks that the restart of an undamaged database gave the state of the model.
    pub fn verify(&self, keyed: &Keyed) -> Check {
        let report = keyed.report();
        let durable = self.life.kept(keyed);
        self.check_kept(durable)?;
        self.check_images_met(report)?;
        let expected = self.keys.clients.oracle.state_at(durable);
        compare(keyed, &expected).map_err(|what| {
            format!(
                "after the restart at epoch {durable} by {}: {what}",
                report.method
            )
        })
    }

    /// Verifies the open database as [`verify`](Self::verify) does. The oracle then forgets everything that was not
    /// durable.
    pub fn check_state(&mut self) -> Check {
        // The comparison reads the disks. A fault that was planned for the restart must not strike these reads.
        faults::clear(&self.disks);
        self.verify(self.keyed())?;
        let report = self.keyed().report().clone();
        let (kept, durable) = (self.life.kept(self.keyed()), report.durable_epoch);
        self.life = ClientsLife::of(&report);
        if let Some(tree) = report.tree {
            let marks = [
                ("loser", tree.losers),
                ("skipped", tree.skipped_clean + tree.skipped_early),
                ("moved", tree.moved),
                ("read_ahead", tree.pages_read_ahead),
            ];
            for (mark, count) in marks {
                *self.tally.reached.entry(mark).or_default() += count;
            }
        }
        self.keys.clients.oracle.restart(kept);
        self.count_restart(durable);
        Ok(())
    }

    /// Checks that all restart methods give the same rows. Restarts copies of the disks by every legal method, or by
    /// one method chosen at random. The copies have the state from before the last restart. The rows must equal those
    /// after the last restart.
    pub fn check_methods(&mut self, before: &[Arc<SimDisk>], every: bool) -> Check {
        let methods = legal(self.swarm.options.scheme);
        let methods: Vec<&'static Method> = match every {
            true => methods,
            false => vec![pick(&mut self.rng, &methods)],
        };
        for method in methods {
            let copies: Vec<Arc<SimDisk>> = copies_of(before);
            let options = perdura_steal::KeyedOptions {
                method: method.name,
                ..self.swarm.options.clone()
            };
            let opened = self.open_prepared(&copies, options);
            let opened = opened.map_err(|error| format!("by {}: {error}", method.name))?;
            let opened = opened.ok_or("there is no database")?;
            compare(&opened, self.keys.clients.oracle.committed())
                .map_err(|what| format!("by {}: {what}", method.name))?;
        }
        Ok(())
    }

    /// Checks a restart after rot. The restart must fail with an error of the corruption family, or recover whole
    /// epochs without a gap. The last recovered epoch must be at least the machine's `evidence`. Returns the last
    /// recovered epoch, or `None` after an error.
    pub fn check_damaged(&self, disks: &[Arc<SimDisk>], damage: &str) -> Check<Option<u64>> {
        let kept = |keyed: &Keyed| self.life.kept(keyed);
        let started = started(self.open_on(disks), kept, self.evidence, damage)?;
        let Some((keyed, durable)) = started else {
            return Ok(None);
        };
        // The restart did not read every page. So the comparison may be the first to find a damaged page.
        if let Err(error) = rows_of(&keyed) {
            return refused(&error, damage).map(|()| None);
        }
        compare(&keyed, &self.keys.clients.oracle.state_at(durable))
            .map_err(|what| format!("{damage}: started at epoch {durable}: {what}"))?;
        Ok(Some(durable))
    }
}
