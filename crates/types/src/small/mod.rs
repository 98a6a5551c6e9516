//! The packed form of a small collection, which lies in the row of its key.
//!
//! # Why this way
//! * **One form for each text.** A text that is an integer in its decimal form is packed as an integer, in the fewest
//!   bytes. So a field is found by comparing packed bytes, without unpacking any.
//! * **Small changes stay small in the log**, which records only the changed bytes of a page. An element is replaced in
//!   place, and a new element is put last if the order allows it.
//! * **A score** is an integer cell if it is a whole number up to 2^53, and otherwise the eight
//!   bytes of its float. A text of eight bytes is never read as a score, because scores are only
//!   read from the second cell.
//!
//! # Invariants
//! A packed collection has at most [`BYTES_MAX`] bytes and [`COUNT_MAX`] elements. The text in a cell has at most
//! [`CELL_BYTES_MAX`] bytes. [`Editor`] refuses an element that would exceed these limits, and the editor's caller then
//! turns the collection into rows. A transaction may have lower limits ([`Packing`](perdura_txn::Packing)). The lower
//! limits are checked where an element is put, not here. The bytes of a row are checked once, by [`Packed::parse`].
//!
//! # Format
#![doc = include_str!("../../../../docs/formats/small.md")]

mod cell;
mod editor;
mod limits;

use std::borrow::Cow;

pub use cell::Cell;
use cell::{Needle, cell_bytes};
pub use editor::{Editor, New};
pub(crate) use limits::{may_change, may_join, may_join_set};
use perdura_txn::Shape;

/// The maximum length of a packed collection, bytes.
pub const BYTES_MAX: usize = 2304;
/// The maximum number of elements of a packed collection.
pub const COUNT_MAX: u8 = 128;
/// The maximum length of the text in one cell, bytes.
pub const CELL_BYTES_MAX: usize = 64;

/// A packed collection with checked bytes.
#[derive(Debug, Clone)]
pub struct Packed<'a> {
    bytes: Cow<'a, [u8]>,
    shape: Shape,
}

/// One element and its position.
#[derive(Debug, Clone, Copy)]
pub struct Element<'a> {
    /// The offset of the element's first byte.
    pub start: usize,
    /// The offset after the element's last byte.
    pub end: usize,
    /// The field, member or item.
    pub key: Cell<'a>,
    /// The value of a field, or a score; empty for sets and lists.
    pub value: Cell<'a>,
}

impl Element<'_> {
    /// Returns the score of a member of a sorted set.
    #[must_use]
    pub fn score(&self) -> f64 {
        self.value.score()
    }
}

impl<'a> Packed<'a> {
    /// Parses a packed collection; `None` if the bytes are malformed.
    #[must_use]
    pub fn parse(bytes: impl Into<Cow<'a, [u8]>>, shape: Shape) -> Option<Packed<'a>> {
        let bytes = bytes.into();
        let cells: &[u8] = &bytes;
        let count = *cells.first()?;
        if cells.len() > BYTES_MAX || count > COUNT_MAX || shape == Shape::Stream {
            return None;
        }
        let mut at = 1;
        if two_cells(shape) {
            for _ in 0..count {
                at += cell_bytes(*cells.get(at)?);
                let lead = *cells.get(at)?;
                if shape == Shape::Zset && lead <= 64 && lead != 8 {
                    return None;
                }
                at += cell_bytes(lead);
            }
        } else {
            for _ in 0..count {
                at += cell_bytes(*cells.get(at)?);
            }
        }
        (at == cells.len()).then_some(Packed { bytes, shape })
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.bytes[0])
    }

    /// Returns whether the collection has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the packed bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the collection's shape.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the elements in their order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            bytes: &self.bytes,
            at: 1,
            shape: self.shape,
        }
    }

    /// Returns the element at an index.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<Element<'_>> {
        let mut iter = self.iter();
        for _ in 0..index {
            iter.skip_one()?;
        }
        iter.next()
    }

    /// Returns the last element.
    pub(crate) fn last(&self) -> Option<Element<'_>> {
        let mut iter = self.iter();
        let mut start = None;
        while iter.at < iter.bytes.len() {
            start = Some(iter.at);
            iter.skip_one()?;
        }
        iter.at = start?;
        iter.next()
    }

    /// Returns the first element with this field, member or item.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<Element<'_>> {
        let needle = Needle::new(key)?;
        let mut iter = self.iter();
        while iter.at < iter.bytes.len() {
            if iter.bytes[iter.at..].starts_with(needle.bytes()) {
                return iter.next();
            }
            iter.skip_one()?;
        }
        None
    }

    /// Returns whether every element is an integer.
    #[must_use]
    pub fn all_integers(&self) -> bool {
        self.iter().all(|element| element.key.integer().is_some())
    }
}

/// Returns whether each element has two cells: the second one is a value or a score.
fn two_cells(shape: Shape) -> bool {
    match shape {
        Shape::Hash | Shape::Zset => true,
        Shape::List | Shape::Set | Shape::Stream => false,
    }
}

/// The elements of a packed collection in their order.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    at: usize,
    shape: Shape,
}

impl Iter<'_> {
    fn skip_one(&mut self) -> Option<()> {
        self.at += cell_bytes(*self.bytes.get(self.at)?);
        if two_cells(self.shape) {
            self.at += cell_bytes(*self.bytes.get(self.at)?);
        }
        Some(())
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let start = self.at;
        let (key, after_key) = Cell::read(self.bytes, start)?;
        let (value, end) = if two_cells(self.shape) {
            Cell::read(self.bytes, after_key)?
        } else {
            (Cell::EMPTY, after_key)
        };
        self.at = end;
        Some(Element {
            start,
            end,
            key,
            value,
        })
    }
}

#[cfg(test)]
mod tests;
