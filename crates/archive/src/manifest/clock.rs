//! The database's clock, as its archive saw it.
//!
//! A wall clock can jump, be set back, or stand still while the database is closed. The manifest lists such *steps*. So
//! a restore can name a time that the clock showed twice, and retention takes no jump for age.
//!
//! # Invariants
//! * A step forward adds at most an hour to a moment's age. So an archive that was away, or a clock that jumped, removes
//!   next to nothing early.

use perdura_base::Epoch;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_u64};

use crate::run::Moment;

/// A gap between two readings that is longer than this is a step forward, microseconds.
pub const GAP_US: u64 = 60 * 60 * 1_000_000;
/// The longest step back that counts as a correction of the clock, microseconds. A longer one is a step.
pub const TOLERANCE_US: u64 = 1_000_000;
/// The maximum number of steps that a manifest lists.
pub(super) const STEPS_MAX: usize = 1000;
/// The encoded size without steps, bytes.
pub(super) const HEAD_BYTES: usize = 16;
/// The encoded size of a step, bytes.
pub(super) const STEP_BYTES: usize = 24;

/// A step of the clock: it went back, or the next reading came much later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The first epoch after the step.
    pub epoch: Epoch,
    /// The last reading before the step, microseconds since 1970.
    pub from_us: u64,
    /// The first reading after it.
    pub to_us: u64,
}

impl Step {
    /// Returns whether the clock went back.
    #[must_use]
    pub fn is_back(&self) -> bool {
        self.to_us < self.from_us
    }
}

/// The last reading of the clock, and its steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clock {
    /// The last reading, microseconds since 1970: the time of the last moment, or a later time at which the archive had
    /// everything. 0: no reading is known.
    pub seen_us: u64,
    /// The steps, ascending by epoch.
    pub steps: Vec<Step>,
}

impl Clock {
    /// Notes a reading at the end of `epoch`, or before `epoch` has begun.
    pub fn see(&mut self, epoch: Epoch, wall_us: u64) {
        let seen = std::mem::replace(&mut self.seen_us, wall_us);
        let is_back = wall_us.saturating_add(TOLERANCE_US) < seen;
        let is_later = wall_us > seen.saturating_add(GAP_US);
        if seen == 0 || !is_back && !is_later {
            self.seen_us = wall_us.max(seen);
            return;
        }
        debug_assert!(
            self.steps.last().is_none_or(|last| last.epoch <= epoch),
            "readings come in the order of their epochs"
        );
        assert!(self.steps.len() <= STEPS_MAX, "steps are bounded");
        self.steps.push(Step {
            epoch,
            from_us: seen,
            to_us: wall_us,
        });
        self.bound();
    }

    /// Notes the moments of a run.
    pub fn see_all(&mut self, moments: &[Moment]) {
        for moment in moments.iter().filter(|moment| moment.wall_us > 0) {
            self.see(moment.epoch, moment.wall_us);
        }
    }

    /// Makes room for the next step. Two old steps become one that counts for both.
    fn bound(&mut self) {
        if self.steps.len() <= STEPS_MAX {
            return;
        }
        if let Some(back) = self.steps.iter().position(Step::is_back) {
            self.steps.remove(back);
            return;
        }
        let oldest = self.steps.remove(0);
        // A moment between the two now counts as before both, so it is kept longer.
        let forward = (oldest.to_us - oldest.from_us).saturating_sub(GAP_US);
        let next = &mut self.steps[0];
        next.from_us = next.from_us.saturating_sub(forward);
    }

    /// Forgets the steps before `begin`: no moment before them is left.
    pub fn forget(&mut self, begin: Epoch) {
        self.steps.retain(|step| step.epoch > begin);
        assert!(self.steps.len() <= STEPS_MAX, "none was added");
    }

    /// Returns the age of a moment, microseconds, at the wall clock `now_us`. A later step forward counts as an hour, and
    /// so does a clock that is further ahead of the last reading. So an age never falls.
    #[must_use]
    pub fn age_us(&self, moment: &Moment, now_us: u64) -> u64 {
        let known_us = match self.seen_us {
            0 => now_us,
            seen => now_us.min(seen.saturating_add(GAP_US)),
        };
        let later = self.steps.iter().filter(|step| step.epoch > moment.epoch);
        let jumped: u64 = later
            .map(|step| {
                step.to_us
                    .saturating_sub(step.from_us)
                    .saturating_sub(GAP_US)
            })
            .fold(0, u64::saturating_add);
        let age = known_us.saturating_sub(moment.wall_us);
        age.saturating_sub(jumped)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.steps.len() <= STEPS_MAX, "steps are bounded");
        out.put_u64(self.seen_us);
        out.put_u32(to_u32(self.steps.len()));
        out.put_u32(0);
        for step in &self.steps {
            out.put_u64(step.epoch.0);
            out.put_u64(step.from_us);
            out.put_u64(step.to_us);
        }
    }

    /// Decodes a clock. `None`: [`encode`](Self::encode) never writes these bytes.
    pub(super) fn decode(r: &mut Reader<'_>) -> Option<Clock> {
        let seen_us = r.u64()?;
        let count = usize::try_from(r.u32()?).ok()?;
        r.zeros(4)?;
        if count > STEPS_MAX || r.remaining() < count * STEP_BYTES {
            return None;
        }
        let mut steps: Vec<Step> = Vec::with_capacity(count);
        for _ in 0..count {
            let step = Step {
                epoch: Epoch(r.u64()?),
                from_us: r.u64()?,
                to_us: r.u64()?,
            };
            if steps.last().is_some_and(|last| step.epoch < last.epoch) {
                return None;
            }
            steps.push(step);
        }
        Some(Clock { seen_us, steps })
    }

    /// Returns the encoded size, bytes.
    pub(super) fn bytes(&self) -> u64 {
        to_u64(HEAD_BYTES + STEP_BYTES * self.steps.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = GAP_US;
    const DAY: u64 = 24 * HOUR;

    fn seen(readings: &[(u64, u64)]) -> Clock {
        let mut clock = Clock::default();
        for (epoch, wall_us) in readings {
            clock.see(Epoch(*epoch), *wall_us);
        }
        clock
    }

    fn age(clock: &Clock, epoch: u64, wall_us: u64, now_us: u64) -> u64 {
        let moment = Moment {
            epoch: Epoch(epoch),
            wall_us,
        };
        clock.age_us(&moment, now_us)
    }

    #[test]
    fn a_clock_that_runs_has_no_steps() {
        let clock = seen(&[(1, DAY), (2, DAY + 1), (3, DAY + HOUR), (3, DAY + HOUR - 5)]);
        assert!(clock.steps.is_empty());
        assert_eq!(clock.seen_us, DAY + HOUR);
        assert_eq!(age(&clock, 1, DAY, DAY + HOUR), HOUR);
    }

    /// A clock three days ahead with `archive-keep 1d` removed four of five backups in two seconds.
    #[test]
    fn a_jump_of_the_clock_makes_nothing_older() {
        // The agent's own clock is ahead.
        let clock = seen(&[(1, DAY), (9, DAY + HOUR)]);
        assert_eq!(age(&clock, 1, DAY, 4 * DAY), 2 * HOUR);
        // The database's clock is ahead, and it writes.
        let clock = seen(&[(1, DAY), (9, DAY + HOUR), (10, 4 * DAY), (11, 4 * DAY + 5)]);
        assert_eq!(clock.steps.len(), 1);
        assert_eq!(age(&clock, 1, DAY, 4 * DAY + 5), 2 * HOUR + 5);
        assert_eq!(age(&clock, 10, 4 * DAY, 4 * DAY + 5), 5);
        // It is set back.
        let clock = seen(&[(9, DAY + HOUR), (10, 4 * DAY), (11, DAY + 2 * HOUR)]);
        assert_eq!(clock.steps.len(), 2);
        assert!(clock.steps[1].is_back());
        assert_eq!(age(&clock, 9, DAY + HOUR, DAY + 2 * HOUR), 0);
        assert_eq!(age(&clock, 10, 4 * DAY, DAY + 2 * HOUR), 0);
        assert_eq!(age(&clock, 11, DAY + 2 * HOUR, DAY + 3 * HOUR), HOUR);
    }

    #[test]
    fn steps_are_bounded_and_each_adds_an_hour_at_most() {
        let mut clock = Clock::default();
        for nth in 1..3000u64 {
            clock.see(Epoch(nth), nth * 2 * DAY);
            assert!(clock.steps.len() <= STEPS_MAX);
        }
        for nth in [1, 2, 5, 1500, 2998] {
            let counted = age(&clock, nth, nth * 2 * DAY, 2999 * 2 * DAY);
            assert!(counted <= (2999 - nth) * HOUR, "{nth}: {counted}");
        }
        let mut out = Vec::new();
        clock.encode(&mut out);
        assert_eq!(to_u64(out.len()), clock.bytes());
        assert_eq!(Clock::decode(&mut Reader::new(&out)), Some(clock));
    }
}
