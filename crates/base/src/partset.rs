//! A set of at most 256 partitions, which block headers store as a 32-byte bitmap.

use crate::PartitionId;
use crate::limits::PARTITIONS_MAX;

/// A set of partitions. Iteration is in ascending order, which is the latch order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Hash)]
pub struct PartitionSet {
    words: [u64; 4],
}

impl PartitionSet {
    /// Returns the empty set.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Returns the set of partitions `0..count`.
    #[must_use]
    pub fn all(count: u16) -> Self {
        let mut set = Self::empty();
        for id in 0..count {
            set.insert(PartitionId(id));
        }
        debug_assert_eq!(set.len(), usize::from(count), "as many as were asked for");
        set
    }

    /// Adds a partition. Ids are below [`PARTITIONS_MAX`].
    pub fn insert(&mut self, id: PartitionId) {
        debug_assert!(id.0 < PARTITIONS_MAX);
        self.words[usize::from(id.0 / 64) & 3] |= 1 << (id.0 % 64);
        debug_assert!(self.contains(id));
    }

    /// Returns whether the partition is in the set.
    #[must_use]
    pub fn contains(&self, id: PartitionId) -> bool {
        self.words[usize::from(id.0 / 64) & 3] & (1 << (id.0 % 64)) != 0
    }

    /// Adds every member of `other`.
    pub fn union(&mut self, other: &PartitionSet) {
        for (mine, theirs) in self.words.iter_mut().zip(other.words) {
            *mine |= theirs;
        }
        debug_assert!(self.len() >= other.len(), "a union has what each set has");
    }

    /// Returns whether the two sets have a member in common.
    #[must_use]
    pub fn intersects(&self, other: &PartitionSet) -> bool {
        let mut pairs = self.words.iter().zip(other.words);
        pairs.any(|(mine, theirs)| mine & theirs != 0)
    }

    /// Returns the number of partitions in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|w| usize::try_from(w.count_ones()).unwrap_or(64))
            .sum()
    }

    /// Returns whether the set has no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words == [0; 4]
    }

    /// Returns the members in ascending order. Visits only the members and not all partitions, because every
    /// transaction iterates over a set.
    pub fn iter(&self) -> impl Iterator<Item = PartitionId> + use<> {
        let mut words = self.words;
        let mut at = 0u16;
        std::iter::from_fn(move || {
            while let Some(word) = words.get_mut(usize::from(at)) {
                if *word != 0 {
                    let bit = u16::try_from(word.trailing_zeros()).unwrap_or(0);
                    *word &= *word - 1;
                    return Some(PartitionId(at * 64 + bit));
                }
                at += 1;
            }
            None
        })
    }

    /// Returns the bitmap. Partition `i` is bit `i % 8` of byte `i / 8`.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        let mut out = [0; 32];
        for (chunk, word) in out.chunks_exact_mut(8).zip(self.words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Returns the set of a bitmap: the inverse of [`to_bytes`](Self::to_bytes).
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        let mut words = [0; 4];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut raw = [0; 8];
            raw.copy_from_slice(chunk);
            *word = u64::from_le_bytes(raw);
        }
        let set = PartitionSet { words };
        debug_assert_eq!(set.to_bytes(), *bytes, "the two codings are inverse");
        set
    }
}

impl FromIterator<PartitionId> for PartitionSet {
    fn from_iter<I: IntoIterator<Item = PartitionId>>(ids: I) -> Self {
        let mut set = Self::empty();
        for id in ids {
            set.insert(id);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmap_round_trips_in_ascending_order() {
        let set: PartitionSet = [255, 0, 63, 64].map(PartitionId).into_iter().collect();
        assert_eq!(PartitionSet::from_bytes(&set.to_bytes()), set);
        assert_eq!(
            set.iter().map(|p| p.0).collect::<Vec<_>>(),
            [0, 63, 64, 255]
        );
        assert_eq!(set.len(), 4);
    }
}
