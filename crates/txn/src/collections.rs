//! Collections within a transaction.
//!
//! A collection's header is in the partition of its key. Its elements are in the partition that is their *home*. After
//! a rename, the home may differ from the key's partition. If the transaction has not latched the home, a verb (a
//! method of [`Tx`]) fails with [`Error::Undeclared`]. The closure must return this error, and the transaction then
//! runs again with the latch.
//!
//! Invariant: when a transaction commits, every collection with a header has an element. A transaction that removes the
//! last element must also delete the key. Otherwise the executor refuses to commit, because a restart would report the
//! header as damage.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Error, PartitionId, Result, TableId};
use perdura_heap::{
    Displaced, Elements, End, Home, Kind, RowRef, Shape, TableCollection, TableKey, scan_places,
};

use crate::tx::{Content, FEW, Tx, is_alive};

/// Room in the log is requested again after this many copied elements or pushed items.
const COPY_STEP: usize = 256;
/// The approximate number of bytes that a list item takes in the log in addition to its value.
const ITEM_BYTES: usize = 64;
/// The maximum number of keys that are chosen at random. If all of them have expired, the table is searched for a key
/// that has not expired.
const DRAWS: u64 = 32;

impl Tx<'_> {
    /// Makes a key the header of a new collection, and removes the key's previous content. The caller must add elements
    /// in this transaction.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn create(
        &mut self,
        table: TableId,
        key: &[u8],
        shape: Shape,
        expiry_ms: Option<u64>,
    ) -> Result<Home> {
        let _verb = self.verb();
        self.check_write(key, 16)?;
        let (at, hash) = self.place(key)?;
        let partition = self.guards[at].0;
        let (id, displaced) = self.change(at, Self::ROW_BYTES, |part, undo| {
            part.create(undo, TableKey::new(table, key, hash), shape, expiry_ms)
        })?;
        let home = Home { partition, id };
        self.changed.push((table, home));
        self.orphan_displaced(table, displaced)?;
        Ok(home)
    }

    /// Makes the elements of a removed header orphans, if they are in another partition than the header.
    /// [`purge_orphans`](Self::purge_orphans) removes orphans later.
    pub(crate) fn orphan_displaced(&mut self, table: TableId, displaced: Displaced) -> Result<()> {
        if let Some(home) = displaced.foreign
            && !armed(Flaw::ForeignNotOrphaned)
        {
            let at = self.guard_of(home.partition)?;
            self.change(at, 0, |part, undo| {
                part.orphan(undo, table, home.id);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Moves a key with value and expiry to another name, and removes the previous content of the new name. The
    /// elements of a big collection stay in place, unless the new name is in another table. Returns whether the key
    /// existed.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn rename(
        &mut self,
        table: TableId,
        from: &[u8],
        to_table: TableId,
        to: &[u8],
    ) -> Result<bool> {
        let _verb = self.verb();
        let Some(row) = self.get(table, from)? else {
            return Ok(false);
        };
        if (table, from) == (to_table, to) {
            return Ok(true);
        }
        let (kind, expiry, home) = (row.kind(), row.expiry_ms(), row.home());
        if let (Kind::Header(shape), Some(home)) = (kind, home)
            && table != to_table
        {
            let new = self.create(to_table, to, shape, expiry)?;
            self.copy_elements(table, home, to_table, new)?;
            return self.delete(table, from);
        }
        let mut value = Vec::new();
        row.copy_value(&mut value);
        self.check_write(to, value.len())?;
        self.place(to)?;
        let (at, hash) = self.place(from)?;
        self.change(at, 0, |part, undo| Ok(part.unlink(undo, table, from, hash)))?;
        let new = Content {
            kind,
            value: &value,
        };
        self.put_content(to_table, to, new, expiry)?;
        Ok(true)
    }

    /// Adds all elements of a collection to an empty collection of the same shape.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn copy_elements(
        &mut self,
        table: TableId,
        home: Home,
        to_table: TableId,
        to: Home,
    ) -> Result<()> {
        let _verb = self.verb();
        let source = self.elements(table, home)?;
        let (is_list, count) = (source.shape() == Shape::List, source.len());
        self.expect_elements(to_usize(count))?;
        let mut cursor = 0;
        loop {
            let elements = self.elements(table, home)?;
            let (rows, next) = if is_list {
                let end = elements.len().min(cursor + 256);
                let next = if end == elements.len() { 0 } else { end };
                (elements.items(cursor, end).collect(), next)
            } else {
                elements.scan(cursor, COPY_STEP)
            };
            let copies = rows.into_iter().map(|row| {
                let mut value = Vec::with_capacity(row.value_len());
                row.copy_value(&mut value);
                (row.field().into_owned(), value)
            });
            let copies: Vec<_> = copies.collect();
            if is_list {
                let items: Vec<&[u8]> = copies.iter().map(|(_, item)| item.as_slice()).collect();
                self.list_push(to_table, to, End::Back, &items)?;
            } else {
                for (field, value) in &copies {
                    self.element_put(to_table, to, field, value)?;
                }
            }
            assert!(next == 0 || next > cursor, "a copy goes on");
            cursor = next;
            if cursor == 0 {
                debug_assert_eq!(self.elements(to_table, to)?.len(), count, "each is copied");
                return Ok(());
            }
        }
    }

    /// Requests room in the log for `count` elements before the first change of an element. Without this request, the
    /// log may refuse a later change, and the transaction then runs again from its beginning. This is only a hint, and
    /// does nothing for a small `count`.
    ///
    /// # Errors
    /// [`Error::LogFull`], [`Error::Stopped`].
    pub fn expect_elements(&mut self, count: usize) -> Result<()> {
        if count < FEW {
            return Ok(());
        }
        let _verb = self.verb();
        let bytes = count.saturating_mul(Self::ROW_BYTES + ITEM_BYTES);
        self.admit_in_all(self.appending.saturating_add(bytes))
    }

    /// Returns a reader of a collection's elements.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return; [`Error::Usage`] if the collection does not exist.
    pub fn elements(&self, table: TableId, home: Home) -> Result<Elements<'_>> {
        let _verb = self.verb();
        let at = self.guard_of(home.partition)?;
        let found = self.guards[at].1.elements(table, home.id);
        found.ok_or_else(|| {
            let (id, partition) = (home.id.0, home.partition);
            let what = format!("table {table} has no collection {id} in partition {partition}");
            Error::Usage(what)
        })
    }

    /// Writes an element: a hash field with a value, a set member with an empty value, or a sorted set member with a
    /// score. A score is eight bytes, a little-endian double that is not NaN. Returns whether the element is new.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Usage`] if the collection is a list or the value does not fit the collection's
    /// shape.
    pub fn element_put(
        &mut self,
        table: TableId,
        home: Home,
        field: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        let _verb = self.verb();
        self.check_memory()?;
        self.check_value(field)?;
        self.check_value(value)?;
        let bytes = field.len() + value.len() + Self::ROW_BYTES;
        self.admit_part(bytes)?;
        let at = self.guard_of(home.partition)?;
        self.change(at, bytes, |part, undo| {
            part.element_put(undo, TableCollection::new(table, home.id), field, value)
        })
    }

    /// Removes a field or member. Returns whether it existed. A caller that removes the last element must delete the
    /// key.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return; [`Error::Usage`] if the collection is a list.
    pub fn element_delete(&mut self, table: TableId, home: Home, field: &[u8]) -> Result<bool> {
        let taken = self.element_take(table, home, field, |_| ())?;
        Ok(taken.is_some())
    }

    /// Like [`element_delete`](Self::element_delete), but returns the result of `read` for the removed row. `None`: the
    /// element did not exist.
    ///
    /// # Errors
    /// As [`element_delete`](Self::element_delete).
    pub fn element_take<R>(
        &mut self,
        table: TableId,
        home: Home,
        field: &[u8],
        read: impl FnOnce(RowRef<'_>) -> R,
    ) -> Result<Option<R>> {
        let _verb = self.verb();
        let at = self.guard_of(home.partition)?;
        self.changed_by_removal(table, home);
        self.change(at, 0, |part, undo| {
            part.element_take(undo, TableCollection::new(table, home.id), field, read)
        })
    }

    /// Adds items at an end of a list, one by one.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Usage`] if the list does not exist.
    pub fn list_push(
        &mut self,
        table: TableId,
        home: Home,
        end: End,
        values: &[&[u8]],
    ) -> Result<()> {
        let _verb = self.verb();
        for few in values.chunks(COPY_STEP) {
            self.check_memory()?;
            few.iter().try_for_each(|value| self.check_value(value))?;
            let bytes: usize = few.iter().map(|value| value.len() + ITEM_BYTES).sum();
            self.admit(bytes)?;
            let at = self.guard_of(home.partition)?;
            self.change(at, bytes + Self::ROW_BYTES, |part, undo| {
                part.list_push(undo, TableCollection::new(table, home.id), end, few)
            })?;
        }
        Ok(())
    }

    /// Adds an item at an end of a list. Returns the list's new length.
    ///
    /// # Errors
    /// As [`list_push`](Self::list_push).
    pub fn list_push_one(
        &mut self,
        table: TableId,
        home: Home,
        end: End,
        value: &[u8],
    ) -> Result<u64> {
        let _verb = self.verb();
        self.check_memory()?;
        self.check_value(value)?;
        let bytes = value.len() + ITEM_BYTES;
        self.admit(bytes)?;
        let at = self.guard_of(home.partition)?;
        let len = self.change(at, bytes + Self::ROW_BYTES, |part, undo| {
            let list = TableCollection::new(table, home.id);
            part.list_push(undo, list, end, &[value])
        })?;
        debug_assert!(len > 0, "a list with a new item is not empty");
        Ok(to_u64(len))
    }

    /// Passes the item at an end of a list to `read`, and removes it unless it is the only item. Returns the result of
    /// `read`, and the number of items that are left; `None` if the list has no item. If no item is left, the caller
    /// must delete the key.
    ///
    /// # Errors
    /// As [`list_pop`](Self::list_pop).
    pub fn list_take<R>(
        &mut self,
        table: TableId,
        home: Home,
        end: End,
        read: impl FnOnce(RowRef<'_>) -> R,
    ) -> Result<Option<(R, u64)>> {
        let _verb = self.verb();
        let at = self.guard_of(home.partition)?;
        let taken = self.change(at, 0, |part, undo| {
            part.list_take(undo, TableCollection::new(table, home.id), end, read)
        })?;
        Ok(taken.map(|(result, left)| (result, to_u64(left))))
    }

    /// Removes items from an end of a list. A caller that removes the last item must delete the
    /// key.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return; [`Error::Usage`] if the list has fewer items.
    pub fn list_pop(&mut self, table: TableId, home: Home, end: End, count: usize) -> Result<()> {
        let _verb = self.verb();
        self.changed_by_removal(table, home);
        let mut left = count;
        while left > 0 {
            let few = left.min(COPY_STEP);
            let at = self.guard_of(home.partition)?;
            self.change(at, 0, |part, undo| {
                part.list_pop(undo, TableCollection::new(table, home.id), end, few)
            })?;
            left -= few;
        }
        Ok(())
    }

    /// Inserts an item before the item at `index`. If `index` is the list's length, the new item becomes the last item.
    ///
    /// # Errors
    /// As [`list_push`](Self::list_push); [`Error::Usage`] if `index` is beyond the end.
    pub fn list_insert(
        &mut self,
        table: TableId,
        home: Home,
        index: u64,
        value: &[u8],
    ) -> Result<()> {
        let _verb = self.verb();
        let at = self.check_item(home, value)?;
        self.change(at, value.len(), |part, undo| {
            part.list_insert(
                undo,
                TableCollection::new(table, home.id),
                to_usize(index),
                value,
            )
        })
    }

    /// Overwrites the item at `index`.
    ///
    /// # Errors
    /// As [`list_insert`](Self::list_insert).
    pub fn list_set(&mut self, table: TableId, home: Home, index: u64, value: &[u8]) -> Result<()> {
        let _verb = self.verb();
        let at = self.check_item(home, value)?;
        self.change(at, value.len(), |part, undo| {
            part.list_set(
                undo,
                TableCollection::new(table, home.id),
                to_usize(index),
                value,
            )
        })
    }

    /// Removes the item at `index`. A caller that removes the last item must delete the key.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return; [`Error::Usage`] if no item has this index.
    pub fn list_remove(&mut self, table: TableId, home: Home, index: u64) -> Result<()> {
        let _verb = self.verb();
        let at = self.guard_of(home.partition)?;
        self.changed_by_removal(table, home);
        self.change(at, 0, |part, undo| {
            part.list_remove(undo, TableCollection::new(table, home.id), to_usize(index))
        })
    }

    fn check_item(&mut self, home: Home, value: &[u8]) -> Result<usize> {
        self.check_memory()?;
        self.check_value(value)?;
        self.admit(value.len())?;
        self.guard_of(home.partition)
    }

    /// Notes a collection that may have lost its last element.
    fn changed_by_removal(&mut self, table: TableId, home: Home) {
        if self.changed.last() != Some(&(table, home)) {
            self.changed.push((table, home));
        }
    }

    /// Fails if a changed collection has a header but no element.
    pub fn check_collections(&self) -> Result<()> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let _verb = self.verb();
        for (table, home) in &self.changed {
            let at = self.guard_of(home.partition)?;
            let found = self.guards[at].1.elements(*table, home.id);
            if found.is_some_and(|elements| elements.is_empty())
                && !self.guards[at].1.is_draft(*table, home.id)
            {
                let what = format!("collection {} of table {table} is left empty", home.id.0);
                return Err(Error::Usage(what));
            }
        }
        Ok(())
    }

    /// Returns about `count` keys, and the cursor for the next call. The keys are in hash order and begin at `cursor`.
    /// Cursor 0 begins a scan, and a returned cursor 0 ends it. Expired keys are left out. A call reads only one
    /// partition; see [`Geometry::partition_of_cursor`](perdura_heap::Geometry::partition_of_cursor). A call may return
    /// no key. A key that exists during the whole scan is returned at least once, even if other keys change or the
    /// database restarts between two calls.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return.
    pub fn scan_keys(
        &self,
        table: TableId,
        cursor: u64,
        count: usize,
    ) -> Result<(Vec<RowRef<'_>>, u64)> {
        self.scan_keys_within(table, cursor, count, &mut scan_places(count))
    }

    /// Like [`scan_keys`](Self::scan_keys), but visits at most about `places` slots of the index. Subtracts the number
    /// of visited slots from `places`. Each call subtracts one more, for the visit of the partition.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return.
    pub fn scan_keys_within(
        &self,
        table: TableId,
        cursor: u64,
        count: usize,
        places: &mut usize,
    ) -> Result<(Vec<RowRef<'_>>, u64)> {
        *places = places.saturating_sub(1);
        let _verb = self.verb();
        let Some(partition) = self.geometry.partition_of_cursor(cursor) else {
            return Ok((Vec::new(), 0));
        };
        let at = self.guard_of(partition)?;
        let (mut rows, next) = self.guards[at].1.scan_keys(table, cursor, count, places);
        rows.retain(|row| is_alive(row, self.now_ms));
        Ok((rows, next))
    }

    /// Returns a random key, chosen by the random number `r`. `None`: the table has no key, or all its keys have
    /// expired. Every partition must be latched.
    ///
    /// # Errors
    /// [`Error::Undeclared`] if a partition is missing.
    pub fn random_key(&self, table: TableId, r: u64) -> Result<Option<RowRef<'_>>> {
        let _verb = self.verb();
        use perdura_base::checksum::mix64;
        let len = self.len(table)?;
        for draw in 0..DRAWS {
            let r = mix64(r.wrapping_add(draw));
            let Some(mut rank) = r.checked_rem(len) else {
                return Ok(None);
            };
            for (_, part) in &self.guards {
                let here = part.len(table);
                if rank >= here {
                    rank -= here;
                    continue;
                }
                let row = part.random_row(table, mix64(r));
                match row.filter(|row| is_alive(row, self.now_ms)) {
                    Some(row) => return Ok(Some(row)),
                    None => break,
                }
            }
        }
        // Most keys have expired, so search for one that has not. Skip partitions that have only expired keys.
        for (id, part) in &self.guards {
            let mut cursor = u64::from(id.0) << 32;
            while part.may_live(table, self.now_ms)
                && self.geometry.partition_of_cursor(cursor) == Some(*id)
            {
                let (rows, next) = self.scan_keys(table, cursor, 64)?;
                if let Some(row) = rows.into_iter().next() {
                    return Ok(Some(row));
                }
                cursor = if next == 0 { u64::MAX } else { next };
            }
        }
        Ok(None)
    }

    /// Removes up to `max` orphaned rows of a partition. Returns the number of removed rows.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return; [`Error::LogFull`], [`Error::Stopped`].
    pub fn purge_orphans(&mut self, partition: PartitionId, max: usize) -> Result<usize> {
        let _verb = self.verb();
        let at = self.guard_of(partition)?;
        self.change(at, 0, |part, undo| Ok(part.purge_orphans(undo, max)))
    }
}
