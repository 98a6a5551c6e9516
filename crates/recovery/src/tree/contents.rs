//! A digest of all rows of a tree.

use perdura_base::checksum::{hash64, mix64};
use perdura_base::{Error, Gsn, Result, TableId};
use perdura_tree::contract::insist;
use perdura_tree::tree::Tree;

/// A log end beyond every number: no page has to wait for the log before it is written.
pub const ALL_STABLE: Gsn = Gsn(u64::MAX);

/// The number of rows in a tree, and their digest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// Rows of all tables.
    pub rows: u64,
    /// A sum over all rows. It depends on the tables, keys and values, but not on the pages that hold them or their
    /// order.
    pub digest: u64,
}

impl Contents {
    /// Returns the digest in 16 hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> String {
        format!("{:016x}", self.digest)
    }
}

/// Returns the error of a call that finds no room in memory, because dirty pages wait for the log. There will be room
/// after the log is flushed.
pub(super) fn pages_wait() -> Error {
    Error::LogFull(String::from(
        "the pages in memory are dirty, and wait for the log before they can be written",
    ))
}

/// Reads all rows of a tree, and returns their number and digest. `eosl` is the end of the stable log, up to which
/// pages may be written to make room.
///
/// # Errors
/// [`LogFull`](perdura_base::Error::LogFull) if the pages in memory wait for the log; the disk's; corruption, if a page
/// is damaged.
pub fn contents(tree: &Tree, eosl: Gsn) -> Result<Contents> {
    let mut all = Contents::default();
    for table in tree.tables() {
        let mut each = |key: &[u8], value: &[u8]| {
            let of_key = hash64(u64::from(table.0), key);
            all.digest = all.digest.wrapping_add(mix64(hash64(of_key, value)));
            all.rows += 1;
        };
        walk(tree, table, eosl, &mut each)?;
    }
    Ok(all)
}

/// Calls `row` with each row of a table, in the order of their keys.
///
/// # Errors
/// As [`contents`].
pub fn walk(
    tree: &Tree,
    table: TableId,
    eosl: Gsn,
    row: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<()> {
    let mut from = Some(Vec::new());
    while let Some(at) = from {
        // If there is no frame for a leaf, `row` has not been called for any row of that leaf.
        let call = || tree.scan(table, &at, &mut *row);
        let next = insist(call, || tree.pool().write_step(eosl))?;
        from = next.ok_or_else(pages_wait)?;
    }
    Ok(())
}
