//! Random elements of a collection, each at most once.
//!
//! If a small share of the elements is wanted, elements are drawn one by one. Repeated draws of an element are ignored.
//! For a larger share, all elements are listed. Then the wanted number of elements is shuffled to the list's front.

use std::collections::HashSet;

use crate::open::{Entry, Source};

/// A limit for choosing the method. If a collection of rows has more than this many elements for each wanted element,
/// elements are drawn one by one. Otherwise all elements are listed first.
const DRAWN_OF_MIN: u64 = 3;

impl Source<'_> {
    /// Returns `count` random elements in no particular order, or all elements if there are fewer. `random(n)` must
    /// return a random number below `n`.
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
            let drawn = random(left);
            debug_assert!(drawn < left, "what is drawn is among those left");
            all.swap(at, at + perdura_base::num::to_usize(drawn));
        }
        all.truncate(count);
        debug_assert_eq!(all.len(), count, "as many as are wanted");
        all
    }

    fn draw(&self, count: u64, mut random: impl FnMut(u64) -> u64) -> Vec<Entry<'_>> {
        debug_assert!(count < self.len(), "different elements to draw are enough");
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
