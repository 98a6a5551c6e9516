//! Long strings. A string is written piece by piece, by many transactions, before it becomes the value of a key; see
//! [`perdura_heap::texts`].

use perdura_base::{Error, Result};
use perdura_heap::texts::TEXT_PAGE_BYTES;
use perdura_heap::{Draft, TableCollection, TableKey, Text};

use crate::tx::Tx;

/// The maximum room in the log that a page needs in addition to its content, bytes.
const PAGE_LOG_BYTES: usize = 64;

impl Tx<'_> {
    /// Appends bytes to the string that is being built in a draft of a list. If `text` is `None`, begins the string.
    /// All calls but the last must append whole pages of [`TEXT_PAGE_BYTES`]. If the transaction is undone, so is the
    /// append.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Usage`] if the draft no longer exists.
    pub fn grow_text(&mut self, draft: &Draft, text: Option<Text>, bytes: &[u8]) -> Result<Text> {
        let _verb = self.verb();
        self.check_memory()?;
        let len = text.map_or(0, |text| text.len()) + bytes.len();
        self.check_value_bytes(len)?;
        let pages = bytes.len().div_ceil(TEXT_PAGE_BYTES);
        let admitted = bytes.len() + pages * PAGE_LOG_BYTES + Self::ROW_BYTES;
        self.admit_part(admitted)?;
        let (table, home) = (draft.table(), draft.home());
        let at = self.guard_of(home.partition)?;
        self.change(at, admitted, |part, undo| {
            part.grow_text(undo, TableCollection::new(table, home.id), text, bytes)
        })
    }

    /// Makes the string that was built in a draft the value of a key. The key must be in the draft's partition. The
    /// draft then no longer exists. If the transaction is undone, the draft exists again.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Usage`] for a missing draft, or for a draft outside the key's partition.
    pub fn name_text(
        &mut self,
        draft: &Draft,
        text: Text,
        key: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<()> {
        let _verb = self.verb();
        self.check_write(key, 0)?;
        let (table, home) = (draft.table(), draft.home());
        let (at, hash) = self.place(key)?;
        let part = &self.guards[at].1;
        if part.id() != home.partition || !part.is_draft(table, home.id) {
            return Err(Error::Usage(format!(
                "{draft:?} is not a draft of this key"
            )));
        }
        let displaced = self.change(at, key.len() + Self::ROW_BYTES, |part, undo| {
            part.name_text(undo, text, TableKey::new(table, key, hash), expiry_ms)
        })?;
        self.orphan_displaced(table, displaced)
    }
}
