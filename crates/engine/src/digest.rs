//! What a database holds, in one number.
//!
//! A sum, without order, over the keys of every table of a hash of table name, key, type, expiry and
//! content. The content is what a client reads: a collection's elements, however they are packed, in
//! whatever partition they are and whatever number the collection has there. So equal data gives an
//! equal digest, whatever history, method of recovery or export it came from.

use perdura_base::checksum::{hash64, mix64};
use perdura_base::{Error, PartitionId, Result, TableId};
use perdura_heap::{Heap, PartitionGuard, RowRef};
use perdura_recovery::ComponentKind;
use perdura_txn::{Kind, Shape};
use perdura_types::small::Packed;

use crate::catalog::{Tables, read_tables};

/// The logical digest of a heap whose indexes are built, at one moment: every latch is held.
///
/// # Errors
/// [`Error::Corrupt`] if the catalog, or a row that an index names, cannot be read: the digest of
/// what is left would look like that of a smaller database.
pub fn digest(heap: &Heap) -> Result<u64> {
    let ids = (0..heap.geometry().partitions).map(PartitionId);
    let parts: Vec<PartitionGuard<'_>> = ids.map(|id| heap.lock(id)).collect();
    let mut sum = 0u64;
    let mut tables = Tables::new();
    for part in &parts {
        read_tables(part, &mut tables)?;
    }
    for (name, (table, kind)) in tables {
        sum = sum.wrapping_add(match kind.component {
            ComponentKind::Heap => of_heap(&parts, &name, table)?,
        });
    }
    Ok(sum)
}

/// The digest of a table of the heap.
fn of_heap(parts: &[PartitionGuard<'_>], name: &str, table: TableId) -> Result<u64> {
    let mut sum = 0u64;
    let seed = hash64(0, name.as_bytes());
    for (index, part) in parts.iter().enumerate() {
        let mut rows = 0u64;
        let mut lacking = None;
        part.for_each(table, |row| {
            rows += 1;
            let key = row.key();
            match content(parts, table, &row, hash64(seed, &key)) {
                Some(content) => {
                    let expiry = row.expiry_ms().map_or(0, |ms| ms.wrapping_add(1));
                    sum = sum.wrapping_add(mix64(content ^ mix64(expiry)));
                }
                None => lacking = Some(key.into_owned()),
            }
        });
        if let Some(key) = lacking {
            let key = String::from_utf8_lossy(&key).into_owned();
            let place = format!("{name}, key {key:?}");
            return Err(refused(place, "a value", "one that does not parse"));
        }
        if rows != part.len(table) {
            return Err(refused(
                format!("partition {index}, {name}"),
                &format!("the {} rows that its index names", part.len(table)),
                &format!("{rows} rows"),
            ));
        }
    }
    Ok(sum)
}

fn refused(place: String, expected: &str, found: &str) -> Error {
    Error::corrupt(
        place,
        0,
        expected,
        found,
        "There is no digest of part of the data. Keep a copy and report it.",
    )
}

/// The digest of a key's type and value under `seed`, which stands for table and key. `None` if the
/// row does not parse, or heads a collection that is not there.
fn content(
    parts: &[PartitionGuard<'_>],
    table: TableId,
    row: &RowRef<'_>,
    seed: u64,
) -> Option<u64> {
    match row.kind() {
        Kind::String => Some(mix64(hash64(seed, &row.value()))),
        Kind::Small(shape) => {
            let value = row.value();
            let Some(packed) = Packed::parse(&*value, shape) else {
                // The caller of `Tx::put_small` packed it in a form that only the caller knows.
                return Some(mix64(hash64(seed, &value)));
            };
            let mut sum = Sum::new(shape, seed);
            for element in packed.iter() {
                match shape {
                    Shape::Hash => sum.add(&element.key, &element.value),
                    Shape::List | Shape::Set => sum.add(&element.key, &[]),
                    Shape::Zset => sum.add(&element.key, &score_bytes(element.score())),
                }
            }
            sum.finish()
        }
        Kind::Header(shape) => {
            let home = row.home()?;
            let part = parts.get(usize::from(home.partition.0))?;
            assert_eq!(part.id(), home.partition, "partitions are in their order");
            let elements = part.elements(table, home.id)?;
            let mut sum = Sum::new(shape, seed);
            for element in &elements {
                match shape {
                    Shape::Hash => sum.add(&element.field(), &element.value()),
                    // Its field is a label: an order number, and no data.
                    Shape::List => sum.add(&element.value(), &[]),
                    Shape::Set => sum.add(&element.field(), &[]),
                    Shape::Zset => sum.add(&element.field(), &score_bytes(element.score())),
                }
            }
            sum.finish().filter(|_| sum.count == elements.len())
        }
        // An element is no key.
        Kind::Element(_) => None,
    }
}

/// A score without the sign of zero, which packing a score drops, as in Redis.
fn score_bytes(score: f64) -> [u8; 8] {
    (score + 0.0).to_le_bytes()
}

/// A collection's elements, summed up. Only a list's have places.
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
        };
        Sum {
            shape,
            seed: mix64(seed ^ mix64(number)),
            sum: 0,
            count: 0,
        }
    }

    fn add(&mut self, name: &[u8], value: &[u8]) {
        self.count += 1;
        let place = if self.shape == Shape::List {
            self.count
        } else {
            0
        };
        let of_name = hash64(self.seed ^ mix64(place), name);
        self.sum = self.sum.wrapping_add(mix64(hash64(of_name, value)));
    }

    /// `None` if there was no element: no key heads an empty collection.
    fn finish(&self) -> Option<u64> {
        (self.count > 0).then(|| mix64(self.sum ^ mix64(self.count)))
    }
}
