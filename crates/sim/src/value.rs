//! The value of a key in the model: a value of one of the six types. Its contents are stored as descriptions, and its
//! names as numbers.
//!
//! Clones of a collection share content until a clone is changed. This keeps the history of a run small. A name is a
//! number that represents bytes: an integer, a word, or the empty string. Some names are too long for a packed
//! collection or for a page.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

use perdura::Shape;
use perdura::types::stream::Stream;
use perdura::types::{Source, list, zset};

use crate::content::{Content, scramble};
use crate::streams::StreamModel;

/// The number that represents the name of a field or member.
pub type Name = u16;
/// The number that represents a score.
pub type Score = i16;

/// Returns the bytes of a name.
pub(crate) fn name_bytes(name: Name) -> Vec<u8> {
    let digits = name.to_string();
    let len = match name {
        16 => return Vec::new(),
        31 => 17_000,
        n if n % 16 == 7 => 70,
        n if n % 64 == 15 => 1500,
        n if n % 3 == 0 => return digits.into_bytes(),
        _ => "name".len() + digits.len(),
    };
    let mut bytes = Vec::with_capacity(len);
    bytes.extend_from_slice(b"name");
    bytes.extend_from_slice(digits.as_bytes());
    bytes.resize(len, b'.');
    bytes
}

/// Returns the score that a number represents.
pub(crate) fn score_of(score: Score) -> f64 {
    match score {
        Score::MAX => f64::INFINITY,
        Score::MIN => f64::NEG_INFINITY,
        n => f64::from(n) / 2.0,
    }
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A string.
    String(Content),
    /// Fields with values.
    Hash(Rc<BTreeMap<Name, Content>>),
    /// Items in their order.
    List(Rc<Vec<Content>>),
    /// Members.
    Set(Rc<BTreeSet<Name>>),
    /// Members with scores.
    Zset(Rc<BTreeMap<Name, Score>>),
    /// Entries, and a group.
    Stream(Rc<StreamModel>),
}

impl Value {
    /// Returns the shape of the collection. `None`: the value is a string.
    #[must_use]
    pub fn shape(&self) -> Option<Shape> {
        match self {
            Value::String(_) => None,
            Value::Hash(_) => Some(Shape::Hash),
            Value::List(_) => Some(Shape::List),
            Value::Set(_) => Some(Shape::Set),
            Value::Zset(_) => Some(Shape::Zset),
            Value::Stream(_) => Some(Shape::Stream),
        }
    }

    /// Returns how many elements the value has. A string counts as one.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Value::String(_) => 1,
            Value::Hash(fields) => fields.len(),
            Value::List(items) => items.len(),
            Value::Set(members) => members.len(),
            Value::Zset(members) => members.len(),
            Value::Stream(stream) => stream.len(),
        }
    }

    /// Returns whether the value counts as empty, so that its key is deleted. A stream counts as empty only if it has
    /// never existed. All other values count as empty if they have no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Value::Stream(stream) => stream.is_absent(),
            _ => self.len() == 0,
        }
    }

    /// Returns whether the stored collection `source` has exactly the elements of this value. Reads the collection in
    /// every way: by count, name, index and rank, in order, and by a scan.
    #[must_use]
    pub fn is_in(&self, source: &Source<'_>) -> bool {
        if let (Value::Stream(model), Source::Rows(rows)) = (self, source) {
            return Stream::of(*rows).is_ok_and(|stream| model.is(&stream, source.len()));
        }
        let same_count = usize::try_from(source.len()).is_ok_and(|len| len == self.len());
        if !same_count || source.iter().count() != self.len() {
            return false;
        }
        match self {
            Value::String(_) | Value::Stream(_) => false,
            Value::List(items) => {
                let mut stored = list::items(source, 0, source.len());
                let in_order = items
                    .iter()
                    .all(|item| stored.next().is_some_and(|text| item.matches(&text)));
                let at_place = (0..)
                    .zip(items.iter())
                    .all(|(at, item)| list::at(source, at).is_some_and(|text| item.matches(&text)));
                in_order && at_place
            }
            Value::Hash(fields) => {
                let found = fields.iter().all(|(field, value)| {
                    let entry = source.find(&name_bytes(*field));
                    entry.is_some_and(|entry| value.matches(&entry.value()))
                });
                found && scan_meets_all(source)
            }
            Value::Set(members) => {
                let found = |member: &Name| source.find(&name_bytes(*member)).is_some();
                members.iter().all(found) && scan_meets_all(source)
            }
            Value::Zset(_) => {
                let mut stored = zset::members(source, 0, source.len());
                let ranked = (0..).zip(self.ranked());
                let mut in_order = ranked.map(|(rank, (score, name))| {
                    zset::rank(source, &name) == Some(rank)
                        && stored
                            .next()
                            .is_some_and(|(text, at)| *text == *name && at == score)
                });
                in_order.all(|same| same) && scan_meets_all(source)
            }
        }
    }

    /// Returns the members of a sorted set in their order. Returns nothing for other values.
    pub(crate) fn ranked(&self) -> Vec<(f64, Vec<u8>)> {
        let Value::Zset(members) = self else {
            return Vec::new();
        };
        let members = members.iter();
        let mut ranked: Vec<(Score, Vec<u8>)> = members
            .map(|(name, score)| (*score, name_bytes(*name)))
            .collect();
        ranked.sort_unstable();
        debug_assert!(
            ranked.is_sorted_by(|a, b| a < b) && ranked.len() == self.len(),
            "every member has a rank"
        );
        let ranked = ranked.into_iter();
        ranked
            .map(|(score, name)| (score_of(score), name))
            .collect()
    }
}

fn scan_meets_all(source: &Source<'_>) -> bool {
    let (mut met, mut cursor) = (HashSet::new(), 0);
    loop {
        let (entries, next) = source.scan(cursor, 7);
        met.extend(entries.iter().map(|entry| digest(&entry.key())));
        cursor = next;
        if cursor == 0 {
            return u64::try_from(met.len()).is_ok_and(|met| met == source.len());
        }
    }
}

/// Returns a number that represents `bytes` in a reply.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| {
        chunk
            .iter()
            .fold(1, |word, byte| word << 8 | u64::from(*byte))
    };
    let words = bytes.chunks(7).map(word);
    words.fold(7, |sum, word| scramble(sum ^ word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_scores_are_distinct() {
        let names: HashSet<Vec<u8>> = (0..2000).map(name_bytes).collect();
        assert_eq!(names.len(), 2000);
        let scores = (Score::MIN..=Score::MAX).map(score_of);
        assert!(scores.is_sorted_by(|a, b| a < b));
    }
}
