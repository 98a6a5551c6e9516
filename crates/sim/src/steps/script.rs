//! The step that runs a transaction as a script.

use perdura::{Error, PartitionSet, Renewal};
use perdura_device::Clock;

use crate::ops::{self, Op, View, key_bytes};
use crate::report::Check;
use crate::scripts::Script;
use crate::world::World;

impl World {
    /// Runs a script that declares its first key or none.
    pub(super) fn transact_script(&mut self) -> Check {
        let now_ms = self.clock.wall_us() / 1000;
        let (rng, live) = (&mut self.script_rng, self.model.live());
        let count = rng.usize(1..=6);
        let ops = (0..count).map(|_| ops::draw(rng, &self.swarm, live, now_ms, true));
        let ops: Vec<Op> = ops.collect();
        let mut script = Script::draw(rng, ops);
        let declared = match rng.bool() {
            true => script.ops[0].places(),
            false => None,
        };
        let core = self.machine.engine();
        let mut parts = PartitionSet::empty();
        for place in declared.into_iter().flatten() {
            parts.insert(core.partition_of(&key_bytes(place.1)));
        }
        let scratch = &mut self.scratch;
        let mut changes = Vec::new();
        let result = core.transact(&parts, |tx| {
            let mut view = View::new(live, now_ms);
            let mut renewal = Renewal::default();
            let check = script.run(core, (tx, &mut renewal), (&mut view, now_ms), scratch)?;
            changes = view.changes();
            let renews = script
                .done()
                .iter()
                .any(|op| matches!(op, Op::Flush(_) | Op::Swap(..)));
            let flushed = match renews {
                true => Some(core.finish_flush(tx, &renewal)?),
                false => None,
            };
            Ok((check, flushed))
        });
        if script.runs > 1 {
            self.reached("script_rerun");
        }
        match result {
            Ok(((check, flushed), ticket)) => {
                check?;
                if script.ending.undoes() {
                    return Err(format!(
                        "a script is kept that ended by {:?}",
                        script.ending
                    ));
                }
                if let Some(flushed) = flushed {
                    self.core().reclaim_flushed(flushed);
                }
                self.reached(script.ending.mark());
                self.committed(&script.done(), changes, ticket, now_ms);
                Ok(())
            }
            Err(Error::Usage(_)) if script.ending.undoes() => {
                self.reached(script.ending.mark());
                Ok(())
            }
            Err(error) => self.tolerate("transact_script", &error),
        }
    }

    fn reached(&mut self, mark: &'static str) {
        *self.tally.reached.entry(mark).or_default() += 1;
    }
}
