//! Rows in encoded form, for reading and editing single columns. Only the columns that a program uses are decoded.

use std::borrow::Cow;
use std::marker::PhantomData;

use perdura_base::Result;

use crate::column::{AsColumn, ColumnType, KeyType, RowId};
use crate::key::KeyBytes;
use crate::table::{Column, KeyColumn, KeyReader, Table};

/// A row in encoded form, for reading.
#[derive(Debug, Clone)]
pub struct RowView<'a, T> {
    key: Cow<'a, [u8]>,
    value: Cow<'a, [u8]>,
    of: PhantomData<fn() -> T>,
}

impl<'a, T: Table> RowView<'a, T> {
    /// Returns the row with this key and this value.
    #[must_use]
    pub fn new(key: Cow<'a, [u8]>, value: Cow<'a, [u8]>) -> RowView<'a, T> {
        let of = PhantomData;
        RowView { key, value, of }
    }

    /// Reads a value column.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt), which names the table and the column.
    #[inline]
    pub fn get<C: ColumnType>(&self, column: Column<T, C>) -> Result<C::View<'_>> {
        column.read(&self.value)
    }

    /// Reads a key column.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt), which names the table.
    pub fn key<C: KeyType>(&self, column: KeyColumn<T, C>) -> Result<C> {
        column.read(&self.key)
    }

    /// Returns the id of a row of a table without key columns.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt), which names the table.
    pub fn row_id(&self) -> Result<RowId> {
        const { assert!(T::KEYLESS, "only rows without key columns have ids") };
        KeyReader::new(&self.key).take::<T, RowId>()
    }

    /// Returns the whole row.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt), which names the table and the column.
    pub fn decode(&self) -> Result<T> {
        T::decode(&self.key, &self.value)
    }

    /// Returns the bytes of the key.
    #[must_use]
    pub fn key_bytes(&self) -> &[u8] {
        &self.key
    }

    /// Returns the bytes of the value.
    #[must_use]
    pub fn value_bytes(&self) -> &[u8] {
        &self.value
    }
}

/// An editor that sets single value columns. It changes a copy of the row's value.
#[derive(Debug)]
pub struct RowEdit<'e, T> {
    key: &'e [u8],
    value: &'e mut Vec<u8>,
    of: PhantomData<fn() -> T>,
}

impl<'e, T: Table> RowEdit<'e, T> {
    /// Returns an editor that changes `value` in place. `key` is the row's key.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) if the value is malformed.
    pub fn new(key: &'e [u8], value: &'e mut Vec<u8>) -> Result<RowEdit<'e, T>> {
        if !T::LAYOUT.is_whole(value) {
            T::schema().check_value(value)?;
        }
        let of = PhantomData;
        Ok(RowEdit { key, value, of })
    }

    /// Reads a value column.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt), which names the table and the column.
    #[inline]
    pub fn get<C: ColumnType>(&self, column: Column<T, C>) -> Result<C::View<'_>> {
        column.read(self.value)
    }

    /// Reads a key column.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt), which names the table.
    pub fn key<C: KeyType>(&self, column: KeyColumn<T, C>) -> Result<C> {
        column.read(self.key)
    }

    /// Sets a value column.
    #[inline]
    pub fn set<C: ColumnType>(&mut self, column: Column<T, C>, value: impl AsColumn<C>) {
        let mut bytes = KeyBytes::new();
        C::put(value.as_column(), &mut bytes);
        T::LAYOUT.replace(column.place(), self.value, bytes.as_slice());
    }
}
