//! The comparison after a restart, and the other ways to the same rows.

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
    /// Compares a restart without damage with the model.
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

    /// Verifies the database that is open, as [`verify`](Self::verify) does. The oracle then forgets everything that
    /// was not durable.
    pub fn check_state(&mut self) -> Check {
        // A fault that was planned for the restart must not meet the comparison.
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

    /// Checks that methods do not matter. Every one, or a drawn one, must lead from the disks as the restart found them
    /// to the rows that it made.
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

    /// Checks a restart after rot. It must be an error of the corruption family, or exactly a durable prefix that
    /// reaches at least to the epoch that later evidence names.
    pub fn check_damaged(&self, disks: &[Arc<SimDisk>], damage: &str) -> Check<Option<u64>> {
        let kept = |keyed: &Keyed| self.life.kept(keyed);
        let started = started(self.open_on(disks), kept, self.evidence, damage)?;
        let Some((keyed, durable)) = started else {
            return Ok(None);
        };
        // The next reader finds a damaged page that no restart had to read.
        if let Err(error) = rows_of(&keyed) {
            return refused(&error, damage).map(|()| None);
        }
        compare(&keyed, &self.keys.clients.oracle.state_at(durable))
            .map_err(|what| format!("{damage}: started at epoch {durable}: {what}"))?;
        Ok(Some(durable))
    }
}
