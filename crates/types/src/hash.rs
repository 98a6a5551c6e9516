//! Hashes: fields with values.

use perdura_base::TableId;
use perdura_txn::{Shape, Tx};

use crate::Fault;
use crate::change::{Change, Left};
use crate::open::{Source, read};
use crate::small::New;

/// Opens the hash of a key to read it.
///
/// # Errors
/// [`Fault::WrongType`]; an abort, which the caller must pass on.
pub fn source<'a>(tx: &'a Tx<'_>, table: TableId, key: &[u8]) -> Result<Option<Source<'a>>, Fault> {
    read(tx, table, key, Shape::Hash)
}

/// Sets fields and returns the number of new fields.
///
/// # Errors
/// As [`source`].
pub fn set<'f>(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    pairs: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
) -> Result<u64, Fault> {
    let mut change = Change::open(tx, table, key, Shape::Hash)?;
    let mut created = 0;
    let pairs = pairs.into_iter();
    tx.expect_elements(pairs.size_hint().0)?;
    for (field, value) in pairs {
        created += u64::from(change.put(tx, New::Pair(field, value))?);
    }
    let _ = change.finish(tx)?;
    Ok(created)
}

/// Removes fields. Returns the number of removed fields, and whether any field is left.
///
/// # Errors
/// As [`source`].
pub fn remove<'f>(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    fields: impl IntoIterator<Item = &'f [u8]>,
) -> Result<(u64, Left), Fault> {
    crate::change::remove_all(tx, table, key, Shape::Hash, fields)
}
