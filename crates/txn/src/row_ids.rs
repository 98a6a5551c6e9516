//! The ids of rows without key columns.
//!
//! A key-addressed table takes ids from the partition's sequence, which the ordered frames keep. Records of
//! page-addressed tables have no sequence, so these tables take ids from a *counter*: a row of the catalog. Each
//! partition has one counter for all its page-addressed tables. An append changes the counter like any other row. So the
//! counter is logged, imaged, archived and restored with the rows.

use perdura_base::{Error, PartitionId, Result, TableId};
use perdura_heap::TableKey;

use crate::counters::{COUNTED_FROM, read_counter};
use crate::tx::Tx;
use crate::typed::TypedTable;

/// The maximum number of rows without a key that one transaction can insert in one partition of a key-addressed table.
const ROW_IDS_MAX: u64 = 1 << 16;

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
        Ok(sequence.saturating_mul(ROW_IDS_MAX).saturating_add(count))
    }

    /// Takes a number from the partition's counter.
    fn counted_row_id(&mut self, home: PartitionId) -> Result<u64> {
        let _verb = self.verb();
        self.use_pages();
        let at = self.guard_of(home)?;
        let key = self.counters.of(home, self.geometry);
        let hash = self.geometry.hash(key);
        debug_assert_eq!(self.geometry.partition_of(hash), home, "its own counter");
        let number = match self.guards[at].1.peek(TableId::CATALOG, key, hash) {
            Some(row) => read_counter(home, &row.value())?,
            None => COUNTED_FROM,
        };
        self.set_counter(home, number + 1)?;
        Ok(number)
    }

    /// Returns whether a home has a counter.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return.
    pub fn has_row_counter(&self, home: PartitionId) -> Result<bool> {
        let at = self.guard_of(home)?;
        let key = self.counters.of(home, self.geometry);
        let hash = self.geometry.hash(key);
        let row = self.guards[at].1.peek(TableId::CATALOG, key, hash);
        Ok(row.is_some())
    }

    /// Sets the counter of a home, so that the next number is above `taken`.
    ///
    /// # Errors
    /// The errors of a write.
    pub fn skip_row_ids(&mut self, home: PartitionId, taken: u64) -> Result<()> {
        let _verb = self.verb();
        self.set_counter(home, taken.saturating_add(1).max(COUNTED_FROM))
    }

    fn set_counter(&mut self, home: PartitionId, next: u64) -> Result<()> {
        assert!(next >= COUNTED_FROM, "a counter begins there");
        let at = self.guard_of(home)?;
        let counters = self.counters;
        let key = counters.of(home, self.geometry);
        let hash = self.geometry.hash(key);
        let value = next.to_le_bytes();
        let bytes = key.len() + value.len();
        self.admit(bytes)?;
        self.change(at, bytes + Self::ROW_BYTES, |part, undo| {
            let to = TableKey::new(TableId::CATALOG, key, hash);
            match part.overwrite(undo, to, &value)? {
                true => Ok(()),
                false => part.insert(undo, to, &value),
            }
        })
    }
}
