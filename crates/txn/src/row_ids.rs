//! The ids of rows without key columns.
//!
//! A key-addressed table takes ids from the partition's sequence, which the ordered frames keep. Records of
//! page-addressed tables have no sequence, so these tables take ids from a *counter*: a row of the catalog. Each
//! partition has one counter for all its page-addressed tables. An append changes the counter like any other row. So the
//! counter is logged, imaged, archived and restored with the rows.

use std::sync::OnceLock;

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{Error, PartitionId, Result, TableId};
use perdura_heap::{Geometry, TableKey};

use crate::tx::Tx;
use crate::typed::TypedTable;

/// The maximum number of rows without a key that one transaction can insert in one partition of a key-addressed table.
const ROW_IDS_MAX: u64 = 1 << 16;

/// The first number that a counter gives. An earlier build took the ids of all tables from the sequence. A sequence
/// does not reach this number.
const COUNTED_FROM: u64 = 1 << 55;

/// The prefix of a counter's key in the catalog.
const PREFIX: &[u8] = b"i";

/// The keys of the partitions' counters, computed at the first use.
#[derive(Default)]
pub(crate) struct CounterKeys(OnceLock<Box<[Vec<u8>]>>);

impl CounterKeys {
    /// Returns the key of a partition's counter. A row of the catalog is in the partition of its key's hash. So the key
    /// ends with the smallest u32 that makes the hash name this partition.
    fn of(&self, home: PartitionId, geometry: &Geometry) -> &[u8] {
        let keys = self.0.get_or_init(|| find_keys(geometry));
        &keys[usize::from(home.0)]
    }
}

fn find_keys(geometry: &Geometry) -> Box<[Vec<u8>]> {
    let mut keys = vec![Vec::new(); usize::from(geometry.partitions)];
    let mut missing = keys.len();
    for number in 0..u32::MAX {
        if missing == 0 {
            break;
        }
        let mut key = PREFIX.to_vec();
        key.put(&number.to_be_bytes());
        let home = geometry.partition_of(geometry.hash(&key));
        let found = &mut keys[usize::from(home.0)];
        if found.is_empty() {
            *found = key;
            missing -= 1;
        }
    }
    assert_eq!(missing, 0, "hashes reach every partition");
    keys.into()
}

impl Tx<'_> {
    /// Returns the number of a new row's id in a table without key columns. The number is never used again in this
    /// home.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return. [`Error::Usage`] after 65,536 new rows of one transaction
    /// in one partition of a key-addressed table. The errors of a write. [`Error::Corrupt`] if the counter does not
    /// parse.
    pub fn next_row_id(&mut self, table: TypedTable, home: PartitionId) -> Result<u64> {
        match table.keyed {
            true => self.sequenced_row_id(home),
            false => self.counted_row_id(home),
        }
    }

    /// Takes a number from the partition's sequence.
    fn sequenced_row_id(&mut self, home: PartitionId) -> Result<u64> {
        let sequence = self.sequence(home)?;
        let found = self.typed.row_ids.iter_mut().find(|(id, _)| *id == home);
        let count = match found {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                self.typed.row_ids.push((home, 0));
                0
            }
        };
        if count >= ROW_IDS_MAX {
            return Err(Error::Usage(format!(
                "a transaction inserts at most {ROW_IDS_MAX} rows without a key in one partition"
            )));
        }
        self.typed.homes.insert(home);
        let number = sequence * ROW_IDS_MAX + count;
        assert!(number < COUNTED_FROM, "a sequence stays below the counters");
        Ok(number)
    }

    /// Takes a number from the partition's counter.
    fn counted_row_id(&mut self, home: PartitionId) -> Result<u64> {
        let _verb = self.verb();
        self.use_pages();
        let at = self.guard_of(home)?;
        let counters = self.counters;
        let key = counters.of(home, self.geometry);
        let hash = self.geometry.hash(key);
        debug_assert_eq!(self.geometry.partition_of(hash), home, "its own counter");
        let number = match self.guards[at].1.peek(TableId::CATALOG, key, hash) {
            Some(row) => read_counter(&row.value()).ok_or_else(|| damaged(home))?,
            None => COUNTED_FROM,
        };
        let value = (number + 1).to_le_bytes();
        let bytes = key.len() + value.len();
        self.admit(bytes)?;
        self.change(at, bytes + Self::ROW_BYTES, |part, undo| {
            let to = TableKey::new(TableId::CATALOG, key, hash);
            match part.overwrite(undo, to, &value)? {
                true => Ok(()),
                false => part.insert(undo, to, &value),
            }
        })?;
        Ok(number)
    }
}

/// Decodes the value of a counter. `None`: no append writes this value.
fn read_counter(value: &[u8]) -> Option<u64> {
    let mut r = Reader::new(value);
    let number = r.u64()?;
    (r.remaining() == 0 && number >= COUNTED_FROM).then_some(number)
}

fn damaged(home: PartitionId) -> Error {
    Error::corrupt(
        "catalog (table 0)",
        0,
        format!("the counter of row ids of partition {home}"),
        "a row that does not parse",
        "The checksums of its pages match, so this is a bug in Perdura. Copy the files and report \
         the bug.",
    )
}
