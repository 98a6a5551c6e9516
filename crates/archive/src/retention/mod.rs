//! Which moments an archive promises, and what no promised moment needs.
//!
//! A *moment* is an epoch that can be restored to. Each epoch of a run whose records were not combined is one; of a
//! merged run that was, those that it lists. A [`Retention`] promises some of them, by age: of each interval of the wall
//! clock the last one. Merges keep these and no others ([`Retention::policy`]); the planner ([`plan`](mod@plan)) names
//! backups and runs that none of them needs.
//!
//! An interval is as long as the grain of its age says, and begins at a multiple of that. Each grain is a multiple of the finer
//! one before it, so the last moment of a long interval is the last of a short one as well: what is promised later is kept today.
//!
//! | module | one idea |
//! |---|---|
//! | [`words`] | a retention as people write it: `all 1h, 1s 1d, 1min` |
//! | [`plan`](mod@plan) | which backups and runs go |
//! | [`shown`] | the moments that there are, in ranges |
//! | [`retaining`] | reads what the plan needs, and removes, one I/O a step |
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

/// Of moments younger than some age, how many are promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grain {
    /// One in so many microseconds; 0: each.
    pub every_us: u64,
    /// The age, microseconds; `None`: any.
    pub until_us: Option<u64>,
}

/// What is promised. The default: each moment, for ever.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    /// Moments older than this are promised by nothing else, microseconds; `None`: there is no such age.
    keep_us: Option<u64>,
    /// By age: the first whose age a moment is below counts. None: each moment is promised.
    grains: Vec<Grain>,
}

impl Retention {
    /// Promises by age, up to the age `keep_us`.
    ///
    /// # Errors
    /// What is wrong with the grains: ages and grains ascend, each grain is a multiple of the one before.
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

    /// The age from which on moments may go, microseconds.
    #[must_use]
    pub fn keep_us(&self) -> Option<u64> {
        self.keep_us
    }

    /// The grains, by age.
    #[must_use]
    pub fn grains(&self) -> &[Grain] {
        &self.grains
    }

    /// In intervals of how many microseconds a moment of this age is promised, 0 for each moment by itself; `None`: it is not.
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

    /// The promised ones of moments, which ascend. The last of these is the last of its interval as far as is known here.
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

    /// What a merge keeps of moments, which are those that its inputs list.
    ///
    /// While one of them is promised by itself, no records are combined; listed are then those that a coarser grain will promise.
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

    /// The same for a merger. `now_us` is the wall clock, microseconds since 1970.
    #[must_use]
    pub fn policy(&self, now_us: Arc<dyn Fn() -> u64 + Send + Sync>) -> Policy {
        let own = self.clone();
        Arc::new(move |_, moments| own.verdict(moments, now_us()))
    }
}
