//! Collections that are built by many transactions before a key names them: [`Draft`].
//!
//! ```text
//! transaction 1      begin_draft(table, key, shape)      the caller keeps the draft
//! transactions 2..n  element_put, list_push, ... at draft.home()
//! transaction n + 1  name_draft(draft, key, expiry)      now other transactions see it
//! ```
//!
//! One transaction may also do all of this. Between two transactions the table may be flushed, or a swap may give the
//! table to another database. So the caller must check that [`Draft::table`] is still the table of the caller's
//! database.

use perdura_base::{Error, Result, TableId};
use perdura_heap::{Draft, Kind, NewRow, Shape, TableKey};

use crate::tx::Tx;

impl Tx<'_> {
    /// Begins a draft without elements, in the partition of `key`. Any key of the table can later name the draft. The
    /// draft exists until the [`Draft`] is dropped, even if this transaction is undone.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return; [`Error::Usage`] if the table does not exist.
    pub fn begin_draft(&mut self, table: TableId, key: &[u8], shape: Shape) -> Result<Draft> {
        let _verb = self.verb();
        let (at, _) = self.place(key)?;
        let draft = Draft::begin(self.heap, &mut self.guards[at].1, table, shape)?;
        assert_eq!(
            draft.home().partition,
            self.guards[at].0,
            "its home is its key's"
        );
        Ok(draft)
    }

    /// Gives a draft its key, in the draft's table. The key becomes the header of the draft and loses its previous
    /// content. The draft must have an element. Afterwards the [`Draft`] can be dropped. If the transaction is undone,
    /// the key no longer names the draft.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Usage`] if the draft already has a key, or the draft's table
    /// no longer exists.
    pub fn name_draft(&mut self, draft: &Draft, key: &[u8], expiry_ms: Option<u64>) -> Result<()> {
        let _verb = self.verb();
        self.check_write(key, 16)?;
        let (table, home) = (draft.table(), draft.home());
        let key_at = self.place(key);
        let home_at = self.guard_of(home.partition)?;
        let (at, hash) = key_at?;
        if !self.guards[home_at].1.is_draft(table, home.id) {
            return Err(Error::Usage(format!("{draft:?} is no longer a draft")));
        }
        let encoded = home.encode();
        let key_at = TableKey::new(table, key, hash);
        let header = NewRow::of(key_at, Kind::Header(draft.shape()), &encoded, expiry_ms);
        let admitted = key.len() + 16 + Self::ROW_BYTES;
        let displaced = self.change(at, admitted, |part, undo| {
            part.put_kind(undo, table, &header)
        })?;
        let part = &mut self.guards[home_at].1;
        part.claim_draft(self.undo, table, home.id);
        self.changed.push((table, home));
        self.orphan_displaced(table, displaced)
    }
}
