//! The numbers of keys and rows of a database, by table and type.

use std::collections::BTreeMap;

use perdura_heap::Shape;
use perdura_recovery::component::Value;
use serde::Serialize;

/// The numbers of keys of each type in a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Strings.
    pub strings: u64,
    /// Hashes.
    pub hashes: u64,
    /// Lists.
    pub lists: u64,
    /// Sets.
    pub sets: u64,
    /// Sorted sets.
    pub sorted_sets: u64,
    /// Streams.
    pub streams: u64,
    /// Rows of a typed table or a tree.
    pub rows: u64,
}

/// The tables that have a key or a row, by name.
pub type ByTable = BTreeMap<String, Counts>;

impl Counts {
    /// Counts a key with this value.
    pub(crate) fn add(&mut self, value: &Value<'_>) {
        *match value {
            Value::String(_) => &mut self.strings,
            Value::Row(_) => &mut self.rows,
            Value::Packed(shape, _) => self.of_shape(*shape),
            Value::Elements(elements) => self.of_shape(elements.shape),
        } += 1;
    }

    fn of_shape(&mut self, shape: Shape) -> &mut u64 {
        match shape {
            Shape::Hash => &mut self.hashes,
            Shape::List => &mut self.lists,
            Shape::Set => &mut self.sets,
            Shape::Zset => &mut self.sorted_sets,
            Shape::Stream => &mut self.streams,
        }
    }

    /// Returns the numbers above zero in words, for example "3 strings, 1 hashes".
    #[must_use]
    pub fn text(&self) -> String {
        let all = [
            (self.strings, "strings"),
            (self.hashes, "hashes"),
            (self.lists, "lists"),
            (self.sets, "sets"),
            (self.sorted_sets, "sorted sets"),
            (self.streams, "streams"),
            (self.rows, "rows"),
        ];
        let some = all.iter().filter(|(count, _)| *count > 0);
        let words: Vec<String> = some.map(|(count, of)| format!("{count} {of}")).collect();
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_in_words() {
        let counts = Counts {
            strings: 12,
            sorted_sets: 2,
            ..Counts::default()
        };
        assert_eq!(counts.text(), "12 strings, 2 sorted sets");
        assert_eq!(Counts::default().text(), "");
    }
}
