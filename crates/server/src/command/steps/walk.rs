//! A walk over a collection that can be interrupted and continued.
//!
//! A hash or a set is walked by the cursor of SCAN, which survives any change of the collection's index between
//! two steps. A list and a sorted set are walked by rank.

use super::{Progress, STRIDE, Step};
use crate::engine::types::Entry;
use crate::engine::{Shape, Source};
use perdura_base::num::{to_u64, to_usize};
use std::ops::Range;

/// The state of a walk.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    shape: Shape,
    /// The ranks of the elements that are still to be visited, in a list or a sorted set. In a hash or a set, this
    /// range always covers all elements.
    ranks: Range<u64>,
    reverse: bool,
    cursor: u64,
    /// The number of elements that are still to be visited.
    left: u64,
}

impl Walk {
    /// Returns a walk over all elements of a collection.
    pub(crate) fn all(shape: Shape, len: u64) -> Walk {
        Walk::ranks(shape, 0..len, false)
    }

    /// Returns a walk over these ranks of a list or a sorted set, beginning with the last rank if `reverse`.
    pub(crate) fn ranks(shape: Shape, ranks: Range<u64>, reverse: bool) -> Walk {
        let left = ranks.end.saturating_sub(ranks.start);
        Walk {
            shape,
            ranks,
            reverse,
            cursor: 0,
            left,
        }
    }

    /// Returns the shape of the collection.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the number of elements that are still to be visited.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Passes elements to `f` until the step is over. `f` returns the cost of an element.
    pub(crate) fn go_on<'s>(
        &mut self,
        source: &'s Source<'_>,
        step: &mut Step,
        f: impl FnMut(&Entry<'s>) -> u64,
    ) -> Progress {
        match self.shape {
            Shape::Hash | Shape::Set if source.len() == self.ranks.end => {
                self.scan(source, step, f)
            }
            Shape::List | Shape::Zset | Shape::Stream if source.len() >= self.ranks.end => {
                self.by_rank(source, step, f)
            }
            _ => Progress::Changed,
        }
    }

    fn scan<'s>(
        &mut self,
        source: &'s Source<'_>,
        step: &mut Step,
        mut f: impl FnMut(&Entry<'s>) -> u64,
    ) -> Progress {
        while self.left > 0 {
            let (entries, next) = source.scan(self.cursor, to_usize(step.stride()));
            let Some(left) = self.left.checked_sub(to_u64(entries.len())) else {
                return Progress::Changed;
            };
            if left > 0 && next == 0 {
                return Progress::Changed;
            }
            (self.left, self.cursor) = (left, next);
            // A call that finds no element has read many places without elements, which takes time,
            // too.
            let cost = match entries.is_empty() {
                true => STRIDE,
                false => entries.iter().map(&mut f).sum(),
            };
            if !step.spend(cost) {
                break;
            }
        }
        self.progress()
    }

    fn by_rank<'s>(
        &mut self,
        source: &'s Source<'_>,
        step: &mut Step,
        mut f: impl FnMut(&Entry<'s>) -> u64,
    ) -> Progress {
        let mut entries = source.ranks(self.ranks.start, self.ranks.end);
        let mut next = || match self.reverse {
            true => entries.next_back(),
            false => entries.next(),
        };
        while self.left > 0 {
            let Some(entry) = next() else {
                return Progress::Changed;
            };
            self.left -= 1;
            if !step.spend(f(&entry)) {
                break;
            }
        }
        if self.reverse {
            self.ranks.end = self.ranks.start + self.left;
        } else {
            self.ranks.start = self.ranks.end - self.left;
        }
        self.progress()
    }

    fn progress(&self) -> Progress {
        match self.left {
            0 => Progress::Complete,
            _ => Progress::More,
        }
    }
}
