//! Verbs that read.

use perdura_base::{PartitionId, Result};
use perdura_heap::Which;
use perdura_heap::ahead::AHEAD_KEYS;
use smallvec::{SmallVec, smallvec};

use super::Cx;
use crate::column::ColumnType;
use crate::key::take_column;
use crate::prefix::{Columns, Prefix, WholeKey};
use crate::registry::Entry;
use crate::rows::{Rows, Span, Stretch, merged};
use crate::table::{Index, Table};
use crate::view::RowView;

/// The partitions that a verb reads: one partition or all partitions.
type Homes = SmallVec<[PartitionId; 1]>;

/// The compile error for a range of keys in a table without an order.
const ORDERED: &str = "ranges of keys need a table with `order = ordered`";

impl Cx<'_, '_> {
    /// Returns the row with a key.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure must return;
    /// [`Error::Usage`](perdura_base::Error::Usage) if the database does not have the table;
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt).
    pub fn get<T: Table>(&self, key: impl WholeKey<T::Key>) -> Result<Option<T>> {
        let entry = self.entry::<T>()?;
        let placed = self.place::<T>(&key);
        let home = self.read_at(placed.home);
        let row = self
            .tx
            .typed_get(entry.table, home, placed.key.as_slice())?;
        let Some(row) = row else { return Ok(None) };
        match row.value_slice() {
            Some(value) => T::decode(placed.key.as_slice(), value).map(Some),
            None => T::decode(placed.key.as_slice(), &row.value()).map(Some),
        }
    }

    /// Returns the row with a key. Its columns are decoded when they are read.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn view<T: Table>(&self, key: impl WholeKey<T::Key>) -> Result<Option<RowView<'_, T>>> {
        let entry = self.entry::<T>()?;
        let placed = self.place::<T>(&key);
        let home = self.read_at(placed.home);
        let row = self
            .tx
            .typed_get(entry.table, home, placed.key.as_slice())?;
        Ok(row.map(|row| RowView::new(row.key(), row.value())))
    }

    /// Returns whether a row with a key exists.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains<T: Table>(&self, key: impl WholeKey<T::Key>) -> Result<bool> {
        let entry = self.entry::<T>()?;
        let placed = self.place::<T>(&key);
        let home = self.read_at(placed.home);
        let row = self
            .tx
            .typed_get(entry.table, home, placed.key.as_slice())?;
        Ok(row.is_some())
    }

    /// Prefetches, all at once, the memory of rows that later verbs will read or write. Without this call, each lookup
    /// waits for memory twice. The call is only a hint. Keys after the first [`AHEAD_KEYS`] are ignored.
    pub fn look_ahead<T: Table>(&self, keys: impl IntoIterator<Item = impl WholeKey<T::Key>>) {
        let Ok(entry) = self.entry::<T>() else {
            return;
        };
        let keys = keys.into_iter().take(AHEAD_KEYS).map(|key| {
            let placed = self.place::<T>(&key);
            (entry.table, self.read_at(placed.home), placed.key)
        });
        self.tx.typed_look_ahead(keys);
    }

    /// Returns the rows of an ordered table with keys that begin with `prefix`, in key order. The prefix `()` selects
    /// all rows and reads all partitions. Any other prefix reads only one partition.
    ///
    /// # Errors
    /// If the rows cannot be read, the first item of the result is the error; see [`Rows`].
    pub fn rows<T: Table>(&self, prefix: impl Prefix<T::Key>) -> Rows<'_, T> {
        const {
            assert!(
                matches!(T::DECLARATION.order, crate::declare::Order::Ordered),
                "{}",
                ORDERED
            )
        };
        let home = prefix.home(self.registry.geometry());
        let stretch = Stretch::of_prefix(&prefix);
        self.stretch(Which::Primary, home, stretch)
    }

    /// Returns the rows of an ordered table with keys in a range of prefixes, in key order. An included bound includes
    /// all keys that begin with the bound; an excluded bound excludes all these keys. If the first columns of the two
    /// bounds are equal, reads only one partition. Otherwise reads all partitions.
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub fn range<T: Table>(&self, range: impl Span<T::Key>) -> Rows<'_, T> {
        const {
            assert!(
                matches!(T::DECLARATION.order, crate::declare::Order::Ordered),
                "{}",
                ORDERED
            )
        };
        let stretch = range.stretch();
        let home = self.home_of::<T>(&stretch);
        self.stretch(Which::Primary, home, stretch)
    }

    /// Returns the rows with index columns that begin with `prefix`, in index order. If the index begins with the first
    /// key column, and `prefix` has a value for this column, reads only one partition. Otherwise reads all partitions.
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub fn by<T: Table, C: Columns>(
        &self,
        index: Index<T, C>,
        prefix: impl Prefix<C>,
    ) -> Rows<'_, T> {
        let home = prefix.home(self.registry.geometry());
        let home = home.filter(|_| index.leads_home());
        let stretch = Stretch::of_prefix(&prefix);
        self.stretch(Which::Secondary(index.index()), home, stretch)
    }

    /// Returns the rows with index columns in a range of prefixes, in index order. Bounds work as in
    /// [`range`](Self::range).
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub fn by_range<T: Table, C: Columns>(
        &self,
        index: Index<T, C>,
        range: impl Span<C>,
    ) -> Rows<'_, T> {
        let stretch = range.stretch();
        let home = self.home_of::<T>(&stretch);
        let home = home.filter(|_| index.leads_home());
        self.stretch(Which::Secondary(index.index()), home, stretch)
    }

    /// Calls `each` with every row, partition by partition. Within a partition, the rows have no particular order.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn each<T: Table>(&self, mut each: impl FnMut(T)) -> Result<()> {
        let entry = self.entry::<T>()?;
        let mut damaged = None;
        for home in self.homes::<T>(None)? {
            self.tx.typed_each(entry.table, home, |row| {
                match T::decode(&row.key(), &row.value()) {
                    Ok(row) => each(row),
                    Err(error) => damaged = Some(error),
                }
            })?;
        }
        damaged.map_or(Ok(()), Err)
    }

    /// Returns the number of the table's rows.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn count<T: Table>(&self) -> Result<u64> {
        let entry = self.entry::<T>()?;
        let homes = self.homes::<T>(None)?;
        let mut count = 0;
        for home in homes {
            count += self.tx.typed_len(entry.table, home)?;
        }
        Ok(count)
    }

    /// Returns the partitions to read: `home` if it is given, otherwise all. For a replicated table, returns one
    /// partition, because each has all rows. If all partitions must be read and latches are missing, adds all of the
    /// missing latches to the transaction's list of them, and fails.
    fn homes<T: Table>(&self, home: Option<PartitionId>) -> Result<Homes> {
        if T::DECLARATION.replicated {
            return Ok(smallvec![self.first_latched()]);
        }
        if let Some(home) = home {
            return Ok(smallvec![home]);
        }
        let all = (0..self.registry.geometry().partitions).map(PartitionId);
        let mut missing = Ok(());
        for home in all.clone() {
            if let Err(error) = self.tx.sequence(home) {
                missing = Err(error);
            }
        }
        missing.map(|()| all.collect())
    }

    fn home_of<T: Table>(&self, stretch: &Stretch) -> Option<PartitionId> {
        let base = <T::Key as Columns>::First::TYPE.base;
        let (start, end) = stretch.prefixes()?;
        let column = |bytes| take_column(base, &mut perdura_base::cursor::Reader::new(bytes));
        let first = column(start)?;
        if column(end)? != first {
            return None;
        }
        let placement = crate::key::placement(base, first)?;
        Some(placement.home(self.registry.geometry()))
    }

    fn stretch<T: Table>(
        &self,
        which: Which,
        home: Option<PartitionId>,
        stretch: Stretch,
    ) -> Rows<'_, T> {
        if stretch.is_empty() {
            return Rows::none();
        }
        let found = self.entry::<T>().and_then(|entry| {
            let homes = self.homes::<T>(home)?;
            self.read::<T>(entry, which, &homes, &stretch)
        });
        found.unwrap_or_else(Rows::failed)
    }

    fn read<'s, T: Table>(
        &'s self,
        entry: &'s Entry,
        which: Which,
        homes: &Homes,
        stretch: &Stretch,
    ) -> Result<Rows<'s, T>> {
        let rows = |home| {
            self.tx
                .typed_rows(entry.table, home, which, stretch.bounds())
        };
        if let [home] = homes.as_slice() {
            return Ok(Rows::new(rows(*home)?));
        }
        let mut parts = Vec::with_capacity(homes.len());
        for home in homes {
            parts.push(rows(*home)?);
        }
        Ok(Rows::new(merged(parts, which, entry.derive.as_deref())))
    }
}
