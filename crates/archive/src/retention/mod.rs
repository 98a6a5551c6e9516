//! The moments that an archive promises, and the files that no promised moment needs.
//!
//! A *moment* is an epoch that can be restored to. In a run whose records were not combined each epoch is one. In a
//! merged run whose records were combined, only the listed epochs are. A [`Retention`] promises some of them, by age:
//! of each interval of the wall clock the last one. Merges keep these and no others ([`Retention::policy`]). The
//! planner ([`plan`](mod@plan)) names backups and runs that none of them needs.
//!
//! The length of an interval is the grain of its age, and it begins at a multiple of that. Each grain is a multiple of
//! the finer one before it, so the last moment of a long interval is the last of a short one as well. So every moment
//! that is promised later is kept today.
//!
//! | module | one idea |
//! |---|---|
//! | [`words`] | a retention as people write it: `all 1h, 1s 1d, 1min` |
//! | [`plan`](mod@plan) | the backups and runs to remove |
//! | [`shown`] | the existing moments, in ranges |
//! | [`retaining`] | reads the plan's inputs, and removes, one I/O a step |
//!
//! # Invariants
//! * Every promised moment stays restorable, whatever merges and removals come in whatever order.
//! * The last backup that is whole stays.
//!
//! # Source
//! "Single-pass restore after a media failure" keeps everything; this is ours.

pub mod plan;
pub mod retaining;
pub mod shown;
pub mod words;

use std::sync::Arc;

use crate::merger::{Policy, Verdict};
use crate::run::Moment;

/// The density of promised moments younger than some age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grain {
    /// The interval of which one moment is promised, microseconds; 0: each moment is.
    pub every_us: u64,
    /// The age, microseconds. `None`: any age.
    pub until_us: Option<u64>,
}

/// The promised moments. The default: each moment, for ever.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    /// The age from which on moments are not promised, microseconds. `None`: no such age is set.
    keep_us: Option<u64>,
    /// The grains, by age. The first whose age a moment is below counts. Empty: each moment is promised.
    grains: Vec<Grain>,
}

impl Retention {
    /// Promises by age, up to the age `keep_us`.
    ///
    /// # Errors
    /// The fault of the grains: ages and grains must ascend, and each grain must be a multiple of the one before.
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

    /// Returns the age from which on moments may be removed, microseconds. `None`: no such age is set.
    #[must_use]
    pub fn keep_us(&self) -> Option<u64> {
        self.keep_us
    }

    /// Returns the grains, by age.
    #[must_use]
    pub fn grains(&self) -> &[Grain] {
        &self.grains
    }

    /// Returns the length of the intervals in which a moment of this age is promised, microseconds. 0: each moment is
    /// promised. `None`: the moment is not promised.
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

    /// Returns the promised moments of `moments`, which ascend. The last of `moments` counts as the last of its
    /// interval, because no later one is known here.
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

    /// Returns the verdict of a merge on the moments that its inputs list.
    ///
    /// While one of them is promised by itself, no records are combined. The run then lists the moments that a coarser
    /// grain will promise.
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
