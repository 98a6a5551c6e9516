//! The moments that an archive promises, and the choice of files to remove.
//!
//! A *moment* is an epoch that a database can be restored to. A run's records are combined or not. In an uncombined
//! run, each epoch is a moment. In a combined run, only the listed epochs are moments. A [`Retention`] promises some
//! moments, depending on their age: the last moment in each interval of the wall clock. Merges keep only the promised
//! moments ([`Retention::policy`]). The planner ([`plan`](mod@plan)) finds the backups and runs that no promised moment
//! needs.
//!
//! The length of the intervals at an age is the *grain* of that age. Each interval begins at a multiple of the grain.
//! Each grain is a multiple of the next finer grain. Therefore the last moment of a long interval is also the last
//! moment of a short one. So every moment that a coarser grain will promise later is already promised now.
//!
//! | module | one idea |
//! |---|---|
//! | [`words`] | a retention as text: `all 1h, 1s 1d, 1min` |
//! | [`plan`](mod@plan) | the backups and runs to remove |
//! | [`retaining`] | a state machine that reads the planner's inputs and removes files, one I/O a step |
//!
//! # Invariants
//! * Every promised moment stays restorable, whatever the order of merges and removals.
//! * The newest undamaged backup stays.
//!
//! # Source
//! Ours. "Single-pass restore after a media failure" removes nothing.

pub mod plan;
pub mod retaining;
pub mod words;

use std::sync::Arc;

use crate::manifest::Clock;
use crate::merger::{Policy, Verdict};
use crate::run::Moment;

/// An age limit, and the length of the intervals for moments below this age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grain {
    /// The length of the intervals, microseconds. One moment is promised in each interval. 0: each moment is promised.
    pub every_us: u64,
    /// The age limit, microseconds. The grain applies to moments below this age. `None`: it applies to every age.
    pub until_us: Option<u64>,
}

/// The promised moments. By default each moment is promised, forever.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    /// The age limit, microseconds. A moment of this age or older is not promised. `None`: there is no limit.
    keep_us: Option<u64>,
    /// The grains, ordered by age. A moment belongs to the first grain with an age limit above the moment's age. Empty:
    /// each moment is promised.
    grains: Vec<Grain>,
}

impl Retention {
    /// Returns a retention that promises moments according to `grains`. Moments of age `keep_us` or older are not
    /// promised.
    ///
    /// # Errors
    /// A description of the fault in the grains: their ages and lengths must ascend, and each length must be a multiple
    /// of the one before.
    pub fn new(keep_us: Option<u64>, grains: Vec<Grain>) -> Result<Retention, String> {
        for pair in grains.windows(2) {
            let [fine, coarse] = pair else { continue };
            let Some(until) = fine.until_us else {
                return Err("only the last grain is without an age".into());
            };
            if coarse.until_us.is_some_and(|later| later <= until) {
                return Err("the ages ascend: the finest grain is for the youngest moments".into());
            }
            let is_multiple = match fine.every_us {
                0 => coarse.every_us > 0,
                every => coarse.every_us > every && coarse.every_us.is_multiple_of(every),
            };
            if !is_multiple {
                return Err("each grain is a multiple of the finer one before it".into());
            }
        }
        Ok(Retention { keep_us, grains })
    }

    /// Returns the age limit, microseconds. A moment of this age or older is not promised. `None`: there is no limit.
    #[must_use]
    pub fn keep_us(&self) -> Option<u64> {
        self.keep_us
    }

    /// Returns the grains, ordered by age.
    #[must_use]
    pub fn grains(&self) -> &[Grain] {
        &self.grains
    }

    /// Returns the length, in microseconds, of the intervals for moments of this age. 0: each moment is promised.
    /// `None`: no moment of this age is promised.
    #[must_use]
    pub fn grain(&self, age_us: u64) -> Option<u64> {
        if self.keep_us.is_some_and(|keep| age_us >= keep) {
            return None;
        }
        if self.grains.is_empty() {
            return Some(0);
        }
        let mut grains = self.grains.iter();
        let own = grains.find(|grain| grain.until_us.is_none_or(|until| age_us < until));
        own.map(|grain| grain.every_us)
    }

    /// Returns the promised moments among `moments`. `moments` must ascend. The last element of `moments` counts as the
    /// last moment of its interval, because no later moment is known. `ages` returns the age of a moment, microseconds.
    pub fn promised<'m>(
        &'m self,
        moments: &'m [Moment],
        ages: &'m dyn Fn(&Moment) -> u64,
    ) -> impl Iterator<Item = Moment> + 'm {
        (0..moments.len()).filter_map(move |i| {
            let moment = moments[i];
            let every = self.grain(ages(&moment))?;
            let interval = |m: &Moment| m.wall_us.checked_div(every);
            let next = moments.get(i + 1);
            let is_last = next.is_none_or(|next| interval(next) != interval(&moment));
            (every == 0 || is_last).then_some(moment)
        })
    }

    /// Returns the moments that a merge keeps. `moments` are the moments listed by the merge's inputs.
    ///
    /// If the grain at the age of the youngest moment is 0 (each moment is promised), no records are combined. The
    /// merged run then lists the moments that the next coarser grain will promise.
    #[must_use]
    pub fn verdict(&self, moments: &[Moment], ages: &dyn Fn(&Moment) -> u64) -> Verdict {
        let youngest = moments.iter().map(ages).min();
        if self.grain(youngest.unwrap_or(0)) != Some(0) {
            return Verdict::Only(self.promised(moments, ages).collect());
        }
        let coarser = self.grains.iter().find(|grain| grain.every_us > 0);
        let Some(coarser) = coarser else {
            return Verdict::Each;
        };
        let later = Retention {
            keep_us: None,
            grains: vec![Grain {
                until_us: None,
                ..*coarser
            }],
        };
        Verdict::Listing(later.promised(moments, ages).collect())
    }

    /// Returns a policy for a merger. The policy calls [`verdict`](Self::verdict). `now_us` returns the wall clock,
    /// microseconds since 1970. Ages are those of the archive's own clock.
    #[must_use]
    pub fn policy(&self, now_us: Arc<dyn Fn() -> u64 + Send + Sync>) -> Policy {
        let own = self.clone();
        Arc::new(move |clock: &Clock, moments: &[Moment]| {
            let now_us = now_us();
            own.verdict(moments, &|moment| clock.age_us(moment, now_us))
        })
    }
}
