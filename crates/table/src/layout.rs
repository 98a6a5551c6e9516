//! The layout of the columns in a value.
//!
//! # Format
#![doc = include_str!("../../../docs/formats/typed-row.md")]

use std::ops::Range;

use perdura_base::num::{to_u32, to_u64, to_usize};
use smallvec::SmallVec;

use crate::types::Type;

/// The maximum number of value columns of a table. The mask of a patch has 64 bits, one for each value column.
pub const COLUMNS_MAX: usize = 64;

const NARROW_CODE: u8 = 2;
const WIDE_CODE: u8 = 4;
/// The two possible widths, in bytes, of a variable column's end offset. Each width is equal to its code.
const NARROW: usize = 2;
const WIDE: usize = 4;
/// The maximum total length, in bytes, of a value's variable columns if the end offsets have 16 bits.
const NARROW_BYTES_MAX: usize = 0xffff;

/// The layout of a value: the size of the fixed columns, and the number of variable columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout {
    /// The total bytes of all fixed columns.
    pub fixed_bytes: usize,
    /// The number of variable columns.
    pub variables: usize,
}

/// The place of a column in a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At a constant offset.
    Fixed {
        /// The offset, bytes.
        at: usize,
        /// The length of the column, bytes.
        bytes: usize,
    },
    /// Among the variable columns.
    Variable {
        /// The column's number among the variable columns.
        index: usize,
    },
}

impl Layout {
    /// Returns the layout with one more column, and the place of that column.
    #[must_use]
    pub const fn with(self, column: Type) -> (Layout, Place) {
        match column.width() {
            Some(bytes) => {
                let layout = Layout {
                    fixed_bytes: self.fixed_bytes + bytes,
                    variables: self.variables,
                };
                let at = self.fixed_bytes;
                (layout, Place::Fixed { at, bytes })
            }
            None => {
                let layout = Layout {
                    fixed_bytes: self.fixed_bytes,
                    variables: self.variables + 1,
                };
                let index = self.variables;
                (layout, Place::Variable { index })
            }
        }
    }

    /// Returns the bytes of a column; `None` if the value is malformed at that place.
    #[inline]
    #[must_use]
    pub fn column<'r>(&self, place: Place, value: &'r [u8]) -> Option<&'r [u8]> {
        match place {
            Place::Fixed { at, bytes } => value.get(at..at + bytes),
            Place::Variable { index } => {
                let range = self.variable(index, value)?;
                value.get(range)
            }
        }
    }

    /// Returns whether the value is well formed: the end offsets ascend and have the smallest possible width, and the
    /// last offset matches the value's length.
    #[must_use]
    pub fn is_whole(&self, value: &[u8]) -> bool {
        if self.variables == 0 {
            return value.len() == self.fixed_bytes;
        }
        let Some((width, bodies)) = self.bodies(value) else {
            return false;
        };
        let mut last = 0;
        for index in 0..self.variables {
            match self.end(index, width, value) {
                Some(end) if end >= last => last = end,
                _ => return false,
            }
        }
        let narrowest = if last > NARROW_BYTES_MAX {
            WIDE
        } else {
            NARROW
        };
        width == narrowest && bodies + last == value.len()
    }

    /// Returns the width of an end offset, and the start of the first variable column.
    #[inline]
    fn bodies(&self, value: &[u8]) -> Option<(usize, usize)> {
        let width = usize::from(*value.get(self.fixed_bytes)?);
        let is_width = width == NARROW || width == WIDE;
        is_width.then_some((width, self.fixed_bytes + 1 + width * self.variables))
    }

    #[inline]
    fn end(&self, index: usize, width: usize, value: &[u8]) -> Option<usize> {
        let bytes = value.get(self.fixed_bytes + 1 + width * index..)?;
        if width == NARROW {
            let end = bytes.first_chunk().copied().map(u16::from_le_bytes)?;
            Some(usize::from(end))
        } else {
            let end = bytes.first_chunk().copied().map(u32::from_le_bytes)?;
            Some(to_usize(u64::from(end)))
        }
    }

    #[inline]
    fn variable(&self, index: usize, value: &[u8]) -> Option<Range<usize>> {
        debug_assert!(index < self.variables, "the place is of this layout");
        let (width, bodies) = self.bodies(value)?;
        let start = match index.checked_sub(1) {
            Some(before) => self.end(before, width, value)?,
            None => 0,
        };
        let end = self.end(index, width, value)?;
        (start <= end).then_some(bodies + start..bodies + end)
    }

    /// Begins to write the variable columns. `out` has the fixed columns already.
    #[inline]
    pub fn variables(self, out: &mut Vec<u8>) -> Variables<'_> {
        let head = out.len();
        if self.variables > 0 {
            out.push(NARROW_CODE);
            out.resize(head + 1 + NARROW * self.variables, 0);
        }
        Variables {
            layout: self,
            head,
            bodies: out.len(),
            out,
            ends: SmallVec::new(),
        }
    }

    /// Replaces the bytes of a column in a whole value.
    pub fn replace(&self, place: Place, value: &mut Vec<u8>, new: &[u8]) {
        debug_assert!(self.is_whole(value), "only whole values are edited");
        match place {
            Place::Fixed { at, bytes } => {
                assert_eq!(bytes, new.len(), "a fixed column keeps its length");
                value[at..at + bytes].copy_from_slice(new);
            }
            Place::Variable { index } => match self.variable(index, value) {
                Some(range) if range.len() == new.len() => value[range].copy_from_slice(new),
                _ => self.replace_variable(index, value, new),
            },
        }
        debug_assert_eq!(self.column(place, value), Some(new), "it is there now");
    }

    #[cold]
    fn replace_variable(&self, index: usize, value: &mut Vec<u8>, new: &[u8]) {
        let mut out = Vec::with_capacity(value.len() + new.len());
        out.extend_from_slice(&value[..self.fixed_bytes]);
        let mut variables = self.variables(&mut out);
        for other in 0..self.variables {
            let old = self.column(Place::Variable { index: other }, value);
            let bytes = if other == index { Some(new) } else { old };
            variables.put(|out| out.extend_from_slice(bytes.unwrap_or_default()));
        }
        variables.finish();
        *value = out;
    }
}

/// The variable columns of a value that is being written.
#[derive(Debug)]
pub struct Variables<'o> {
    layout: Layout,
    out: &'o mut Vec<u8>,
    head: usize,
    bodies: usize,
    ends: SmallVec<[usize; 16]>,
}

impl Variables<'_> {
    /// Appends the next column.
    #[inline]
    pub fn put(&mut self, column: impl FnOnce(&mut Vec<u8>)) {
        column(self.out);
        let end = self.out.len() - self.bodies;
        let at = self.head + 1 + NARROW * self.ends.len();
        if let Ok(end) = u16::try_from(end) {
            self.out[at..at + NARROW].copy_from_slice(&end.to_le_bytes());
        }
        self.ends.push(end);
    }

    /// Completes the value. Makes its end offsets wider if the columns are too long for 16-bit offsets.
    #[inline]
    pub fn finish(self) {
        assert_eq!(
            self.ends.len(),
            self.layout.variables,
            "each variable column is written once"
        );
        if self.out.len() - self.bodies > NARROW_BYTES_MAX {
            let ends = self.ends.iter();
            let wide: Vec<u8> = ends.flat_map(|end| to_u32(*end).to_le_bytes()).collect();
            self.out[self.head] = WIDE_CODE;
            self.out.splice(self.head + 1..self.bodies, wide);
        }
        let start = self.head.checked_sub(self.layout.fixed_bytes);
        debug_assert!(
            start.is_none_or(|start| self.layout.is_whole(&self.out[start..])),
            "what is written can be read"
        );
    }
}

/// Returns the length of a value as text, for a report.
pub(crate) fn bytes_of(value: &[u8]) -> String {
    let bytes = to_u64(value.len());
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Base;

    fn layout(types: &[Base]) -> (Layout, Vec<Place>) {
        let mut layout = Layout::default();
        let places = types
            .iter()
            .map(|base| {
                let (next, place) = layout.with(Type::plain(*base));
                layout = next;
                place
            })
            .collect();
        (layout, places)
    }

    fn put(layout: Layout, value: &mut Vec<u8>, column: impl Fn(usize) -> Vec<u8>) {
        let mut variables = layout.variables(value);
        for index in 0..layout.variables {
            variables.put(|out| out.extend(column(index)));
        }
        variables.finish();
    }

    #[test]
    fn long_columns_widen_the_ends_and_short_ones_narrow_them_again() {
        let (layout, places) = layout(&[Base::Bytes, Base::U8, Base::String]);
        let mut value = vec![7];
        put(layout, &mut value, |_| b"x".to_vec());
        let short = value.clone();
        let long = vec![1; 70_000];
        layout.replace(places[0], &mut value, &long);
        assert_eq!(value[1], 4);
        assert!(layout.is_whole(&value));
        assert_eq!(layout.column(places[0], &value), Some(&long[..]));
        assert_eq!(layout.column(places[2], &value), Some(&b"x"[..]));
        layout.replace(places[0], &mut value, b"x");
        assert_eq!(value, short);
    }

    #[test]
    fn a_value_cut_short_or_made_longer_is_not_whole() {
        let (layout, places) = layout(&[Base::String, Base::U32, Base::Bytes]);
        let mut value = vec![1, 2, 3, 4];
        put(layout, &mut value, |index| vec![b'a'; index + 1]);
        assert!(layout.is_whole(&value));
        for cut in 0..value.len() {
            assert!(!layout.is_whole(&value[..cut]));
            for place in &places {
                let _no_panic = layout.column(*place, &value[..cut]);
            }
        }
        value.push(0);
        assert!(!layout.is_whole(&value));
    }

    #[test]
    fn any_damaged_byte_is_read_without_a_panic() {
        let (layout, places) = layout(&[Base::String, Base::U16, Base::Bytes, Base::String]);
        let mut value = vec![1, 2];
        put(layout, &mut value, |_| b"abc".to_vec());
        for at in 0..value.len() {
            for byte in 0..=u8::MAX {
                let mut bad = value.clone();
                bad[at] = byte;
                let whole = layout.is_whole(&bad);
                for place in &places {
                    assert!(layout.column(*place, &bad).is_some() || !whole);
                }
            }
        }
    }
}
