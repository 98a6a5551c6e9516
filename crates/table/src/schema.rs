//! A table's schema as data. The catalog holds the schema. So rows of a table can be indexed, checked and printed
//! without the program.

mod codec;
mod differs;

use perdura_base::cursor::Reader;
use perdura_base::{Error, PartitionId, Result};
use perdura_heap::Geometry;

use crate::declare::{Addressing, Declaration, Order};
use crate::key::{placement, take_column, to_value};
use crate::layout::{Layout, Place, bytes_of};
use crate::types::{Base, Type};

/// A column: its name and its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Type,
}

/// A column of an index, given by its position among the key columns or among the value columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexed {
    /// A key column.
    Key(usize),
    /// A value column.
    Value(usize),
}

/// A secondary index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Its name.
    pub name: String,
    /// True if no two rows of a partition may have equal values in all columns of the index.
    pub unique: bool,
    /// Its columns.
    pub columns: Vec<Indexed>,
}

/// The schema of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    name: String,
    addressing: Addressing,
    order: Order,
    replicated: bool,
    key: Vec<Column>,
    columns: Vec<Column>,
    indexes: Vec<Index>,
    layout: Layout,
    places: Vec<Place>,
}

/// The type of the key of a table without key columns.
const ROW_ID: Type = Type::plain(Base::U64);

impl Schema {
    /// Returns the schema that a program declares.
    #[must_use]
    pub fn new(declared: &Declaration) -> Schema {
        let columns = |columns: &[(&str, Type)]| {
            let column = |(name, kind): &(&str, Type)| Column {
                name: (*name).to_owned(),
                kind: *kind,
            };
            columns.iter().map(column).collect::<Vec<_>>()
        };
        let mut schema = Schema {
            name: declared.name.to_owned(),
            addressing: declared.addressing,
            order: declared.order,
            replicated: declared.replicated,
            key: columns(declared.key),
            columns: columns(declared.columns),
            indexes: Vec::new(),
            layout: Layout::default(),
            places: Vec::new(),
        };
        for index in declared.indexes {
            let found = index.columns.iter().map(|(name, _)| schema.find(name));
            let columns: Vec<_> = found.flatten().collect();
            assert_eq!(
                columns.len(),
                index.columns.len(),
                "the declaration was checked when the program was compiled"
            );
            schema.indexes.push(Index {
                name: index.name.to_owned(),
                unique: index.unique,
                columns,
            });
        }
        schema.lay_out();
        schema
    }

    /// Returns the schema with this addressing, which a program may choose when it opens the database.
    #[must_use]
    pub fn with_addressing(self, addressing: Addressing) -> Schema {
        Schema { addressing, ..self }
    }

    fn find(&self, name: &str) -> Option<Indexed> {
        let among = |columns: &[Column]| columns.iter().position(|column| column.name == name);
        let key = among(&self.key).map(Indexed::Key);
        key.or_else(|| among(&self.columns).map(Indexed::Value))
    }

    fn lay_out(&mut self) {
        let mut layout = Layout::default();
        self.places.clear();
        for column in &self.columns {
            let (next, place) = layout.with(column.kind);
            self.places.push(place);
            layout = next;
        }
        self.layout = layout;
        debug_assert_eq!(self.places.len(), self.columns.len(), "a place for each");
    }

    /// Returns the table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the addressing of the table.
    #[must_use]
    pub fn addressing(&self) -> Addressing {
        self.addressing
    }

    /// Returns the order of the primary index.
    #[must_use]
    pub fn order(&self) -> Order {
        self.order
    }

    /// Returns whether the table is key-addressed.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        self.addressing == Addressing::Key
    }

    /// Returns whether rows can be found by ranges of keys.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.order == Order::Ordered
    }

    /// Returns whether each partition has a copy of each row.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.replicated
    }

    /// Returns whether rows have a hidden id instead of key columns.
    #[must_use]
    pub fn is_keyless(&self) -> bool {
        self.key.is_empty()
    }

    /// Returns the key columns.
    #[must_use]
    pub fn key(&self) -> &[Column] {
        &self.key
    }

    /// Returns the value columns.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the secondary indexes.
    #[must_use]
    pub fn indexes(&self) -> &[Index] {
        &self.indexes
    }

    /// Returns the layout of the columns in a value.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the place of each value column.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Returns the types of the key columns, or the type of the hidden row id.
    pub(crate) fn key_types(&self) -> impl Iterator<Item = Type> + '_ {
        let hidden = self.is_keyless().then_some(ROW_ID);
        self.key.iter().map(|column| column.kind).chain(hidden)
    }

    /// Returns the name of an index's column.
    #[must_use]
    pub fn column_name(&self, column: Indexed) -> &str {
        let found = match column {
            Indexed::Key(at) => self.key.get(at),
            Indexed::Value(at) => self.columns.get(at),
        };
        found.map_or("?", |column| &column.name)
    }

    /// Returns the partition of the row with this key. For a replicated table the result has no meaning, because its
    /// rows are in every partition.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the bytes are not a key of this table.
    pub fn home(&self, geometry: &Geometry, key: &[u8]) -> Result<PartitionId> {
        let first = self.key_types().next().unwrap_or(ROW_ID).base;
        let placement = take_column(first, &mut Reader::new(key))
            .and_then(|column| placement(first, column))
            .ok_or_else(|| self.damaged_key(0, key))?;
        Ok(placement.home(geometry))
    }

    /// Fails if `key` or `value` lacks a column, has a malformed column, or has bytes after its last column.
    ///
    /// # Errors
    /// [`Error::Corrupt`], which names the table and the column.
    pub fn check(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut r = Reader::new(key);
        let mut column = Vec::new();
        for (at, kind) in self.key_types().enumerate() {
            column.clear();
            take_column(kind.base, &mut r)
                .and_then(|bytes| to_value(kind.base, bytes, &mut column))
                .ok_or_else(|| self.damaged_key(at, key))?;
        }
        if r.remaining() > 0 {
            return Err(self.damaged_key(self.key.len(), key));
        }
        self.check_value(value)
    }

    /// Fails if `value` lacks a column, has a malformed column, or has bytes after its last column.
    ///
    /// # Errors
    /// [`Error::Corrupt`], which names the table and the column.
    pub fn check_value(&self, value: &[u8]) -> Result<()> {
        for (at, place) in self.places.iter().enumerate() {
            let bytes = self.layout.column(*place, value);
            if !bytes.is_some_and(|bytes| self.columns[at].kind.holds(bytes)) {
                return Err(self.damaged_column(at, value));
            }
        }
        if !self.layout.is_whole(value) {
            return Err(damaged(
                &self.name,
                value.len(),
                "a value that ends with its last column",
                bytes_of(value),
            ));
        }
        Ok(())
    }

    pub(crate) fn damaged_column(&self, column: usize, value: &[u8]) -> Error {
        let expected = self.columns.get(column).map_or_else(
            || "a column that the table has".to_owned(),
            |column| format!("column {} ({})", column.name, column.kind),
        );
        let at = match self.places.get(column) {
            Some(Place::Fixed { at, .. }) => *at,
            _ => self.layout.fixed_bytes,
        };
        damaged(&self.name, at, expected, format!("{value:02x?}"))
    }

    fn damaged_key(&self, column: usize, key: &[u8]) -> Error {
        let expected = match self.key.get(column) {
            Some(column) => format!("key column {} ({})", column.name, column.kind),
            None if self.is_keyless() => "the key: a row id".to_owned(),
            None => "the key to end with its last column".to_owned(),
        };
        damaged(&self.name, 0, expected, format!("{key:02x?}"))
    }

    /// Returns the key as readable text: its columns in brackets. Returns a malformed key as hexadecimal bytes.
    #[must_use]
    pub fn key_text(&self, key: &[u8]) -> String {
        let mut r = Reader::new(key);
        let mut texts = Vec::new();
        for kind in self.key_types() {
            let mut value = Vec::new();
            let column = take_column(kind.base, &mut r)
                .and_then(|column| to_value(kind.base, column, &mut value));
            if column.is_none() {
                return format!("{key:02x?}");
            }
            texts.push(text(kind, &value));
        }
        format!("({})", texts.join(", "))
    }

    /// Returns a value as readable text: each column's name and contents.
    #[must_use]
    pub fn value_text(&self, value: &[u8]) -> String {
        let columns = self.columns.iter().zip(&self.places);
        let texts: Vec<String> = columns
            .map(|(column, place)| match self.layout.column(*place, value) {
                Some(bytes) => format!("{}: {}", column.name, text(column.kind, bytes)),
                None => format!("{}: damaged", column.name),
            })
            .collect();
        texts.join(", ")
    }
}

/// Returns the contents of a column as readable text.
fn text(kind: Type, bytes: &[u8]) -> String {
    let bytes = match (kind.optional, bytes) {
        (true, [0, ..]) => return "none".to_owned(),
        (true, [_, rest @ ..]) => rest,
        _ => bytes,
    };
    let mut wide = [0; 8];
    let known = bytes.len().min(8);
    wide[..known].copy_from_slice(&bytes[..known]);
    let unsigned = u64::from_le_bytes(wide);
    let signed = || {
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut wide = wide;
        wide[known..].fill(if negative { 0xff } else { 0 });
        i64::from_le_bytes(wide)
    };
    match kind.base {
        Base::Bool => (unsigned != 0).to_string(),
        Base::U8 | Base::U16 | Base::U32 | Base::U64 => unsigned.to_string(),
        Base::I8 | Base::I16 | Base::I32 | Base::I64 => signed().to_string(),
        Base::F64 => f64::from_bits(unsigned).to_string(),
        Base::String | Base::Bytes | Base::Array(_) => {
            format!("{:?}", String::from_utf8_lossy(bytes))
        }
    }
}

/// Returns the error for a row that does not match its table's schema.
pub(crate) fn damaged(
    table: &str,
    at: usize,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Error {
    Error::corrupt(
        format!("a row of table {table}"),
        perdura_base::num::to_u64(at),
        expected,
        found,
        "The row cannot be read; restore it from a backup",
    )
}

#[cfg(test)]
pub(crate) mod tests;
