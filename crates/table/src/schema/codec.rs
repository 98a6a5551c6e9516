//! The encoding of a schema in the catalog (docs/formats/catalog.md).

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::to_u64;

use super::{Column, Index, Indexed, Schema};
use crate::declare::{Addressing, INDEX_COLUMNS_MAX, Order};
use crate::layout::{COLUMNS_MAX, Layout};
use crate::types::Type;

const VERSION: u8 = 1;
const REPLICATED: u8 = 1;
const KEYED: u8 = 2;
const ORDERED: u8 = 4;
const UNIQUE: u8 = 1;
/// The maximum number of indexes of a table.
const INDEXES_MAX: usize = 64;

impl Schema {
    /// Appends the schema in the encoding of catalog rows.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flags = [
            (self.replicated, REPLICATED),
            (self.is_keyed(), KEYED),
            (self.is_ordered(), ORDERED),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        out.put_u8(VERSION);
        out.put_u8(set.map(|(_, flag)| flag).sum());
        put_name(&self.name, out);
        for columns in [&self.key, &self.columns] {
            out.put_varint(to_u64(columns.len()));
            for column in columns {
                put_name(&column.name, out);
                column.kind.encode(out);
            }
        }
        out.put_varint(to_u64(self.indexes.len()));
        for index in &self.indexes {
            put_name(&index.name, out);
            out.put_u8(if index.unique { UNIQUE } else { 0 });
            out.put_varint(to_u64(index.columns.len()));
            for column in &index.columns {
                let number = match column {
                    Indexed::Key(at) => *at,
                    Indexed::Value(at) => self.key.len() + at,
                };
                out.put_varint(to_u64(number));
            }
        }
    }

    /// Reads a schema that [`encode`](Self::encode) has written; `None` if this build cannot read the bytes as a
    /// schema.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Schema> {
        let mut r = Reader::new(bytes);
        let schema = Schema::read(&mut r)?;
        (r.remaining() == 0).then_some(schema)
    }

    fn read(r: &mut Reader<'_>) -> Option<Schema> {
        let (version, flags) = (r.u8()?, r.u8()?);
        if version != VERSION || flags & !(REPLICATED | KEYED | ORDERED) != 0 {
            return None;
        }
        let table = take_name(r)?;
        let key = take_columns(r, INDEX_COLUMNS_MAX)?;
        let columns = take_columns(r, COLUMNS_MAX)?;
        let is_key = |column: &Column| !column.kind.optional;
        if !key.iter().all(is_key) {
            return None;
        }
        let mut indexes = Vec::new();
        for _ in 0..take_count(r, INDEXES_MAX)? {
            let name = take_name(r)?;
            let flags = r.u8()?;
            let count = take_count(r, INDEX_COLUMNS_MAX)?;
            let mut indexed = Vec::new();
            for _ in 0..count {
                let number = r.varint_usize()?;
                indexed.push(match number.checked_sub(key.len()) {
                    None => Indexed::Key(number),
                    Some(at) if columns.get(at).is_some_and(is_key) => Indexed::Value(at),
                    Some(_) => return None,
                });
            }
            if flags & !UNIQUE != 0 || indexed.is_empty() {
                return None;
            }
            indexes.push(Index {
                name,
                unique: flags == UNIQUE,
                columns: indexed,
            });
        }
        let mut schema = Schema {
            name: table,
            addressing: if flags & KEYED != 0 {
                Addressing::Key
            } else {
                Addressing::Page
            },
            order: if flags & ORDERED != 0 {
                Order::Ordered
            } else {
                Order::Hashed
            },
            replicated: flags & REPLICATED != 0,
            key,
            columns,
            indexes,
            layout: Layout::default(),
            places: Vec::new(),
        };
        schema.lay_out();
        Some(schema)
    }
}

fn put_name(name: &str, out: &mut Vec<u8>) {
    out.put_varint(to_u64(name.len()));
    out.put(name.as_bytes());
}

fn take_name(r: &mut Reader<'_>) -> Option<String> {
    let len = r.varint_usize()?;
    String::from_utf8(r.bytes(len)?.to_vec()).ok()
}

fn take_count(r: &mut Reader<'_>, most: usize) -> Option<usize> {
    r.varint_usize().filter(|count| *count <= most)
}

fn take_columns(r: &mut Reader<'_>, most: usize) -> Option<Vec<Column>> {
    let count = take_count(r, most)?;
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        let name = take_name(r)?;
        let kind = Type::decode(r)?;
        columns.push(Column { name, kind });
    }
    Some(columns)
}
