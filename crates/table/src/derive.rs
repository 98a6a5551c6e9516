//! Makes the keys of secondary indexes from a schema. So a restart can build a table's indexes without the program that
//! declares the table.

use std::sync::Arc;

use perdura_base::cursor::Reader;
use perdura_heap::{Derive, TableForm};

use crate::key::{from_value, take_column};
use crate::layout::{Layout, Place};
use crate::schema::{Indexed, Schema};
use crate::types::Base;

/// The source of an index column: a key column, or a place in the row's value.
#[derive(Debug, Clone, Copy)]
enum Part {
    Key(usize),
    Value(Place, Base),
}

/// The maker of index keys for a table's rows.
#[derive(Debug)]
pub struct SchemaDerive {
    key: Vec<Base>,
    layout: Layout,
    indexes: Vec<Vec<Part>>,
}

impl SchemaDerive {
    /// Returns a maker of index keys for the rows of `schema`.
    #[must_use]
    pub fn new(schema: &Schema) -> SchemaDerive {
        let part = |column: &Indexed| match *column {
            Indexed::Key(at) => Part::Key(at),
            Indexed::Value(at) => Part::Value(schema.places()[at], schema.columns()[at].kind.base),
        };
        let indexes = schema.indexes().iter();
        SchemaDerive {
            key: schema.key_types().map(|kind| kind.base).collect(),
            layout: schema.layout(),
            indexes: indexes
                .map(|index| index.columns.iter().map(part).collect())
                .collect(),
        }
    }

    /// Appends a key column unchanged: the encoding is the same in primary keys and index keys.
    fn put_key_column(&self, at: usize, key: &[u8], out: &mut Vec<u8>) {
        let mut r = Reader::new(key);
        let mut column = self.key.iter().map_while(|base| take_column(*base, &mut r));
        if let Some(column) = column.nth(at) {
            out.extend_from_slice(column);
        }
    }
}

impl Derive for SchemaDerive {
    fn indexes(&self) -> usize {
        self.indexes.len()
    }

    /// Appends the index key of a row. Omits a malformed column. A search by the remaining columns then still finds the
    /// row. Reading the row reports the damage.
    fn index_key(&self, index: usize, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let parts = self.indexes.get(index);
        debug_assert!(parts.is_some(), "the heap asks for indexes that there are");
        for part in parts.into_iter().flatten() {
            match *part {
                Part::Key(at) => self.put_key_column(at, key, out),
                Part::Value(place, base) => {
                    if let Some(column) = self.layout.column(place, value) {
                        from_value(base, column, out);
                    }
                }
            }
        }
    }
}

impl Schema {
    /// Returns the maker of the table's index keys; `None` if the table has no secondary index.
    #[must_use]
    pub fn derive(&self) -> Option<Arc<dyn Derive>> {
        let derive = || Arc::new(SchemaDerive::new(self)) as Arc<dyn Derive>;
        (!self.indexes().is_empty()).then(derive)
    }

    /// Returns the heap's description of the table.
    #[must_use]
    pub fn form(&self) -> TableForm {
        TableForm {
            ordered: self.is_ordered(),
            keyed: self.is_keyed(),
            placed: true,
            derive: self.derive(),
        }
    }
}

#[cfg(test)]
mod tests;
