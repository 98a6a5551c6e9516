//! A walk over a collection that can be left and gone on with.
//!
//! A hash or a set is walked by the cursor of SCAN, which survives whatever happens to its index
//! between two steps; a list and a sorted set are walked by rank.

use super::{Progress, STRIDE, Step};
use crate::engine::types::Entry;
use crate::engine::{Shape, Source};
use perdura_base::num::{to_u64, to_usize};
use std::ops::Range;

/// Where a walk stands.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    shape: Shape,
    /// Of a list or a sorted set: the ranks that are missing. Of a hash or a set: all of them.
    ranks: Range<u64>,
    reverse: bool,
    cursor: u64,
    /// How many elements are missing.
    left: u64,
}

impl Walk {
    /// A walk over all elements of a collection.
    pub(crate) fn all(shape: Shape, len: u64) -> Walk {
        Walk::ranks(shape, 0..len, false)
    }

    /// A walk over these ranks of a list or a sorted set, perhaps from the last one on.
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

    /// What is walked over.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// How many elements are missing.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Hands elements to `f`, which returns what each has cost, until the step is over.
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
            // A call that meets no element has looked at many places.
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
