//! The verbs of typed tables, and a transaction's notes about them for the log.
//!
//! A typed row has a *home*: the partition that the caller chose for it, from its first key column. The changes of a
//! key-addressed table are not in the group of page records. The log has them by rows (*effects*), or by the procedure
//! and its arguments (a *command*). The verbs' caller notes effects here as it makes them. [`crate::ordered`] writes
//! either form at commit.
//!
//! A command is replayed on a database whose page-addressed tables are at the log's end already. So a command must not
//! even read such a table. The first verb on a page-addressed table is noted, and the executor runs the transaction
//! again with effects.
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), sections III and IV.

use std::cell::Cell;
use std::ops::Bound;

use perdura_base::checksum::hash64;
use perdura_base::{Error, PartitionId, PartitionSet, Result, TableId};
use perdura_formats::ordered::{At, Op, Part, encode_place};
use perdura_heap::{KeyHash, RowRef, Savepoint, Which};
use smallvec::SmallVec;

use crate::ordered::Says;
use crate::tx::Tx;

/// The place of an effect's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowHome {
    /// In one partition.
    One(PartitionId),
    /// In every partition: a copy each.
    All,
}

/// The contents of the effect of a changed row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ValueForm {
    /// The columns that changed.
    #[default]
    Columns,
    /// The whole row.
    Rows,
    /// The whole row, and the row before the change.
    Before,
}

impl ValueForm {
    /// Every form.
    pub const ALL: [ValueForm; 3] = [ValueForm::Columns, ValueForm::Rows, ValueForm::Before];

    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ValueForm::Columns => "columns",
            ValueForm::Rows => "rows",
            ValueForm::Before => "before",
        }
    }
}

/// A typed table, as the verbs need to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypedTable {
    /// Its id.
    pub id: TableId,
    /// True if the log names its rows by their keys. Otherwise the log has page records.
    pub keyed: bool,
}

/// Rows of one transaction and home that a keyless table can number.
const ROW_IDS_MAX: u64 = 1 << 16;

/// The notes of a transaction about typed tables.
pub(crate) struct Typed {
    /// True if the rows that it changes are noted.
    pub wants_effects: bool,
    /// The contents of a changed row's effect.
    pub form: ValueForm,
    /// True if it may not use page-addressed tables.
    pub is_command: bool,
    /// True if it has used one nevertheless.
    used_pages: Cell<bool>,
    /// The homes of rows that it wrote.
    pub homes: PartitionSet,
    effects: Vec<Noted>,
    bytes: Vec<u8>,
    /// Scratch for a patch, or for the effects that are hashed.
    scratch: Vec<u8>,
    row_ids: SmallVec<[(PartitionId, u64); 2]>,
}

/// An effect in the arena, encoded but for its place: that depends on the frame's parts.
struct Noted {
    home: RowHome,
    /// Its first byte in the arena.
    from: usize,
    /// The byte in the arena before which its place belongs.
    place: usize,
}

impl Noted {
    /// Returns the place in a frame of these parts.
    fn at(&self, parts: &[Part]) -> At {
        match self.home {
            RowHome::All => At::All,
            RowHome::One(home) => {
                let found = parts.binary_search_by_key(&home, |(id, _)| *id);
                At::Part(found.expect("the home of a row that was written is a part"))
            }
        }
    }
}

impl Typed {
    pub fn new() -> Typed {
        Typed {
            wants_effects: true,
            form: ValueForm::default(),
            is_command: false,
            used_pages: Cell::new(false),
            homes: PartitionSet::empty(),
            effects: Vec::new(),
            bytes: Vec::new(),
            scratch: Vec::new(),
            row_ids: SmallVec::new(),
        }
    }

    /// Forgets everything, keeps the buffers, and begins a transaction.
    pub fn begin(&mut self, says: &Says<'_>, form: ValueForm) {
        self.wants_effects = says.notes_effects();
        self.is_command = matches!(says, Says::Command(_) | Says::Replayed { .. });
        // A replay does not know the form that was set then. It does not need it either, because a command's hash is of
        // rows.
        self.form = match says {
            Says::Effects => form,
            Says::Command(_) | Says::Replayed { .. } => ValueForm::Rows,
        };
        self.used_pages.set(false);
        self.homes = PartitionSet::empty();
        self.effects.clear();
        self.bytes.clear();
        self.row_ids.clear();
    }

    pub fn used_pages(&self) -> bool {
        self.used_pages.get()
    }

    /// Appends the effects in the form that a frame of these parts has.
    pub fn encode_effects(&self, parts: &[Part], out: &mut Vec<u8>) {
        if let [(only, _)] = parts {
            let only = [RowHome::All, RowHome::One(*only)];
            debug_assert!(self.effects.iter().all(|one| only.contains(&one.home)));
            // Places are omitted.
            out.extend_from_slice(&self.bytes);
            return;
        }
        let mut all = self.effects.iter().peekable();
        while let Some(noted) = all.next() {
            let end = all.peek().map_or(self.bytes.len(), |next| next.from);
            debug_assert!(noted.from < noted.place && noted.place < end);
            out.extend_from_slice(&self.bytes[noted.from..noted.place]);
            encode_place(out, noted.at(parts), parts.len());
            out.extend_from_slice(&self.bytes[noted.place..end]);
        }
    }

    /// Returns a hash of the effects: equal for equal changes in the same order.
    pub fn effects_hash(&mut self) -> u64 {
        // Homes are hashed instead of parts, because a replay may know more partitions than changed.
        if self.homes.len() <= 1 {
            return hash64(0, &self.bytes);
        }
        let all: SmallVec<[Part; 8]> = self.homes.iter().map(|id| (id, 1)).collect();
        let mut encoded = std::mem::take(&mut self.scratch);
        encoded.clear();
        self.encode_effects(&all, &mut encoded);
        let hash = hash64(0, &encoded);
        self.scratch = encoded;
        hash
    }

    /// Returns the bytes of the buffers that it holds.
    pub fn bytes_held(&self) -> usize {
        let noted = self.effects.capacity() * size_of::<Noted>();
        self.bytes.capacity() + self.scratch.capacity() + noted
    }

    fn note_columns(
        &mut self,
        home: RowHome,
        table: TableId,
        key: &[u8],
        patch: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut image = std::mem::take(&mut self.scratch);
        image.clear();
        let patched = patch(&mut image);
        if patched.is_ok() {
            self.note(home, table, key, &Op::Columns { patch: &image });
        }
        self.scratch = image;
        patched
    }

    fn note(&mut self, home: RowHome, table: TableId, key: &[u8], op: &Op<'_>) {
        let from = self.bytes.len();
        op.encode_front(&mut self.bytes, table);
        let place = self.bytes.len();
        op.encode_back(&mut self.bytes, key);
        self.effects.push(Noted { home, from, place });
    }
}

/// A point of a transaction to which it can roll back.
#[derive(Debug)]
pub struct TxSavepoint {
    undo: Savepoint,
    effects: usize,
    bytes: usize,
}

impl Tx<'_> {
    /// Notes that the transaction uses a page-addressed table, which a command may not.
    #[inline]
    pub(crate) fn use_pages(&self) {
        if self.typed.is_command {
            self.typed.used_pages.set(true);
        }
    }

    pub(crate) fn home(
        &self,
        table: TypedTable,
        home: PartitionId,
        key: &[u8],
    ) -> Result<(usize, KeyHash)> {
        if !table.keyed {
            self.use_pages();
        }
        let at = self.guard_of(home)?;
        Ok((at, self.geometry.hash_in(home, key)))
    }

    /// Returns the row of a key.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure passes on.
    pub fn typed_get(
        &self,
        table: TypedTable,
        home: PartitionId,
        key: &[u8],
    ) -> Result<Option<RowRef<'_>>> {
        let _verb = self.verb();
        let (at, hash) = self.home(table, home, key)?;
        Ok(self.guards[at].1.peek(table.id, key, hash))
    }

    /// Inserts a row. The caller has checked that its key does not exist.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn typed_insert(
        &mut self,
        table: TypedTable,
        home: PartitionId,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let spot = self.unseen(table, home, key)?;
        self.typed_insert_at(table, spot, key, value)
    }

    /// Overwrites a row. Returns whether it is there. Only the bytes that differ are saved.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn typed_overwrite(
        &mut self,
        table: TypedTable,
        home: PartitionId,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        let spot = self.unseen(table, home, key)?;
        self.typed_overwrite_at(table, spot, key, value)
    }

    /// Removes a row. Returns whether it was there.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure passes on; [`Error::LogFull`].
    pub fn typed_delete(
        &mut self,
        table: TypedTable,
        home: PartitionId,
        key: &[u8],
    ) -> Result<bool> {
        let _verb = self.verb();
        self.admit(key.len())?;
        let (at, hash) = self.home(table, home, key)?;
        let removed = self.change(at, Self::ROW_BYTES, |part, undo| {
            Ok(part.delete(undo, table.id, key, hash))
        })?;
        debug_assert!(
            self.guards[at].1.peek(table.id, key, hash).is_none(),
            "what is removed is gone"
        );
        if removed.is_some() {
            self.typed.homes.insert(home);
        }
        Ok(removed.is_some())
    }

    /// Returns the rows of a home whose keys, in the primary index or a secondary one, lie in a range.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure passes on.
    pub fn typed_rows<'s>(
        &'s self,
        table: TypedTable,
        home: PartitionId,
        which: Which,
        range: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<impl DoubleEndedIterator<Item = RowRef<'s>> + use<'s>> {
        let _verb = self.verb();
        if !table.keyed {
            self.use_pages();
        }
        let at = self.guard_of(home)?;
        Ok(self.guards[at].1.rows(table.id, which, range.0, range.1))
    }

    /// Returns the rows of a hashed or ordered table in a home, in no order.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure passes on.
    pub fn typed_each(
        &self,
        table: TypedTable,
        home: PartitionId,
        each: impl FnMut(RowRef<'_>),
    ) -> Result<()> {
        let _verb = self.verb();
        if !table.keyed {
            self.use_pages();
        }
        let at = self.guard_of(home)?;
        self.guards[at].1.for_each(table.id, each);
        Ok(())
    }

    /// Returns the number of rows of a table in a home.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure passes on.
    pub fn typed_len(&self, table: TypedTable, home: PartitionId) -> Result<u64> {
        let _verb = self.verb();
        if !table.keyed {
            self.use_pages();
        }
        let at = self.guard_of(home)?;
        Ok(self.guards[at].1.len(table.id))
    }

    /// Returns whether the caller notes the effects of its changes of key-addressed tables.
    #[inline]
    #[must_use]
    pub fn wants_effects(&self) -> bool {
        self.typed.wants_effects
    }

    /// Returns the form of the effect of a changed row.
    #[must_use]
    pub fn value_form(&self) -> ValueForm {
        self.typed.form
    }

    /// Notes a change of a row of a key-addressed table, or of the table, in the order of the changes.
    pub fn note_effect(&mut self, home: RowHome, table: TableId, key: &[u8], op: &Op<'_>) {
        debug_assert!(self.typed.wants_effects, "effects are noted when asked for");
        self.typed.note(home, table, key, op);
    }

    /// Notes the columns that changed in a row of a key-addressed table. `patch` appends the patch of these columns.
    ///
    /// # Errors
    /// The error of `patch`; nothing is noted then.
    pub fn note_columns(
        &mut self,
        home: RowHome,
        table: TableId,
        key: &[u8],
        patch: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        debug_assert!(self.typed.wants_effects, "effects are noted when asked for");
        self.typed.note_columns(home, table, key, patch)
    }

    /// Notes that a whole table is made or dropped: the transaction counts in every partition, which
    /// it has latched.
    pub fn note_table(&mut self, table: TableId, op: &Op<'_>) {
        assert!(op.is_of_table(), "the op is of a table");
        self.typed.homes = PartitionSet::all(self.geometry.partitions);
        self.typed.note(RowHome::All, table, &[], op);
    }

    /// Returns a hash of the effects noted so far: equal for the same changes in the same order.
    #[must_use]
    pub fn effects_hash(&mut self) -> u64 {
        self.typed.effects_hash()
    }

    /// Returns the latched partitions in ascending order.
    pub fn latched(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.guards.iter().map(|(id, _)| *id)
    }

    /// Returns the sequence number that a partition gives this transaction if it commits.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure passes on.
    pub fn sequence(&self, home: PartitionId) -> Result<u64> {
        let at = self.guard_of(home)?;
        Ok(self.guards[at].1.pseq() + 1)
    }

    /// Returns the id of a new row of a keyless table: unique in its home, for ever.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure passes on; [`Error::Usage`] if one transaction inserts
    /// more rows than it can number.
    pub fn next_row_id(&mut self, home: PartitionId) -> Result<u64> {
        let sequence = self.sequence(home)?;
        let found = self.typed.row_ids.iter_mut().find(|(id, _)| *id == home);
        let count = match found {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                self.typed.row_ids.push((home, 0));
                0
            }
        };
        if count >= ROW_IDS_MAX {
            return Err(Error::Usage(format!(
                "a transaction inserts at most {ROW_IDS_MAX} rows without a key in one partition"
            )));
        }
        self.typed.homes.insert(home);
        Ok(sequence * ROW_IDS_MAX + count)
    }

    /// Marks a point to which [`rollback_to`](Self::rollback_to) can return.
    pub fn savepoint(&mut self) -> TxSavepoint {
        let _verb = self.verb();
        TxSavepoint {
            undo: self.undo.savepoint(),
            effects: self.typed.effects.len(),
            bytes: self.typed.bytes.len(),
        }
    }

    /// Undoes all changes since a savepoint. Savepoints that were made after it are void.
    pub fn rollback_to(&mut self, savepoint: &TxSavepoint) {
        let _verb = self.verb();
        for (_, part) in &mut self.guards {
            part.rollback_to(self.undo, &savepoint.undo);
        }
        debug_assert!(savepoint.effects <= self.typed.effects.len());
        self.typed.effects.truncate(savepoint.effects);
        self.typed.bytes.truncate(savepoint.bytes);
    }
}
