//! Changes a packed collection in place, within the limits for packed collections.

use std::ops::Range;

use super::cell::{put_score, put_text};
use perdura_txn::Shape;

use super::{BYTES_MAX, CELL_BYTES_MAX, COUNT_MAX, Packed};

/// An element to be packed.
#[derive(Debug, Clone, Copy)]
pub enum New<'a> {
    /// A member of a set, or an item of a list.
    One(&'a [u8]),
    /// A field and its value.
    Pair(&'a [u8], &'a [u8]),
    /// A member and its score.
    Scored(&'a [u8], f64),
}

impl New<'_> {
    fn fits(&self, shape: Shape) -> bool {
        match self {
            New::One(_) => matches!(shape, Shape::List | Shape::Set),
            New::Pair(..) => shape == Shape::Hash,
            New::Scored(..) => shape == Shape::Zset,
        }
    }

    /// Appends the packed element to `out`. Returns `false` if a cell would be too long.
    fn put(&self, out: &mut Vec<u8>) -> bool {
        let (key, value) = match *self {
            New::One(key) | New::Scored(key, _) => (key, &[][..]),
            New::Pair(key, value) => (key, value),
        };
        if key.len().max(value.len()) > CELL_BYTES_MAX {
            return false;
        }
        put_text(out, key);
        match *self {
            New::One(_) => {}
            New::Pair(_, value) => put_text(out, value),
            New::Scored(_, score) => put_score(out, score),
        }
        true
    }
}

/// A packed collection that is being changed. A method that returns `false` has changed nothing, because the changed
/// collection would be too large to stay packed.
#[derive(Debug, Clone)]
pub struct Editor {
    packed: Packed<'static>,
}

impl Editor {
    /// Returns an empty collection.
    #[must_use]
    pub fn new(shape: Shape) -> Editor {
        Editor {
            packed: Packed {
                bytes: vec![0].into(),
                shape,
            },
        }
    }

    /// Returns the collection with the changes so far.
    #[must_use]
    pub fn packed(&self) -> &Packed<'static> {
        &self.packed
    }

    /// Inserts an element at the byte offset `at`, which is the start of an element or the end of
    /// the collection.
    #[must_use]
    pub fn insert(&mut self, at: usize, new: New<'_>) -> bool {
        self.packed.bytes[0] < COUNT_MAX && self.splice(at..at, Some(new))
    }

    /// Puts an element last.
    #[must_use]
    pub fn push(&mut self, new: New<'_>) -> bool {
        self.insert(self.packed.bytes.len(), new)
    }

    /// Replaces the element that lies in `range`.
    #[must_use]
    pub fn replace(&mut self, range: Range<usize>, new: New<'_>) -> bool {
        self.splice(range, Some(new))
    }

    /// Removes the element that lies in `range`.
    pub fn remove(&mut self, range: Range<usize>) {
        let removed = self.splice(range, None);
        debug_assert!(removed, "less always fits");
    }

    fn splice(&mut self, range: Range<usize>, new: Option<New<'_>>) -> bool {
        let bytes = self.packed.bytes.to_mut();
        let (len, gone) = (bytes.len(), range.len());
        debug_assert!(
            range.start > 0 && range.end <= len,
            "elements are behind the count"
        );
        if let Some(new) = new {
            debug_assert!(new.fits(self.packed.shape), "another type's element");
            // The element is packed after the last element and then rotated to its place. So no second buffer is
            // needed.
            if !new.put(bytes) || bytes.len() - gone > BYTES_MAX {
                bytes.truncate(len);
                return false;
            }
        }
        let added = bytes.len() - len;
        bytes[range.start..].rotate_right(added);
        let from = range.start + added;
        bytes.drain(from..from + gone);
        debug_assert_eq!(bytes.len(), len + added - gone, "nothing else moves out");
        debug_assert!(gone > 0 || added > 0, "an element comes or goes");
        bytes[0] = bytes[0] + u8::from(added > 0) - u8::from(gone > 0);
        true
    }
}

impl From<Packed<'_>> for Editor {
    fn from(packed: Packed<'_>) -> Editor {
        // With room for a new element, the usual edit does not move the bytes once more.
        let mut bytes = Vec::with_capacity(packed.bytes.len() + 2 * (CELL_BYTES_MAX + 1));
        bytes.extend_from_slice(&packed.bytes);
        Editor {
            packed: Packed {
                bytes: bytes.into(),
                shape: packed.shape,
            },
        }
    }
}
