//! Operations on a key of any type: type name, encoding, and whole value.

use perdura_base::TableId;
use perdura_txn::{Kind, RowRef, Shape, Tx};

use crate::number::parse_i64;
use crate::open::{View, source, view};
use crate::{Fault, small::Packed};

/// Returns the type of a key as TYPE names it.
#[must_use]
pub fn type_name(row: &RowRef<'_>) -> &'static str {
    match row.kind().shape() {
        None => "string",
        Some(Shape::Hash) => "hash",
        Some(Shape::List) => "list",
        Some(Shape::Set) => "set",
        Some(Shape::Zset) => "zset",
        Some(Shape::Stream) => "stream",
    }
}

/// Returns the encoding that Redis would use for the value of a key, in the words of OBJECT ENCODING. A collection
/// counts as small if Perdura has it packed.
#[must_use]
pub fn encoding(row: &RowRef<'_>) -> &'static str {
    const EMBEDDED_BYTES_MAX: usize = 44;
    match row.kind() {
        Kind::String => match row.value_slice() {
            Some(value) if parse_i64(value).is_some() => "int",
            Some(value) if value.len() <= EMBEDDED_BYTES_MAX => "embstr",
            _ => "raw",
        },
        Kind::Small(Shape::List) | Kind::Header(Shape::List) => "quicklist",
        Kind::Small(Shape::Set) => {
            let packed = Packed::parse(row.value(), Shape::Set);
            if packed.is_some_and(|packed| packed.all_integers()) {
                "intset"
            } else {
                "hashtable"
            }
        }
        Kind::Small(Shape::Hash | Shape::Zset) => "listpack",
        Kind::Small(Shape::Stream) | Kind::Header(Shape::Stream) => "stream",
        Kind::Header(Shape::Zset) => "skiplist",
        Kind::Header(Shape::Hash | Shape::Set) | Kind::Element(_) => "hashtable",
    }
}

/// A part of the value of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Part<'a> {
    /// A whole string.
    String(&'a [u8]),
    /// The start of a collection: the shape, and the number of parts to follow.
    Head(Shape, u64),
    /// A field of a hash and its value.
    Field(&'a [u8], &'a [u8]),
    /// An item of a list. Items come from front to back.
    Item(&'a [u8]),
    /// A member of a set.
    Member(&'a [u8]),
    /// A member of a sorted set and its score. Members come in the order of the set.
    Scored(&'a [u8], f64),
    /// The name of a stream's row and its value.
    Row(&'a [u8], &'a [u8]),
}

/// Passes the whole value of a key to `f`, part by part. Returns the key's expiry in milliseconds since 1970;
/// `Some(None)` if the key does not expire; `None` if the key does not exist.
///
/// # Errors
/// An error of `f`; an abort, which the caller must pass on.
pub fn visit(
    tx: &Tx<'_>,
    table: TableId,
    key: &[u8],
    mut f: impl FnMut(Part<'_>) -> Result<(), Fault>,
) -> Result<Option<Option<u64>>, Fault> {
    let Some(row) = tx.get(table, key)? else {
        return Ok(None);
    };
    let Some(shape) = row.kind().shape() else {
        f(Part::String(&row.value()))?;
        return Ok(Some(row.expiry_ms()));
    };
    let source = source(tx, table, row, shape)?;
    f(Part::Head(shape, source.len()))?;
    for entry in source.iter() {
        match shape {
            Shape::Hash => f(Part::Field(&entry.key(), &entry.value()))?,
            Shape::List => f(Part::Item(&entry.item()))?,
            Shape::Set => f(Part::Member(&entry.key()))?,
            Shape::Zset => f(Part::Scored(&entry.key(), entry.score()))?,
            Shape::Stream => f(Part::Row(&entry.key(), &entry.value()))?,
        }
    }
    Ok(Some(row.expiry_ms()))
}

/// Copies a key's value and expiry to a second key, perhaps in a different table, and replaces the second key's value.
/// Returns false if the first key does not exist. A key copied onto itself is not changed.
///
/// # Errors
/// An abort, which the caller must pass on.
pub fn copy(
    tx: &mut Tx<'_>,
    from_table: TableId,
    from: &[u8],
    to_table: TableId,
    to: &[u8],
) -> Result<bool, Fault> {
    let Some(row) = tx.get(from_table, from)? else {
        return Ok(false);
    };
    if (from_table, from) == (to_table, to) {
        return Ok(true);
    }
    let expiry = row.expiry_ms();
    let Some(shape) = row.kind().shape() else {
        let value = row.value().into_owned();
        tx.put(to_table, to, &value, expiry)?;
        return Ok(true);
    };
    let home = match view(row, shape)? {
        View::Rows(home) => home,
        View::Small(packed) => {
            let packed = packed.bytes().to_vec();
            tx.put_small(to_table, to, shape, &packed, expiry)?;
            return Ok(true);
        }
    };
    let copied = tx.create(to_table, to, shape, expiry)?;
    tx.copy_elements(from_table, home, to_table, copied)?;
    Ok(true)
}
