//! The rows of a database in one number.

use perdura_base::checksum::{hash64, mix64};
use perdura_base::{Gsn, Result, TableId};
use perdura_tree::contract::Answer;
use perdura_tree::pool::Progress;
use perdura_tree::tree::Tree;

use super::engine::pages_wait;

/// The digest of all rows of a tree, 16 hexadecimal digits. It depends on tables, keys and values, and neither on pages nor on
/// their order. `eosl` is the end of the stable log, up to which pages may be written to make room.
///
/// # Errors
/// [`LogFull`](perdura_base::Error::LogFull) if the pages in memory wait for the log; the disk's; corruption, if a page is damaged.
pub fn digest(tree: &Tree, eosl: Gsn) -> Result<String> {
    let mut sum = 0u64;
    let mut each = |table: TableId, key: &[u8], value: &[u8]| {
        let of_key = hash64(u64::from(table.0), key);
        sum = sum.wrapping_add(mix64(hash64(of_key, value)));
    };
    for table in tree.tables() {
        let mut from = Some(Vec::new());
        while let Some(at) = from {
            let mut leaf = Vec::new();
            let next = tree.scan(table, &at, |key, value| {
                leaf.push((key.to_vec(), value.to_vec()))
            })?;
            match next {
                Answer::Done(next) => {
                    leaf.iter().for_each(|(key, value)| each(table, key, value));
                    from = next;
                }
                Answer::NoFrame => {
                    if tree.pool().write_step(eosl)? == Progress::Idle {
                        return Err(pages_wait());
                    }
                    from = Some(at);
                }
            }
        }
    }
    Ok(format!("{sum:016x}"))
}
