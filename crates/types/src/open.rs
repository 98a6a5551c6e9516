//! Finds the collection of a key for reading. The key may be absent, have a packed collection, or have a collection
//! made of rows.
//!
//! [`Source`] reads packed collections and rows alike, so a command need not know the form. Only the order of the
//! elements in a hash or a set may differ.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use perdura_base::num::to_usize;
use perdura_base::{Error, TableId};
use perdura_txn::{Home, Kind, RowRef, Shape, Tx};

use crate::Fault;
use crate::small::{Cell, Element, Packed};
use perdura_txn::Elements;

/// The contents of a key's row.
#[derive(Debug)]
pub enum View<'a> {
    /// All elements, packed.
    Small(Packed<'a>),
    /// The home of the elements' rows.
    Rows(Home),
}

/// Returns the collection in a key's row.
///
/// # Errors
/// [`Fault::WrongType`] if the row does not have a collection of this shape.
pub fn view(row: RowRef<'_>, shape: Shape) -> Result<View<'_>, Fault> {
    match row.kind() {
        Kind::Small(found) if found == shape => {
            let packed = Packed::parse(row.value(), shape);
            Ok(View::Small(packed.ok_or_else(|| damaged(row, "elements"))?))
        }
        Kind::Header(found) if found == shape => {
            let home = row.home();
            Ok(View::Rows(home.ok_or_else(|| damaged(row, "a home"))?))
        }
        _ => Err(Fault::WrongType),
    }
}

fn damaged(row: RowRef<'_>, expected: &str) -> Error {
    let key = String::from_utf8_lossy(&row.key()).into_owned();
    Error::corrupt(
        format!("the row of key '{key}'"),
        0,
        expected,
        "other bytes",
        "The key cannot be read; deleting it is safe",
    )
}

/// Opens the collection of a key to read it.
///
/// # Errors
/// [`Fault::WrongType`]; an abort, which the caller must pass on.
pub fn read<'a>(
    tx: &'a Tx<'_>,
    table: TableId,
    key: &[u8],
    shape: Shape,
) -> Result<Option<Source<'a>>, Fault> {
    match tx.get(table, key)? {
        None => Ok(None),
        Some(row) => source(tx, table, row, shape).map(Some),
    }
}

/// Opens the collection of a key after the key's row was read.
///
/// # Errors
/// As [`read`].
pub fn source<'a>(
    tx: &'a Tx<'_>,
    table: TableId,
    row: RowRef<'a>,
    shape: Shape,
) -> Result<Source<'a>, Fault> {
    Ok(match view(row, shape)? {
        View::Small(packed) => Source::Small(packed),
        View::Rows(home) => Source::Rows(tx.elements(table, home)?),
    })
}

/// A collection that is being read.
pub enum Source<'a> {
    /// Packed in its key's row.
    Small(Packed<'a>),
    /// One row for each element.
    Rows(Elements<'a>),
}

impl Source<'_> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Source::Small(packed) => perdura_base::num::to_u64(packed.len()),
            Source::Rows(rows) => rows.len(),
        }
    }

    /// Returns whether the collection has no elements. No command leaves an empty collection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the element with this field or member. Lists have no fields or members.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<Entry<'_>> {
        match self {
            Source::Small(packed) => packed.find(key).map(Entry::Packed),
            Source::Rows(rows) => rows.get(key).map(Entry::Row),
        }
    }

    /// Returns all elements. Lists and sorted sets return elements in order. A small set of integers returns elements
    /// by size. A small hash, or a small set with other members, returns elements in the order of insertion.
    #[must_use]
    pub fn iter(&self) -> Box<dyn Iterator<Item = Entry<'_>> + '_> {
        match self {
            Source::Small(packed) => Box::new(packed.iter().map(Entry::Packed)),
            Source::Rows(rows) => Box::new(rows.iter().map(Entry::Row)),
        }
    }

    /// Returns the elements of a list or a sorted set that have the ranks `from..to`. The iterator can be read from the
    /// front and from the back.
    #[must_use]
    pub fn ranks(&self, from: u64, to: u64) -> Box<dyn DoubleEndedIterator<Item = Entry<'_>> + '_> {
        match self {
            Source::Small(packed) => {
                let (skipped, taken) = (to_usize(from), to_usize(to.saturating_sub(from)));
                let elements = packed.iter().skip(skipped).take(taken);
                let entries: Vec<_> = elements.map(Entry::Packed).collect();
                Box::new(entries.into_iter())
            }
            Source::Rows(rows) if rows.shape() == Shape::List => {
                Box::new(rows.items(from, to).map(Entry::Row))
            }
            Source::Rows(rows) => Box::new(rows.range(from, to).map(|(_, row)| Entry::Row(row))),
        }
    }

    /// Returns the element that a random number `r` selects.
    #[must_use]
    pub fn random(&self, r: u64) -> Option<Entry<'_>> {
        match self {
            Source::Small(packed) => {
                let index = r.checked_rem(self.len())?;
                packed.at(usize::try_from(index).ok()?).map(Entry::Packed)
            }
            Source::Rows(rows) => rows.random(r).map(Entry::Row),
        }
    }

    /// Returns about `count` elements from a cursor on, and the next cursor. The cursor 0 begins an
    /// iteration, and a returned 0 ends it. The iteration returns every element that exists from
    /// the first call to the last. A small collection is returned in one call.
    #[must_use]
    pub fn scan(&self, cursor: u64, count: usize) -> (Vec<Entry<'_>>, u64) {
        match self {
            Source::Small(_) => (self.iter().collect(), 0),
            Source::Rows(rows) => {
                let (found, next) = rows.scan(cursor, count);
                (found.into_iter().map(Entry::Row).collect(), next)
            }
        }
    }
}

/// One element of a collection.
#[derive(Clone, Copy)]
pub enum Entry<'a> {
    /// In the row of its key.
    Packed(Element<'a>),
    /// In a separate row.
    Row(RowRef<'a>),
}

impl<'a> Entry<'a> {
    /// Returns the field or member.
    #[must_use]
    pub fn key(&self) -> Text<'a> {
        match self {
            Entry::Packed(element) => Text::Cell(element.key),
            Entry::Row(row) => Text::Bytes(row.field()),
        }
    }

    /// Returns the value of a field.
    #[must_use]
    pub fn value(&self) -> Text<'a> {
        match self {
            Entry::Packed(element) => Text::Cell(element.value),
            Entry::Row(row) => Text::Bytes(row.value()),
        }
    }

    /// Returns the item of a list.
    #[must_use]
    pub fn item(&self) -> Text<'a> {
        match self {
            Entry::Packed(element) => Text::Cell(element.key),
            Entry::Row(row) => Text::Bytes(row.value()),
        }
    }

    /// Returns the length of a field's value, bytes.
    #[must_use]
    pub fn value_len(&self) -> usize {
        match self {
            Entry::Packed(element) => element.value.len(),
            Entry::Row(row) => row.value_len(),
        }
    }

    /// Returns the score of a member.
    #[must_use]
    pub fn score(&self) -> f64 {
        match self {
            Entry::Packed(element) => element.score(),
            Entry::Row(row) => row.score(),
        }
    }
}

/// The bytes of a field, a value, a member or an item.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    /// From a packed collection.
    Cell(Cell<'a>),
    /// From a row.
    Bytes(Cow<'a, [u8]>),
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

impl Hash for Text<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Deref for Text<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Text::Cell(cell) => cell,
            Text::Bytes(bytes) => bytes,
        }
    }
}
