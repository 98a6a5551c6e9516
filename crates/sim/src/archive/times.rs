//! The clock of a run, and restores of times.
//!
//! The run notes the clock, the durable epoch and the current epoch before each step. Between two notes without a step
//! back, the clock has shown all times between them. A time in this interval leads to the durable epoch of the first
//! note, the current epoch of the second, or an epoch between the two.

use std::collections::BTreeSet;

use perdura_archive::manifest::clock::TOLERANCE_US;
use perdura_archive::{Retention, Store};
use perdura_base::Error;
use perdura_device::Clock;
use perdura_restore::At;
use perdura_wal::Rung;

use crate::report::Check;

use super::world::ArchiveWorld;

/// The microseconds of an hour.
const HOUR_US: u64 = 3_600_000_000;
/// The microseconds of a day.
const DAY_US: u64 = 24 * HOUR_US;
/// The maximum number of notes.
const SAMPLES_MAX: usize = 4000;

/// The clock and the epochs before a step.
#[derive(Debug, Clone, Copy)]
struct Sample {
    wall_us: u64,
    durable: u64,
    current: u64,
}

/// The notes since the database was made, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<Sample>);

impl Samples {
    /// Returns whether the clock may have shown the time while `epoch` was the last one in `changed`, the epochs with
    /// changes. `None`: the archive may lack some of them. A small correction of the clock makes no difference.
    fn has(&self, time_us: u64, epoch: u64, changed: Option<&BTreeSet<u64>>) -> bool {
        self.0.windows(2).any(|pair| {
            let [before, after] = pair else { return false };
            let is_within =
                before.wall_us <= time_us + TOLERANCE_US && time_us <= after.wall_us + TOLERANCE_US;
            let is_old = before.durable > epoch
                && changed
                    .is_some_and(|all| all.range(epoch + 1..=before.durable).next().is_some());
            is_within && !is_old && epoch <= after.current
        })
    }
}

impl ArchiveWorld {
    /// Notes the clock and the epochs.
    pub(crate) fn sample(&mut self) {
        let Some(core) = &self.world.machine.engine else {
            return;
        };
        let sample = Sample {
            wall_us: self.clock.wall_us(),
            durable: core.wal().durable(Rung::Disk).0,
            current: core.wal().current().0,
        };
        if self.samples.0.len() < SAMPLES_MAX {
            self.samples.0.push(sample);
        }
    }

    /// Returns what the archive keeps.
    pub(crate) fn retention(&self) -> Retention {
        let keep_us = self.character.keep_days.map(|days| days * DAY_US);
        #[cfg(test)]
        let keep_us = keep_us.map(crate::tests::mistakes::keep_us);
        Retention::new(keep_us, Vec::new()).expect("no grains are in a wrong order")
    }

    /// Lets time pass: a moment, an idle hour, or a step of the wall clock.
    pub(crate) fn age(&mut self) {
        if !self.character.jumps || self.rng.u8(0..4) > 0 {
            let us = self.rng.u64(0..1_500_000);
            self.clock.advance_us(us);
            return;
        }
        let now = self.clock.wall_us();
        match self.rng.u8(0..3) {
            0 => {
                self.clock.advance_us(2 * HOUR_US);
                self.reach("idle_hour");
            }
            1 => {
                let ahead = self.rng.u64(1..60) * DAY_US;
                self.clock.set_wall_us(now + ahead);
                self.reach("clock_jumped");
            }
            _ => {
                let back = self.rng.u64(1..60) * HOUR_US;
                self.clock.set_wall_us(now - back);
                self.reach("clock_set_back");
            }
        }
    }

    /// Looks up a time in the archive, and compares the epoch with the notes.
    pub(crate) fn look_up_time(&mut self) -> Check {
        if !self.told.exists || self.is_gone || self.samples.0.len() < 2 {
            return Ok(());
        }
        let uuid = self.uuid();
        let store = match Store::read_only(self.store.life(), &uuid) {
            Ok(store) => store,
            Err(error) => return self.store_failed("the opening for a time", &error),
        };
        #[cfg(test)]
        if let Some(store) = self.archiving.as_ref().and_then(|a| a.lent().get()) {
            let noted = crate::tests::mistakes::vouch(&store, self.clock.wall_us());
            if let Err(error) = noted {
                return self.store_failed("a note", &error);
            }
        }
        let count = self.samples.0.len();
        let nth = self.rng.usize(0..count);
        let time_us = self.samples.0[nth].wall_us + self.rng.u64(0..1000);
        let now_us = self.clock.wall_us();
        let chosen = match At::Time(time_us).resolve(&store, &[], now_us) {
            Ok(chosen) => chosen,
            Err(Error::Usage(_)) => {
                self.reach("time_refused");
                return Ok(());
            }
            Err(error) => return self.store_failed("a time", &error),
        };
        self.reach("time_found");
        // A merge may drop moments. The last moment that is left may be older than the state at the time.
        let changed = self.timeline.epochs(&self.world.model);
        let changed = Some(&changed).filter(|_| self.character.grain.is_none());
        if self.samples.has(time_us, chosen.epoch.0, changed) {
            return Ok(());
        }
        Err(format!(
            "the time {time_us} led to epoch {}, which was not the last one then",
            chosen.epoch
        ))
    }
}
