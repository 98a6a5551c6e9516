//! The trait that `table!` implements for a struct, and the types of the generated constants for columns and indexes.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicUsize;

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{PartitionId, Result};
use perdura_heap::Geometry;

use crate::column::{ColumnType, KeyType};
use crate::declare::Declaration;
use crate::key::KeyBytes;
use crate::layout::{Layout, Place};
use crate::prefix::Columns;
use crate::schema::{Schema, damaged};

/// A struct for the rows of a table. [`table!`](crate::table!) implements this trait.
pub trait Table: Sized + 'static {
    /// The program's declaration of the table.
    const DECLARATION: Declaration;
    /// The table's name.
    const NAME: &'static str = Self::DECLARATION.name;
    /// The layout of its values.
    const LAYOUT: Layout = Self::DECLARATION.layout();
    /// True if rows have a hidden id instead of key columns.
    const KEYLESS: bool = Self::DECLARATION.key.is_empty();
    /// The types of its key columns as a tuple; `(RowId,)` for a table without key columns.
    type Key: Columns;

    /// Returns the schema, as data.
    fn schema() -> &'static Schema;
    /// Returns the position that the table's entry had in a [`Registry`](crate::Registry) at the last
    /// lookup.
    #[doc(hidden)]
    fn hint() -> &'static AtomicUsize;
    /// Appends the row's key. Appends nothing if the table has no key columns.
    fn encode_key(&self, out: &mut KeyBytes);
    /// Returns the row's partition; `None` if the table has no key columns.
    fn home(&self, geometry: &Geometry) -> Option<PartitionId>;
    /// Appends the row's value.
    fn encode_row(&self, out: &mut Vec<u8>);
    /// Returns the row with this key and this value.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt), which names the table and the column.
    fn decode(key: &[u8], value: &[u8]) -> Result<Self>;
}

/// A value column of type `C` of the table `T`.
pub struct Column<T, C> {
    index: usize,
    place: Place,
    of: PhantomData<fn() -> (T, C)>,
}

/// A key column of type `C` of the table `T`.
pub struct KeyColumn<T, C> {
    index: usize,
    of: PhantomData<fn() -> (T, C)>,
}

/// A secondary index with the columns `C` of the table `T`.
pub struct Index<T, C> {
    index: usize,
    leads_home: bool,
    of: PhantomData<fn() -> (T, C)>,
}

macro_rules! handle {
    ($($name:ident),*) => {$(
        impl<T, C> Clone for $name<T, C> {
            #[inline]
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T, C> Copy for $name<T, C> {}
        impl<T, C> fmt::Debug for $name<T, C> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.index)
            }
        }
        impl<T, C> $name<T, C> {
            /// Returns the position of this column or index among the table's value columns, key columns or indexes.
            #[inline]
            #[must_use]
            pub const fn index(self) -> usize {
                self.index
            }
        }
    )*};
}

handle!(Column, KeyColumn, Index);

impl<T: Table, C: ColumnType> Column<T, C> {
    /// Returns the column that has this name.
    #[must_use]
    pub const fn of(name: &str) -> Self {
        let (index, place) = T::DECLARATION.column(name);
        Column {
            index,
            place,
            of: PhantomData,
        }
    }

    /// Returns the column's place in a value.
    #[inline]
    #[must_use]
    pub const fn place(self) -> Place {
        self.place
    }

    /// Reads the column from a value, without reading any other column.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt), which names the table and the column.
    #[inline]
    pub fn read(self, value: &[u8]) -> Result<C::View<'_>> {
        match T::LAYOUT.column(self.place, value).and_then(C::read) {
            Some(view) => Ok(view),
            None => Err(damaged_column::<T>(self.index, value)),
        }
    }
}

#[cold]
fn damaged_column<T: Table>(index: usize, value: &[u8]) -> perdura_base::Error {
    T::schema().damaged_column(index, value)
}

impl<T: Table, C: KeyType> KeyColumn<T, C> {
    /// Returns the key column that has this name.
    #[must_use]
    pub const fn of(name: &str) -> Self {
        KeyColumn {
            index: T::DECLARATION.key_column(name),
            of: PhantomData,
        }
    }

    /// Reads the column from a key.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt), which names the table.
    pub fn read(self, key: &[u8]) -> Result<C> {
        let mut r = Reader::new(key);
        for (_, kind) in &T::DECLARATION.key[..self.index] {
            crate::key::take_column(kind.base, &mut r).ok_or_else(|| damaged_key::<T>(key))?;
        }
        C::take_key(&mut r).ok_or_else(|| damaged_key::<T>(key))
    }
}

impl<T: Table, C: Columns> Index<T, C> {
    /// Returns the index that has this name.
    #[must_use]
    pub const fn of(name: &str) -> Self {
        let index = T::DECLARATION.index(name);
        Index {
            index,
            leads_home: T::DECLARATION.leads_home(index),
            of: PhantomData,
        }
    }

    /// Returns whether the index's first column determines a row's partition.
    #[must_use]
    pub const fn leads_home(self) -> bool {
        self.leads_home
    }
}

/// A reader of the columns of a key, in order.
#[derive(Debug)]
pub struct KeyReader<'a> {
    key: &'a [u8],
    r: Reader<'a>,
}

impl<'a> KeyReader<'a> {
    /// Returns a reader that begins with the first column.
    #[inline]
    #[must_use]
    pub fn new(key: &'a [u8]) -> KeyReader<'a> {
        let r = Reader::new(key);
        KeyReader { key, r }
    }

    /// Reads the next column, of type `C`. `T` is the table.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt), which names the table.
    #[inline]
    pub fn take<T: Table, C: KeyType>(&mut self) -> Result<C> {
        C::take_key(&mut self.r).ok_or_else(|| damaged_key::<T>(self.key))
    }
}

#[cold]
fn damaged_key<T: Table>(key: &[u8]) -> perdura_base::Error {
    let expected = format!("a key of {} columns", T::Key::COUNT);
    damaged(T::NAME, 0, expected, format!("{key:02x?}"))
}

/// Returns whether columns of type `C` have a fixed length.
#[must_use]
pub const fn is_fixed<C: ColumnType>() -> bool {
    C::TYPE.width().is_some()
}

/// Appends a column in the encoding of rows.
#[inline]
pub fn put_column<C: ColumnType, W: Writer>(column: &C, out: &mut W) {
    C::put(column.view(), out);
}
