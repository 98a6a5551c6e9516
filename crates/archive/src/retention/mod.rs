//! The moments that an archive promises, and the files that no promised moment needs.
//!
//! A *moment* is an epoch to which a database can be restored. In a run whose records were not combined each epoch is
//! a moment. In a run whose records were combined, only the listed epochs are. A [`Retention`] promises some moments,
//! depending on their age: the last moment in each interval of the wall clock. Merges keep the promised moments and
//! no others ([`Retention::policy`]). The planner ([`plan`](mod@plan)) finds the backups and runs that no promised
//! moment needs.
//!
//! The length of the intervals is the *grain* of an age, and each interval begins at a multiple of it. Each grain is
//! a multiple of the next finer one. So the last moment of a long interval is also the last moment of a short one. So
//! every moment that a coarser grain will promise later is already promised now.
//!
//! | module | one idea |
//! |---|---|
//! | [`words`] | a retention as text: `all 1h, 1s 1d, 1min` |
//! | [`plan`](mod@plan) | the backups and runs to remove |
//! | [`shown`] | the existing moments, in ranges, for display |
//! | [`retaining`] | a machine that reads the planner's inputs and removes files, one I/O a step |
//!
//! # Invariants
//! * Every promised moment stays restorable, whatever the order of merges and removals.
//! * The newest undamaged backup stays.
//!
//! # Source
//! Ours. "Single-pass restore after a media failure" removes nothing.

pub mod plan;
pub mod retaining;
pub mod shown;
pub mod words;

use std::sync::Arc;

use crate::merger::{Policy, Verdict};
use crate::run::Moment;

/// The density of the promised moments, up to an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grain {
    /// The length of the intervals in each of which one moment is promised, microseconds. 0: each moment is promised.
    pub every_us: u64,
    /// The grain is for moments below this age, microseconds. `None`: for all ages.
    pub until_us: Option<u64>,
}

/// The promised moments. By default each moment is promised, forever.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    /// Moments of this age and older are not promised, microseconds. `None`: there is no such limit.
    keep_us: Option<u64>,
    /// The grains, ordered by age. For a moment the first grain with a higher age applies. Empty: each moment is
    /// promised.
    grains: Vec<Grain>,
}

impl Retention {
    /// Promises moments by `grains`, up to the age `keep_us`.
    ///
    /// # Errors
    /// A description of what is wrong with the grains: their ages and lengths must ascend, and each length must be a
    /// multiple of the one before.
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

    /// Returns the age from which moments are not promised, microseconds. `None`: there is no such limit.
    #[must_use]
    pub fn keep_us(&self) -> Option<u64> {
        self.keep_us
    }

    /// Returns the grains, ordered by age.
    #[must_use]
    pub fn grains(&self) -> &[Grain] {
        &self.grains
    }

    /// Returns the length of the intervals for moments of this age, microseconds. One moment is promised in each
    /// interval. 0: each moment is promised. `None`: no moment of this age is promised.
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

    /// Returns the moments in `moments` that are promised. `moments` must ascend. Its last moment counts as the last
    /// of its interval, because a later moment is not known here.
    pub fn promised<'m>(
        &'m self,
        moments: &'m [Moment],
        now_us: u64,
    ) -> impl Iterator<Item = Moment> + 'm {
        (0..moments.len()).filter_map(move |i| {
            let moment = moments[i];
            let every = self.grain(now_us.saturating_sub(moment.wall_us))?;
            let interval = |m: &Moment| m.wall_us.checked_div(every);
            let next = moments.get(i + 1);
            let is_last = next.is_none_or(|next| interval(next) != interval(&moment));
            (every == 0 || is_last).then_some(moment)
        })
    }

    /// Returns which moments a merge is to keep of those that its inputs list.
    ///
    /// While each moment of the youngest one's age is promised, no records are combined. The merged run then lists
    /// the moments that the next coarser grain will promise.
    #[must_use]
    pub fn verdict(&self, moments: &[Moment], now_us: u64) -> Verdict {
        let youngest = moments.iter().map(|m| m.wall_us).max();
        let age_us = youngest.map_or(0, |wall_us| now_us.saturating_sub(wall_us));
        if self.grain(age_us) != Some(0) {
            return Verdict::Only(self.promised(moments, now_us).collect());
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
        Verdict::Listing(later.promised(moments, now_us).collect())
    }

    /// Returns [`verdict`](Self::verdict) as the policy of a merger. `now_us` returns the wall clock, microseconds
    /// since 1970.
    #[must_use]
    pub fn policy(&self, now_us: Arc<dyn Fn() -> u64 + Send + Sync>) -> Policy {
        let own = self.clone();
        Arc::new(move |_, moments| own.verdict(moments, now_us()))
    }
}
