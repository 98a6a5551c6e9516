//! The rows of all partitions in one order, from either end.
//!
//! Each end has a heap of the partitions' next rows. When a partition's iterator is exhausted, the next row of this end
//! is the one that the other end holds. The row changes hands, and its entry in the other heap is void.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use perdura_heap::{Derive, RowRef, Which};

/// A partition's rows: those not yet taken, and the row that each end holds.
struct Part<'s, I> {
    rows: I,
    front: Option<RowRef<'s>>,
    back: Option<RowRef<'s>>,
}

/// The key of a row that an end holds, and its partition.
type Held = (Vec<u8>, usize);

struct Merged<'s, I> {
    parts: Vec<Part<'s, I>>,
    which: Which,
    derive: Option<&'s dyn Derive>,
    fronts: Option<BinaryHeap<Reverse<Held>>>,
    backs: Option<BinaryHeap<Held>>,
}

/// Merges the rows of `parts`, each in the order of an index, in that order.
pub(crate) fn merged<'s, I: DoubleEndedIterator<Item = RowRef<'s>> + 's>(
    parts: Vec<I>,
    which: Which,
    derive: Option<&'s dyn Derive>,
) -> impl DoubleEndedIterator<Item = RowRef<'s>> + 's {
    let part = |rows| Part {
        rows,
        front: None,
        back: None,
    };
    Merged {
        parts: parts.into_iter().map(part).collect(),
        which,
        derive,
        fronts: None,
        backs: None,
    }
}

impl<'s, I: DoubleEndedIterator<Item = RowRef<'s>>> Merged<'s, I> {
    fn key(&self, row: &RowRef<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        if let (Which::Secondary(index), Some(derive)) = (self.which, self.derive) {
            derive.index_key(index, &row.key(), &row.value(), &mut key);
        }
        key.extend_from_slice(&row.key());
        key
    }

    /// Gives the front end of a partition its next row, and returns the row's key.
    fn fill_front(&mut self, at: usize) -> Option<Vec<u8>> {
        let part = &mut self.parts[at];
        debug_assert!(part.front.is_none(), "an end holds one row");
        part.front = part.rows.next().or_else(|| part.back.take());
        let row = part.front?;
        Some(self.key(&row))
    }

    fn fill_back(&mut self, at: usize) -> Option<Vec<u8>> {
        let part = &mut self.parts[at];
        debug_assert!(part.back.is_none(), "an end holds one row");
        part.back = part.rows.next_back().or_else(|| part.front.take());
        let row = part.back?;
        Some(self.key(&row))
    }
}

impl<'s, I: DoubleEndedIterator<Item = RowRef<'s>>> Iterator for Merged<'s, I> {
    type Item = RowRef<'s>;

    fn next(&mut self) -> Option<RowRef<'s>> {
        let mut heap = match self.fronts.take() {
            Some(heap) => heap,
            None => (0..self.parts.len())
                .filter_map(|at| self.fill_front(at).map(|key| Reverse((key, at))))
                .collect(),
        };
        let mut found = None;
        while let Some(Reverse((_, at))) = heap.pop() {
            found = self.parts[at].front.take();
            heap.extend(self.fill_front(at).map(|key| Reverse((key, at))));
            if found.is_some() {
                break;
            }
        }
        self.fronts = Some(heap);
        found
    }
}

impl<'s, I: DoubleEndedIterator<Item = RowRef<'s>>> DoubleEndedIterator for Merged<'s, I> {
    fn next_back(&mut self) -> Option<RowRef<'s>> {
        let mut heap = match self.backs.take() {
            Some(heap) => heap,
            None => (0..self.parts.len())
                .filter_map(|at| self.fill_back(at).map(|key| (key, at)))
                .collect(),
        };
        let mut found = None;
        while let Some((_, at)) = heap.pop() {
            found = self.parts[at].back.take();
            heap.extend(self.fill_back(at).map(|key| (key, at)));
            if found.is_some() {
                break;
            }
        }
        self.backs = Some(heap);
        found
    }
}
