//! Merges the rows of all partitions into one order. The merged rows can be taken from the front and from the back.
//!
//! Front and back each have a binary heap with the next row of each partition. When a partition's iterator is
//! exhausted, one row of the partition may still be in the back heap. The front then takes this row, and the back
//! later ignores the row's entry in its heap. The back takes rows from the front in this way too.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use perdura_heap::{Derive, RowRef, Which};

/// The rows of one partition. The iterator `rows` has the rows that are in no heap yet. `front` is the row in the front
/// heap, and `back` is the row in the back heap.
struct Part<'s, I> {
    rows: I,
    front: Option<RowRef<'s>>,
    back: Option<RowRef<'s>>,
}

/// An entry of a binary heap: the key of a row, and the index of the row's partition.
type Held = (Vec<u8>, usize);

struct Merged<'s, I> {
    parts: Vec<Part<'s, I>>,
    which: Which,
    derive: Option<&'s dyn Derive>,
    fronts: Option<BinaryHeap<Reverse<Held>>>,
    backs: Option<BinaryHeap<Held>>,
}

/// Merges the rows of `parts` into the order of the index `which`. The rows of each part must be in
/// that order already.
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

    /// Takes a partition's next row for the front heap. Returns the row's key; `None` if the partition has
    /// no row left.
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
