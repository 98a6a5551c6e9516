//! Random elements of a collection, each at most once.
//!
//! Few of many are drawn one by one until enough different ones have come; many of few are taken
//! from a list of all that is shuffled as far as needed.

use std::collections::HashSet;

use crate::open::{Entry, Source};

/// Above one in so many, all elements are listed first.
const DRAWN_OF_MIN: u64 = 3;

impl Source<'_> {
    /// `count` random elements, or all if there are no more, in no order. `random` answers random
    /// numbers below its argument.
    pub fn sample(&self, count: u64, mut random: impl FnMut(u64) -> u64) -> Vec<Entry<'_>> {
        let len = self.len();
        let drawn = match self {
            Source::Small(_) => false,
            Source::Rows(_) => count < len / DRAWN_OF_MIN,
        };
        if drawn {
            return self.draw(count, random);
        }
        let mut all: Vec<Entry<'_>> = self.iter().collect();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count >= all.len() {
            return all;
        }
        for at in 0..count {
            let left = perdura_base::num::to_u64(all.len() - at);
            all.swap(at, at + perdura_base::num::to_usize(random(left)));
        }
        all.truncate(count);
        all
    }

    fn draw(&self, count: u64, mut random: impl FnMut(u64) -> u64) -> Vec<Entry<'_>> {
        let wanted = usize::try_from(count).unwrap_or(usize::MAX);
        let (mut seen, mut out) = (HashSet::new(), Vec::new());
        while out.len() < wanted {
            let Some(entry) = self.random(random(u64::MAX)) else {
                break;
            };
            if seen.insert(entry.key().to_vec()) {
                out.push(entry);
            }
        }
        out
    }
}
