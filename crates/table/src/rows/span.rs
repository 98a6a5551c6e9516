//! Ranges of keys: [`Span`] for programs, [`Stretch`] for the heap.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::key::{KeyBytes, successor};
use crate::prefix::Prefix;

/// A range between two prefixes of a key or an index. `C` is the tuple of the types of all its columns.
pub trait Span<C> {
    /// Returns the bounds of the range as encoded prefixes.
    #[doc(hidden)]
    fn prefixes(&self) -> (Bound<KeyBytes>, Bound<KeyBytes>);

    /// Returns the keys that the range covers.
    #[doc(hidden)]
    fn stretch(&self) -> Stretch {
        let (start, end) = self.prefixes();
        Stretch::new(start, end)
    }
}

fn bytes<C>(prefix: &impl Prefix<C>) -> KeyBytes {
    let mut bytes = KeyBytes::new();
    prefix.put(&mut bytes);
    bytes
}

impl<C> Span<C> for RangeFull {
    fn prefixes(&self) -> (Bound<KeyBytes>, Bound<KeyBytes>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

macro_rules! span {
    ($($range:ident($this:ident) => $start:expr, $end:expr;)*) => {$(
        impl<C, P: Prefix<C>> Span<C> for $range<P> {
            fn prefixes(&self) -> (Bound<KeyBytes>, Bound<KeyBytes>) {
                let $this = self;
                ($start, $end)
            }
        }
    )*};
}

span! {
    Range(range) => Bound::Included(bytes(&range.start)), Bound::Excluded(bytes(&range.end));
    RangeInclusive(range) =>
        Bound::Included(bytes(range.start())), Bound::Included(bytes(range.end()));
    RangeFrom(range) => Bound::Included(bytes(&range.start)), Bound::Unbounded;
    RangeTo(range) => Bound::Unbounded, Bound::Excluded(bytes(&range.end));
    RangeToInclusive(range) => Bound::Unbounded, Bound::Included(bytes(&range.end));
}

impl<C, P: Prefix<C>, Q: Prefix<C>> Span<C> for (Bound<P>, Bound<Q>) {
    fn prefixes(&self) -> (Bound<KeyBytes>, Bound<KeyBytes>) {
        (self.0.as_ref().map(bytes), self.1.as_ref().map(bytes))
    }
}

/// A contiguous range of keys, with its bounds as encoded keys.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// The two prefixes that the program gave as bounds. `None`: the program did not give two bounds.
    given: Option<(KeyBytes, KeyBytes)>,
    /// The first key. `None`: the stretch is empty.
    start: Option<KeyBytes>,
    /// The first key after the stretch. `None`: the stretch has no upper bound.
    end: Option<KeyBytes>,
}

impl Stretch {
    fn new(start: Bound<KeyBytes>, end: Bound<KeyBytes>) -> Stretch {
        let given = match (&start, &end) {
            (
                Bound::Included(start) | Bound::Excluded(start),
                Bound::Included(end) | Bound::Excluded(end),
            ) => Some((start.clone(), end.clone())),
            _ => None,
        };
        // The empty prefix has no successor, because all keys begin with it.
        Stretch {
            given,
            start: match start {
                Bound::Included(start) => Some(start),
                Bound::Excluded(start) => successor(start.as_slice()),
                Bound::Unbounded => Some(KeyBytes::new()),
            },
            end: match end {
                Bound::Excluded(end) => Some(end),
                Bound::Included(end) => successor(end.as_slice()),
                Bound::Unbounded => None,
            },
        }
    }

    /// Returns the stretch of all keys that begin with a prefix.
    pub(crate) fn of_prefix<C>(prefix: &impl Prefix<C>) -> Stretch {
        let start = bytes(prefix);
        Stretch {
            given: None,
            end: successor(start.as_slice()),
            start: Some(start),
        }
    }

    /// Returns the two prefixes that the program gave as bounds; `None` if the program did not give two bounds.
    pub(crate) fn prefixes(&self) -> Option<(&[u8], &[u8])> {
        let (start, end) = self.given.as_ref()?;
        Some((start.as_slice(), end.as_slice()))
    }

    /// Returns whether the stretch contains no key.
    pub(crate) fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (None, _) => true,
            (Some(start), Some(end)) => start.as_slice() >= end.as_slice(),
            (Some(_), None) => false,
        }
    }

    /// Returns the bounds in the form that the heap needs. The stretch must not be empty.
    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        debug_assert!(!self.is_empty(), "the caller has looked");
        let start = match &self.start {
            Some(start) if !start.as_slice().is_empty() => Bound::Included(start.as_slice()),
            Some(_) | None => Bound::Unbounded,
        };
        let end = match &self.end {
            Some(end) => Bound::Excluded(end.as_slice()),
            None => Bound::Unbounded,
        };
        (start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Key = (u8, u8);

    fn stretch(span: impl Span<Key>) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let stretch = span.stretch();
        if stretch.is_empty() {
            return None;
        }
        let start = match stretch.bounds().0 {
            Bound::Included(start) => start.to_vec(),
            Bound::Excluded(_) | Bound::Unbounded => Vec::new(),
        };
        let end = match stretch.bounds().1 {
            Bound::Excluded(end) => Some(end.to_vec()),
            Bound::Included(_) | Bound::Unbounded => None,
        };
        Some((start, end))
    }

    #[test]
    fn ranges_cover_all_keys_that_begin_with_an_included_bound() {
        assert_eq!(
            stretch((1, 2)..(1, 5)),
            Some((vec![1, 2], Some(vec![1, 5])))
        );
        assert_eq!(
            stretch((1, 2)..=(1, 5)),
            Some((vec![1, 2], Some(vec![1, 6])))
        );
        assert_eq!(stretch(3..=3), Some((vec![3], Some(vec![4]))));
        assert_eq!(stretch(255..), Some((vec![255], None)));
        assert_eq!(stretch(..=255), Some((vec![], None)));
        assert_eq!(stretch(..), Some((vec![], None)));
        let behind = (Bound::Excluded(3), Bound::Included((4, 255)));
        assert_eq!(stretch(behind), Some((vec![4], Some(vec![5]))));
        assert_eq!(
            stretch((Bound::Excluded(255), Bound::<u8>::Unbounded)),
            None
        );
        assert_eq!(stretch(5..5), None);
        assert_eq!(stretch((2, 0)..(1, 0)), None);
    }
}
