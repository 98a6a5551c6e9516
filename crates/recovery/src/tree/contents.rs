//! A digest of all rows of a tree.

use perdura_base::checksum::{hash64, mix64};
use perdura_base::{Error, Gsn, Result, TableId};
use perdura_tree::contract::insist;
use perdura_tree::tree::Tree;

/// An end of the stable log that lies above every operation number. With this end, a page can be written without a wait
/// for the log.
pub const ALL_STABLE: Gsn = Gsn(u64::MAX);

/// The count of rows in a tree, and a digest of the rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// Rows of all tables.
    pub rows: u64,
    /// A sum over all rows. The sum depends on the rows' tables, keys and values, but not on the rows' order or pages.
    pub digest: u64,
}

impl Contents {
    /// Returns the digest in 16 hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> String {
        format!("{:016x}", self.digest)
    }
}

/// Returns the error for a call that finds no room in memory, because dirty pages wait for the log. After the log is
/// flushed, there is room.
pub(super) fn pages_wait() -> Error {
    Error::LogFull(String::from(
        "the pages in memory are dirty, and wait for the log before they can be written",
    ))
}

/// Reads all rows of a tree, and returns their count and digest. `eosl` is the end of the stable log. To make room,
/// the call may write pages that have no change after `eosl`.
///
/// # Errors
/// [`LogFull`](perdura_base::Error::LogFull) while the pages in memory wait for the log; errors of the disk; corruption
/// for a damaged page.
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
        // The call can be repeated: if there is no free frame of memory for a leaf, `row` was called for none of its
        // rows.
        let call = || tree.scan(table, &at, &mut *row);
        let next = insist(call, || tree.pool().write_step(eosl))?;
        from = next.ok_or_else(pages_wait)?;
    }
    Ok(())
}
