//! The contents of a database, in one number.
//!
//! The digest is a sum over the keys of every table, so the order of the keys does not matter. Each key adds a hash of
//! the table's name, the key, the type, the expiry and the content. The content is the value that a client reads. A
//! collection's content does not depend on the packing of its elements, their partitions or the collection's ids. So
//! equal data gives an equal digest, whatever history, recovery method or export it came from.
//!
//! Redis streams are an exception. A stream adds a hash of its rows. The stream's history determines which entries
//! share a row, so equal streams may have different digests. In a table without key columns, the ids of
//! the rows depend on the order of insertion. The digest leaves these ids out, so such tables are no exception.

use std::collections::BTreeMap;

use perdura_base::checksum::{hash64, mix64};
use perdura_base::{Error, Result};
use perdura_recovery::Data;
use perdura_recovery::component::{Element, KeyContent, Value};
use perdura_table::Schema;
use perdura_txn::Shape;
use perdura_types::small::Packed;

use crate::catalog::{CATALOG, Tables, read_row};
use crate::counts::ByTable;

/// A summary of all data of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// The logical digest.
    pub digest: u64,
    /// The number of rows in trees. No index counts these rows.
    pub rows_of_trees: u64,
    /// The numbers of keys and rows of each table.
    pub tables: ByTable,
}

/// A table, as the catalog describes it.
struct Named {
    name: String,
    is_typed: bool,
    is_keyless: bool,
}

/// Returns the logical digest of a database; see [`summary`].
///
/// # Errors
/// As [`summary`].
pub fn digest(data: &Data<'_>) -> Result<u64> {
    summary(data).map(|all| all.digest)
}

/// Reads all data of a database and returns the summary. The database's indexes must be built. The catalog's keys come
/// first and give the tables' names. The keys of these tables follow, and the hash of each key is added to the digest.
/// The hash of a tree's row covers the table's id instead of the table's name.
///
/// # Errors
/// [`Error::Corrupt`] if the catalog, or a row that an index names, cannot be read. Skipping a damaged row would give
/// the digest of a database without the row.
pub fn summary(data: &Data<'_>) -> Result<Summary> {
    let (mut tables, mut names) = (Tables::new(), BTreeMap::new());
    let mut all = Summary::default();
    data.contents(&mut |table, content| {
        if let Some(Value::Row(row)) = content.value {
            let of_key = hash64(u64::from(table.0), &content.key);
            all.digest = all.digest.wrapping_add(mix64(hash64(of_key, row)));
            all.rows_of_trees += 1;
            let name = names.get(&table).map(|named: &Named| named.name.clone());
            let name = name.unwrap_or_else(|| format!("table {}", table.0));
            all.tables.entry(name).or_default().rows += 1;
            return Ok(());
        }
        if table == CATALOG {
            let Some(Value::String(value)) = &content.value else {
                return Err(refused("catalog (table 0)".into(), "strings", "other rows"));
            };
            return read_row(&content.key, value, &mut tables);
        }
        if names.is_empty() {
            let by_id = tables.iter().map(|(name, entry)| {
                let schema = Schema::decode(&entry.schema);
                let named = Named {
                    name: name.clone(),
                    is_typed: !entry.schema.is_empty(),
                    is_keyless: schema.is_some_and(|schema| schema.is_keyless()),
                };
                (entry.id, named)
            });
            names.extend(by_id);
        }
        if let Some(Named {
            name,
            is_typed,
            is_keyless,
        }) = names.get(&table)
        {
            let mut content = content;
            if *is_keyless {
                content.key = Vec::new().into();
            }
            if let Some(value) = &content.value {
                let counts = all.tables.entry(name.clone()).or_default();
                match is_typed {
                    true => counts.rows += 1,
                    false => counts.add(value),
                }
            }
            all.digest = all.digest.wrapping_add(of_key(name, content)?);
        }
        Ok(())
    })?;
    Ok(all)
}

/// Returns the digest of a key and its content. `table` is the name of its table.
fn of_key(table: &str, content: KeyContent<'_>) -> Result<u64> {
    let seed = hash64(hash64(0, table.as_bytes()), &content.key);
    let Some(value) = content.value.and_then(|value| of_value(value, seed)) else {
        let key = String::from_utf8_lossy(&content.key);
        let place = format!("{table}, key {key:?}");
        return Err(refused(place, "a value", "one that does not parse"));
    };
    let expiry = content.expiry_ms.map_or(0, |ms| ms.wrapping_add(1));
    Ok(mix64(value ^ mix64(expiry)))
}

fn refused(place: String, expected: &str, found: &str) -> Error {
    Error::corrupt(
        place,
        0,
        expected,
        found,
        "A part of the data cannot be digested. Copy the files and report the bug.",
    )
}

/// Returns the digest of a value and its type. `seed` is the hash of table and key. `None`: the value is a collection
/// that is empty or lacks elements.
fn of_value(value: Value<'_>, seed: u64) -> Option<u64> {
    match value {
        Value::String(value) => Some(mix64(hash64(seed, &value))),
        Value::Row(row) => Some(mix64(hash64(seed, row))),
        Value::Packed(shape, value) => {
            let Some(packed) = Packed::parse(&*value, shape) else {
                // The value was stored with `Tx::put_small`, packed in a form that only its caller
                // knows.
                return Some(mix64(hash64(seed, &value)));
            };
            let mut sum = Sum::new(shape, seed);
            for element in packed.iter() {
                let score = match shape {
                    Shape::Zset => element.score(),
                    Shape::Hash | Shape::List | Shape::Set | Shape::Stream => 0.0,
                };
                sum.add(&element.key, &element.value, score);
            }
            sum.finish()
        }
        Value::Elements(elements) => {
            let mut sum = Sum::new(elements.shape, seed);
            let add = |e: Element<'_>| sum.add(&e.name, &e.value, e.score);
            elements.each.for_each(add);
            sum.finish().filter(|_| sum.count == elements.count)
        }
    }
}

/// Returns the bytes of a score, with -0 as 0. Packing a score drops the sign of zero too, as Redis
/// does.
fn score_bytes(score: f64) -> [u8; 8] {
    (score + 0.0).to_le_bytes()
}

/// The sum of a collection's elements. A list's sum depends on the order of the elements. Other sums do not.
struct Sum {
    shape: Shape,
    seed: u64,
    sum: u64,
    count: u64,
}

impl Sum {
    fn new(shape: Shape, seed: u64) -> Sum {
        let number = match shape {
            Shape::Hash => 1,
            Shape::List => 2,
            Shape::Set => 3,
            Shape::Zset => 4,
            Shape::Stream => 5,
        };
        Sum {
            shape,
            seed: mix64(seed ^ mix64(number)),
            sum: 0,
            count: 0,
        }
    }

    fn add(&mut self, name: &[u8], value: &[u8], score: f64) {
        let score = score_bytes(score);
        let value: &[u8] = match self.shape {
            Shape::Hash | Shape::Stream => value,
            Shape::List | Shape::Set => &[],
            Shape::Zset => &score,
        };
        self.count += 1;
        let place = if self.shape == Shape::List {
            self.count
        } else {
            0
        };
        let of_name = hash64(self.seed ^ mix64(place), name);
        self.sum = self.sum.wrapping_add(mix64(hash64(of_name, value)));
    }

    /// Returns the sum. `None` if the collection has no element: an empty collection has no key, so this is damage.
    fn finish(&self) -> Option<u64> {
        (self.count > 0).then(|| mix64(self.sum ^ mix64(self.count)))
    }
}
