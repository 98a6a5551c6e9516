//! The records of a run.
//!
//! A record is the change of one page by one transaction or, if it is *net*, the XOR of several such changes. It has
//! the page, the tag, which shows the images that reflect the record, and the epochs in which the changes were
//! committed. It also has the update numbers of the changes.

use perdura_base::checksum::mix64;
use perdura_base::{CkptEpoch, Epoch, PartitionId, Useq};
use perdura_page::diff::{Fragments, xor_into};
use perdura_page::layout::PAGE_BYTES;

/// A page, as runs order pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageAt {
    /// The partition.
    pub partition: PartitionId,
    /// The index of the page among the pages of the partition.
    pub local: u32,
}

/// The epochs in which a record's changes were committed, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochSpan {
    /// The lowest epoch.
    pub first: Epoch,
    /// The highest epoch.
    pub last: Epoch,
}

impl EpochSpan {
    /// Returns the span of one epoch.
    #[must_use]
    pub fn one(epoch: Epoch) -> EpochSpan {
        EpochSpan {
            first: epoch,
            last: epoch,
        }
    }

    /// Returns the smallest span that covers both spans.
    #[must_use]
    pub fn join(self, other: EpochSpan) -> EpochSpan {
        let joined = EpochSpan {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        };
        debug_assert!(joined.first <= joined.last, "a span has an epoch");
        joined
    }
}

/// The update numbers of a record's changes, as the figures that a restart's check compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updates {
    /// The number of updates.
    pub count: u64,
    /// The lowest update number, on the circle of 2^32 numbers.
    pub first: Useq,
    /// The highest update number, on that circle.
    pub last: Useq,
    /// The sum of [`mix64`] of each update number, modulo 2^64.
    pub sum: u64,
}

impl Updates {
    /// Returns the set of one update.
    #[inline]
    #[must_use]
    pub fn one(useq: Useq) -> Updates {
        Updates {
            count: 1,
            first: useq,
            last: useq,
            sum: mix64(u64::from(useq.0)),
        }
    }

    /// Returns the figures of both sets together. Does not check that the sets are disjoint. If a number occurs in
    /// both, count and sum are too high, and the check at the end of a restore finds it.
    #[must_use]
    pub fn join(self, other: Updates) -> Updates {
        let earlier = |a: Useq, b: Useq| if a.is_after(b) { b } else { a };
        let later = |a: Useq, b: Useq| if b.is_after(a) { b } else { a };
        Updates {
            count: self.count.saturating_add(other.count),
            first: earlier(self.first, other.first),
            last: later(self.last, other.last),
            sum: self.sum.wrapping_add(other.sum),
        }
    }

    /// Returns whether the update numbers are exactly the `count` numbers after `image`, each once.
    #[must_use]
    pub fn is_dense_after(&self, image: Useq) -> bool {
        let Ok(count) = u32::try_from(self.count) else {
            return false;
        };
        let sum = |i: u32| mix64(u64::from(image.0.wrapping_add(i)));
        self.first == image.next()
            && self.last.since(image) == count
            && self.sum == (1..=count).map(sum).fold(0, u64::wrapping_add)
    }
}

/// Encoded fragments, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct FragmentBytes<'a> {
    /// The number of fragments.
    pub count: u32,
    /// The encoded bytes of all fragments.
    pub bytes: &'a [u8],
}

/// A record of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunRecord<'a> {
    /// The page.
    pub at: PageAt,
    /// The epochs in which the record's changes were committed.
    pub epochs: EpochSpan,
    /// The tag. Image `k` reflects the record exactly if `tag < k`.
    pub tag: CkptEpoch,
    /// The update numbers of the changes.
    pub updates: Updates,
    count: u32,
    bytes: &'a [u8],
}

impl<'a> RunRecord<'a> {
    /// Makes a record from fragments. `None`: the fragments do not take exactly all the bytes, or a record of one
    /// update has no fragment. An update always changes something.
    #[must_use]
    pub fn new(
        at: PageAt,
        epochs: EpochSpan,
        tag: CkptEpoch,
        updates: Updates,
        fragments: FragmentBytes<'a>,
    ) -> Option<RunRecord<'a>> {
        let FragmentBytes { count, bytes } = fragments;
        let taken = Fragments::new(bytes, u64::from(count)).check()?;
        let is_sound = taken == bytes.len()
            && updates.count > 0
            && (count > 0 || updates.count > 1)
            && epochs.first <= epochs.last;
        is_sound.then(|| RunRecord::checked(at, epochs, tag, updates, fragments))
    }

    /// Makes a record whose fragments have been checked.
    #[inline]
    pub(crate) fn checked(
        at: PageAt,
        epochs: EpochSpan,
        tag: CkptEpoch,
        updates: Updates,
        fragments: FragmentBytes<'a>,
    ) -> RunRecord<'a> {
        let FragmentBytes { count, bytes } = fragments;
        debug_assert!(
            updates.count > 1 || epochs.first == epochs.last,
            "one update has one epoch"
        );
        RunRecord {
            at,
            epochs,
            tag,
            updates,
            count,
            bytes,
        }
    }

    /// Returns whether the record is the sum of several changes.
    #[must_use]
    pub fn is_net(&self) -> bool {
        self.updates.count > 1
    }

    /// Returns the sort key of the record in the order of runs.
    #[inline]
    #[must_use]
    pub fn key(&self) -> (PageAt, Epoch, u32) {
        (self.at, self.epochs.first, self.updates.first.0)
    }

    /// Returns the number of the record's fragments.
    #[must_use]
    pub fn fragment_count(&self) -> u32 {
        self.count
    }

    /// Returns the encoded fragments.
    #[must_use]
    pub fn fragment_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the fragments in ascending order.
    #[inline]
    #[must_use]
    pub fn fragments(&self) -> Fragments<'a> {
        Fragments::new(self.bytes, u64::from(self.count))
    }

    /// XORs the fragments into a page.
    pub fn xor_into(&self, page: &mut [u8]) {
        assert_eq!(page.len(), PAGE_BYTES, "a whole page");
        for fragment in self.fragments() {
            let end = fragment.offset + fragment.bytes.len();
            xor_into(&mut page[fragment.offset..end], fragment.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_updates_are_dense_exactly_if_no_number_is_missing_or_doubled() {
        for start in [0, 5, u32::MAX - 3_u32] {
            let all: Vec<Updates> = (1..=8)
                .map(|i| Updates::one(Useq(start.wrapping_add(i))))
                .collect();
            let join = |list: &[Updates]| list.iter().copied().reduce(Updates::join);
            let whole = join(&all).expect("eight");
            assert!(whole.is_dense_after(Useq(start)), "{whole:?}");
            assert!(!whole.is_dense_after(Useq(start).next()));
            let (odd, even): (Vec<_>, Vec<_>) = all.iter().partition(|u| u.first.0 % 2 == 1);
            let halves = [join(&odd).expect("four"), join(&even).expect("four")];
            assert_eq!(join(&halves), Some(whole), "whatever is joined first");
            for missing in 0..8 {
                let mut list = all.clone();
                list.remove(missing);
                let end_is_missing = missing == 7;
                let dense = join(&list).expect("seven").is_dense_after(Useq(start));
                assert_eq!(dense, end_is_missing, "without the {missing}th");
                list.push(all[(missing + 1) % 8]);
                assert!(!join(&list).expect("eight").is_dense_after(Useq(start)));
            }
        }
    }
}
