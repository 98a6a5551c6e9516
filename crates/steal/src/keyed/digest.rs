//! The rows of a database in one number.

use perdura_base::checksum::{hash64, mix64};
use perdura_base::{Gsn, Result, TableId};
use perdura_tree::contract::insist;
use perdura_tree::tree::Tree;

use super::engine::pages_wait;

/// What a tree holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// Rows of all tables.
    pub rows: u64,
    /// 16 hexadecimal digits. They depend on tables, keys and values, and neither on pages nor on their order.
    pub digest: String,
}

/// The digest of all rows of a tree, as [`Contents::digest`].
///
/// # Errors
/// As [`contents`].
pub fn digest(tree: &Tree, eosl: Gsn) -> Result<String> {
    Ok(contents(tree, eosl)?.digest)
}

/// Reads all rows of a tree. `eosl` is the end of the stable log, up to which pages may be written to make room.
///
/// # Errors
/// [`LogFull`](perdura_base::Error::LogFull) if the pages in memory wait for the log; the disk's; corruption, if a page is damaged.
pub fn contents(tree: &Tree, eosl: Gsn) -> Result<Contents> {
    let (mut rows, mut sum) = (0u64, 0u64);
    let mut each = |table: TableId, key: &[u8], value: &[u8]| {
        let of_key = hash64(u64::from(table.0), key);
        sum = sum.wrapping_add(mix64(hash64(of_key, value)));
        rows += 1;
    };
    for table in tree.tables() {
        let mut from = Some(Vec::new());
        while let Some(at) = from {
            let call = || tree.scan(table, &at, |key, value| each(table, key, value));
            let next = insist(call, || tree.pool().write_step(eosl))?;
            from = next.ok_or_else(pages_wait)?;
        }
    }
    let digest = format!("{sum:016x}");
    Ok(Contents { rows, digest })
}
