//! Secondary indexes. The layer above derives a row's keys in these indexes from the row.
//!
//! An entry's key is the derived key followed by the row's primary key, so that no two entries have equal keys. Like
//! all indexes, secondary indexes are derived from the pages. A function that changes a row also changes the row's
//! entries, and notes the inverse change in the undo. A restart rebuilds the indexes from the rows.

use perdura_base::TableId;
use perdura_page::Row;

use crate::entry::Entry;
use crate::form::TableForm;
use crate::index::Table;
use crate::keys::IndexKeys;
use crate::ops::Op;
use crate::pages::Pages;
use crate::row_ref::RowRef;
use crate::undo::PartUndo;

/// Derives the keys of a row in all secondary indexes.
pub(crate) fn derive(keys: &mut IndexKeys, form: &TableForm, pages: &Pages, row: &Row<'_>) {
    let row = RowRef::new(pages, *row);
    keys.derive(form, &row.key(), &row.value());
}

/// Replaces the entries of a row's old keys by entries of its new keys. `old` is `None` if the row did not exist
/// before. `new` is `None` if the row does not exist any more.
pub(crate) fn settle(
    table: &mut Table,
    part: &mut PartUndo,
    id: TableId,
    old: Option<(Entry, &IndexKeys)>,
    new: Option<(Entry, &IndexKeys)>,
) {
    for (index, keys) in table.secondary.iter_mut().enumerate() {
        let was = old.map(|(entry, keys)| (entry, keys.get(index)));
        let is = new.map(|(entry, keys)| (entry, keys.get(index)));
        if was == is {
            continue;
        }
        let number = u16::try_from(index).expect("the number of an index of a table");
        if let Some((entry, key)) = was {
            let was_there = keys.remove(key);
            debug_assert!(was_there, "a row has its entry in every index");
            let key = part.copy_key(key);
            part.ops.push(Op::IndexRemoved {
                table: id,
                index: number,
                entry,
                key,
            });
        }
        if let Some((entry, key)) = is {
            let is_new = keys.insert(key, entry);
            debug_assert!(is_new, "a row has one entry in an index");
            let key = part.copy_key(key);
            part.ops.push(Op::IndexAdded {
                table: id,
                index: number,
                key,
            });
        }
    }
}
