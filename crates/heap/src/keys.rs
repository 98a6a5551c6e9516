//! An index of keys in the order of their bytes.
//!
//! Most keys of typed tables are a few numbers. Keys of up to [`INLINE_BYTES`] lie in the map's nodes. A search
//! compares short keys there, and an insertion allocates nothing for a short key.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use crate::entry::Entry;
use crate::form::TableForm;

/// The maximum length of a key in the map's nodes, bytes.
const INLINE_BYTES: usize = 22;
/// An estimate of the bytes that a key takes in the map's nodes.
const NODE_BYTES: u64 = 48;

/// A key of the index. It is boxed if it is longer than [`INLINE_BYTES`].
enum Key {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Boxed(Box<[u8]>),
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Key {
        match u8::try_from(key.len()) {
            Ok(len) if key.len() <= INLINE_BYTES => {
                let mut bytes = [0; INLINE_BYTES];
                bytes[..key.len()].copy_from_slice(key);
                Key::Inline { len, bytes }
            }
            _ => Key::Boxed(key.into()),
        }
    }
}

impl Borrow<[u8]> for Key {
    #[inline]
    fn borrow(&self) -> &[u8] {
        match self {
            Key::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Key::Boxed(bytes) => bytes,
        }
    }
}

/// Keys are in the order of their bytes. An inline key is padded with zeros. If two padded keys are equal, the shorter
/// key comes first.
impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let (this, that): (&[u8], &[u8]) = (self.borrow(), other.borrow());
        let (Key::Inline { len, bytes }, Key::Inline { len: n, bytes: b }) = (self, other) else {
            return this.cmp(that);
        };
        let order = numbers(bytes).cmp(&numbers(b)).then(len.cmp(n));
        debug_assert_eq!(order, this.cmp(that), "the order of slices");
        order
    }
}

/// Returns the bytes of an inline key as numbers. The numbers sort as the bytes do.
#[inline]
fn numbers(bytes: &[u8; INLINE_BYTES]) -> (u64, u64, u64) {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let number = |word: [u8; 8]| u64::from_be_bytes(word);
    (number(words[0]), number(words[1]), number(last))
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

/// Entries in the order of their keys.
#[derive(Default)]
pub(crate) struct Keys {
    map: BTreeMap<Key, Entry>,
    bytes: u64,
}

/// A walk over the entries of a range, in the order of their keys.
pub(crate) type Walk<'a> = std::iter::Flatten<std::option::IntoIter<Range<'a>>>;

/// The entries with keys in a range.
#[derive(Clone)]
pub(crate) struct Range<'a>(btree_map::Range<'a, Key, Entry>);

impl<'a> Iterator for Range<'a> {
    type Item = (&'a [u8], Entry);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, entry)| (key.borrow(), *entry))
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0
            .next_back()
            .map(|(key, entry)| (key.borrow(), *entry))
    }
}

impl Keys {
    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns the size of the index in memory, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Inserts a key with its entry. If the index has the key already, replaces its entry. Returns whether the key is
    /// new.
    pub(crate) fn insert(&mut self, key: &[u8], entry: Entry) -> bool {
        let is_new = self.map.insert(key.into(), entry).is_none();
        if is_new {
            self.bytes += bytes_of(key);
        }
        debug_assert!(self.bytes >= NODE_BYTES, "a key is on the account");
        is_new
    }

    /// Removes a key. Returns whether it was in the index.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let removed = if key.len() <= INLINE_BYTES {
            self.map.remove(&Key::from(key))
        } else {
            self.map.remove(key)
        };
        let was_there = removed.is_some();
        if was_there {
            debug_assert!(self.bytes >= bytes_of(key), "a key that is in is counted");
            self.bytes -= bytes_of(key);
        }
        was_there
    }

    pub(crate) fn clear(&mut self) {
        self.map.clear();
        self.bytes = 0;
    }

    /// Returns the entries with keys in a range. The range may be empty.
    pub(crate) fn range(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Walk<'_> {
        let some = (!is_empty(low, high)).then(|| {
            let is_inline = |bound: Bound<&[u8]>| match bound {
                Bound::Included(key) | Bound::Excluded(key) => key.len() <= INLINE_BYTES,
                Bound::Unbounded => true,
            };
            Range(if is_inline(low) && is_inline(high) {
                self.map.range((low.map(Key::from), high.map(Key::from)))
            } else {
                self.map.range::<[u8], _>((low, high))
            })
        });
        some.into_iter().flatten()
    }
}

fn is_empty(low: Bound<&[u8]>, high: Bound<&[u8]>) -> bool {
    match (low, high) {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high))
        | (Bound::Excluded(low), Bound::Included(high)) => low >= high,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}

fn bytes_of(key: &[u8]) -> u64 {
    let outside = if key.len() > INLINE_BYTES {
        key.len()
    } else {
        0
    };
    u64::try_from(outside).unwrap_or(u64::MAX) + NODE_BYTES
}

/// The keys of one row in all secondary indexes of its table.
#[derive(Default)]
pub(crate) struct IndexKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl IndexKeys {
    /// Derives the keys of the row that has this key and value.
    pub(crate) fn derive(&mut self, form: &TableForm, key: &[u8], value: &[u8]) {
        self.bytes.clear();
        self.ends.clear();
        let Some(derive) = &form.derive else { return };
        for index in 0..derive.indexes() {
            derive.index_key(index, key, value, &mut self.bytes);
            self.bytes.extend_from_slice(key);
            self.ends.push(self.bytes.len());
        }
    }

    pub(crate) fn get(&self, index: usize) -> &[u8] {
        debug_assert!(index < self.ends.len(), "a key is derived for each index");
        let from = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from..self.ends[index]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::KeyHash;

    #[test]
    fn keys_of_all_lengths_are_in_the_order_of_their_bytes_and_on_the_account() {
        assert_eq!(size_of::<Key>(), 24, "a key and its entry are half a line");
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut keys, mut model) = (Keys::default(), BTreeMap::new());
        for slot in 0..2000 {
            let key: Vec<u8> = (0..rng.usize(0..40)).map(|_| rng.u8(0..3)).collect();
            let entry = Entry::new(
                KeyHash(0),
                slot / 1000,
                usize::try_from(slot % 1000).unwrap(),
            );
            if rng.u8(0..3) == 0 {
                assert_eq!(keys.remove(&key), model.remove(&key).is_some());
            } else {
                let is_new = model.insert(key.clone(), entry).is_none();
                assert_eq!(keys.insert(&key, entry), is_new);
            }
        }
        let all: Vec<_> = keys.range(Bound::Unbounded, Bound::Unbounded).collect();
        let expected: Vec<_> = model.iter().map(|(k, e)| (k.as_slice(), *e)).collect();
        assert_eq!(all, expected);
        let bytes = model.keys().map(|key| bytes_of(key)).sum::<u64>();
        assert_eq!((keys.bytes(), keys.len()), (bytes, model.len()));
        for _ in 0..500 {
            let bound = |rng: &mut fastrand::Rng| -> Vec<u8> {
                (0..rng.usize(0..30)).map(|_| rng.u8(0..3)).collect()
            };
            let (low, high) = (bound(&mut rng), bound(&mut rng));
            let found = keys.range(Bound::Excluded(&*low), Bound::Included(&*high));
            let found: Vec<_> = found.map(|(key, _)| key.to_vec()).collect();
            let within = model.keys().filter(|key| **key > low && **key <= high);
            assert_eq!(found, within.cloned().collect::<Vec<_>>());
        }
        let low: &[u8] = &[1];
        let empty = keys.range(Bound::Excluded(low), Bound::Excluded(low));
        assert_eq!(empty.count(), 0);
        keys.clear();
        assert_eq!((keys.bytes(), keys.len()), (0, 0));
    }
}
