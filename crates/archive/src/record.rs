//! The records of a run.
//!
//! A record is the change of one page by one transaction. A *net* record is the XOR of several changes of one page. A
//! record has the page, the tag, the commit epochs, and the update numbers of the changes. The tag shows which images
//! contain the changes.

use perdura_base::checksum::mix64;
use perdura_base::{CkptEpoch, Epoch, PartitionId, Useq};
use perdura_page::diff::{Fragments, xor_into};
use perdura_page::layout::PAGE_BYTES;

/// A page. In runs, pages sort by partition, then by local index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageAt {
    /// The partition.
    pub partition: PartitionId,
    /// The index of the page among the pages of the partition.
    pub local: u32,
}

/// The commit epochs of a record's changes, from the first to the last inclusive.
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

    /// Returns the smallest span that covers `self` and `other`.
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

/// A summary of the update numbers of a record's changes. With these figures, a restore
/// checks that no change is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updates {
    /// The number of changes.
    pub count: u64,
    /// The lowest update number. Update numbers wrap around at 2^32.
    pub first: Useq,
    /// The highest update number. Numbers after a wraparound count as higher.
    pub last: Useq,
    /// The sum of [`mix64`] of each update number, modulo 2^64.
    pub sum: u64,
}

impl Updates {
    /// Returns the figures of one update.
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

    /// Returns the figures of the union of two sets. Does not check that the sets are disjoint. If the two sets share
    /// an update number, the count and the sum are too high. The check at the end of a restore detects this.
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

    /// Returns whether the update numbers are exactly the next `count` numbers after `image`, each once. `image` is the
    /// update number of the page in an image of the database.
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

/// A sequence of encoded fragments.
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
    /// The commit epochs of the record's changes.
    pub epochs: EpochSpan,
    /// The tag. An image with checkpoint epoch k contains the changes exactly if `tag < k`.
    pub tag: CkptEpoch,
    /// The update numbers of the changes.
    pub updates: Updates,
    count: u32,
    bytes: &'a [u8],
}

impl<'a> RunRecord<'a> {
    /// Makes a record from fragments. `None`: the bytes are not exactly the given number of fragments, or a record of
    /// one update has no fragment. One update always changes the page and so has a fragment.
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

    /// Makes a record. The caller has checked the fragments.
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

    /// Returns the record's sort key in a run: the page, the first epoch, the lowest update number.
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
