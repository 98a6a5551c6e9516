//! Numbered frames as text: operations on the rows of a tree, and records of the tree's pages.

use perdura_base::num::to_u64;
use perdura_formats::operation::{self, Act, RowChange};
use perdura_formats::tree_record::{PageChange, TreeRecord};

/// The maximum number of bytes of a key that are shown.
const KEY_BYTES_SHOWN: usize = 24;

/// Describes a frame of operations in one line.
pub(crate) fn operations(payload: &[u8]) -> String {
    let frame = match operation::decode(payload) {
        Ok(frame) => frame,
        Err(malformed) => return format!("does not parse: {malformed}"),
    };
    let acts = frame.acts.iter().zip(frame.first.0..);
    let acts = acts.map(|((txn, act), gsn)| {
        let what = match act {
            Act::Change(row) => format!("changes {}", shown_row(row)),
            Act::Compensation { undo_next, row } => {
                format!("undoes {}, {undo_next} is next", shown_row(row))
            }
            Act::Commit => String::from("commits"),
            Act::Abort => String::from("has rolled back"),
        };
        format!("{gsn} transaction {txn} {what}")
    });
    acts.collect::<Vec<_>>().join("; ")
}

fn shown_row(row: &RowChange<'_>) -> String {
    let bytes = |bytes: Option<&[u8]>| bytes.map_or("none".into(), |b| b.len().to_string());
    let key = row.key.get(..KEY_BYTES_SHOWN).unwrap_or(row.key);
    format!(
        "table {} key {} in page {}, bytes {} to {}",
        row.table,
        key.escape_ascii(),
        row.pid,
        bytes(row.before),
        bytes(row.after)
    )
}

/// Describes a record of a tree's pages in one line.
pub(crate) fn tree(payload: &[u8]) -> String {
    let (gsn, record) = match TreeRecord::decode(payload) {
        Ok(decoded) => decoded,
        Err(malformed) => return format!("does not parse: {malformed}"),
    };
    let what = match record {
        TreeRecord::Delta(delta) => format!(
            "delta: notes {} to {}, {} page(s) written, stable end {}, {} at the first write, {} note(s) before it",
            delta.first_note,
            delta.first_note + to_u64(delta.dirty.len()),
            delta.written.len(),
            delta.tc_lsn,
            delta.fw_lsn,
            delta.first_dirty
        ),
        TreeRecord::Writes(writes) => format!(
            "{} page(s) written, stable end {} at the first",
            writes.written.len(),
            writes.fw_lsn
        ),
        TreeRecord::RedoStart => String::from("redo start"),
        TreeRecord::EndCheckpoint(end) => format!(
            "checkpoint with redo start {}, {} dirty page(s)",
            end.rssp,
            end.dirty.len()
        ),
        TreeRecord::Structure(structure) => {
            let pages = structure.changes.iter().map(|(pid, change)| match change {
                PageChange::Image { front, back } => {
                    format!("page {pid} becomes {} bytes", front.len() + back.len())
                }
                PageChange::Edit { cut, drops, puts } => {
                    let cut = cut.as_ref().map_or("", |_| "is cut and ");
                    format!(
                        "page {pid} {cut}loses {} and gets {} key(s)",
                        drops.len(),
                        puts.len()
                    )
                }
            });
            format!("structure: {}", pages.collect::<Vec<_>>().join(", "))
        }
    };
    format!("{gsn} {what}")
}
