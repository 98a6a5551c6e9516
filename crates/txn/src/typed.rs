//! The verbs of typed tables, and the notes for logging changes of key-addressed tables.
//!
//! A typed row has a *home*: the partition that the caller chose from the row's first key column. The group of page
//! records does not contain changes of key-addressed tables. The log has these changes as changed rows (*effects*), or
//! as a procedure with arguments (a *command*). The caller of the verbs notes each effect here when it makes the
//! change. At commit [`crate::ordered`] writes one of the two forms.
//!
//! Before a command is replayed, page-addressed tables are brought to their state at the log's end. So a command must
//! not even read a page-addressed table. If a command uses a page-addressed table, this is noted, and the executor runs
//! the transaction again and logs its effects.
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), sections III and IV.

use std::cell::Cell;
use std::ops::Bound;

use perdura_base::checksum::{hash64, mix64};
use perdura_base::{PartitionId, PartitionSet, Result, TableId};
use perdura_formats::ordered::{At, Op, Part, encode_place};
use perdura_heap::{KeyHash, RowRef, Savepoint, Which};
use smallvec::SmallVec;

use crate::ordered::Says;
use crate::tx::Tx;

/// The partitions that hold the row of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowHome {
    /// The row is in one partition.
    One(PartitionId),
    /// Every partition has a copy of the row.
    All,
}

/// The form of a changed row in an effect.
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

    /// Returns the form's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ValueForm::Columns => "columns",
            ValueForm::Rows => "rows",
            ValueForm::Before => "before",
        }
    }
}

/// The properties of a typed table that the verbs need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypedTable {
    /// The table's id.
    pub id: TableId,
    /// True if the table is key-addressed: the log names a row by the row's key. Otherwise the log has page records.
    pub keyed: bool,
}

/// The notes of a transaction about typed tables.
pub(crate) struct Typed {
    /// True if the effects of the transaction are noted.
    pub wants_effects: bool,
    /// The form of a changed row in an effect.
    pub form: ValueForm,
    /// True if the transaction must not use page-addressed tables.
    pub is_command: bool,
    /// True if a command has used a page-addressed table, which is not allowed.
    used_pages: Cell<bool>,
    /// The homes of the key-addressed rows that the transaction wrote.
    pub homes: PartitionSet,
    effects: Vec<Noted>,
    bytes: Vec<u8>,
    /// Scratch for a patch, or for the effects that are hashed.
    scratch: Vec<u8>,
    /// The seed of the transaction's random numbers. `None`: the transaction has not used any, or is a command.
    pub seed: Option<u64>,
    /// The partitions from whose sequences the transaction took row ids, each with the number of ids less one.
    pub row_ids: SmallVec<[(PartitionId, u64); 2]>,
}

/// An effect in `Typed::bytes`, encoded without its place. The place names the frame's part (partition) that has the
/// row. The parts are known only when the frame is encoded.
struct Noted {
    home: RowHome,
    /// The offset of the effect's first byte in `bytes`.
    from: usize,
    /// The offset in `bytes` at which the effect's place is inserted later.
    place: usize,
}

impl Noted {
    /// Returns the effect's place in a frame with these parts.
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
            seed: None,
            row_ids: SmallVec::new(),
        }
    }

    /// Clears the notes for a new transaction. The buffers keep their memory.
    pub fn begin(&mut self, says: &Says<'_>, form: ValueForm) {
        self.wants_effects = says.notes_effects();
        self.is_command = matches!(says, Says::Command(_) | Says::Replayed { .. });
        // A replay does not know which form was set originally. It need not: the hash of a command's effects is always
        // made from `ValueForm::Rows`.
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

    /// Encodes the effects for a frame with these parts, and appends them to `out`.
    pub fn encode_effects(&self, parts: &[Part], out: &mut Vec<u8>) {
        if let [(only, _)] = parts {
            let only = [RowHome::All, RowHome::One(*only)];
            debug_assert!(self.effects.iter().all(|one| only.contains(&one.home)));
            // A frame with one part has no places.
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

    /// Returns a hash of the effects. Equal changes in equal order give equal hashes.
    pub fn effects_hash(&mut self) -> u64 {
        // Homes are used instead of the frame's parts, because the parts may include partitions without changes.
        if self.homes.len() <= 1 {
            return hash64(0, &self.bytes);
        }
        let all: SmallVec<[Part; 8]> = self.homes.iter().map(|id| (id, 1)).collect();
        assert!(all.len() > 1, "effects of one home need no places");
        let mut encoded = std::mem::take(&mut self.scratch);
        encoded.clear();
        self.encode_effects(&all, &mut encoded);
        let hash = hash64(0, &encoded);
        self.scratch = encoded;
        hash
    }

    /// Returns the bytes that the buffers take.
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

/// A savepoint: a transaction can roll back to this point.
#[derive(Debug)]
pub struct TxSavepoint {
    undo: Savepoint,
    effects: usize,
    bytes: usize,
}

impl Tx<'_> {
    /// Notes a use of a page-addressed table, which is not allowed for a command.
    #[inline]
    pub(crate) fn use_pages(&self) {
        if self.typed.is_command {
            self.typed.used_pages.set(true);
        }
    }

    /// Notes that a row of the table was written in a home. Only a key-addressed row is ordered, so only such a row
    /// gives
    /// the transaction a number in the home's sequence.
    #[inline]
    pub(crate) fn note_home(&mut self, table: TypedTable, home: PartitionId) {
        if table.keyed {
            self.typed.homes.insert(home);
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
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure must return.
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

    /// Overwrites a row. Returns whether the row exists. Only the bytes that differ are saved for
    /// undo.
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

    /// Removes a row. Returns whether the row existed.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure must return;
    /// [`Error::LogFull`](perdura_base::Error::LogFull).
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
            self.note_home(table, home);
        }
        Ok(removed.is_some())
    }

    /// Returns the rows of a home whose keys are in `range`. `which` names the index that has the keys.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure must return.
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

    /// Calls `each` with every row of a table in a home, in no particular order. The table may be hashed or ordered.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure must return.
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
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure must return.
    pub fn typed_len(&self, table: TypedTable, home: PartitionId) -> Result<u64> {
        let _verb = self.verb();
        if !table.keyed {
            self.use_pages();
        }
        let at = self.guard_of(home)?;
        Ok(self.guards[at].1.len(table.id))
    }

    /// Returns whether the caller must note the effects when it changes key-addressed tables.
    #[inline]
    #[must_use]
    pub fn wants_effects(&self) -> bool {
        self.typed.wants_effects
    }

    /// Returns the form that the effect of a changed row must have.
    #[must_use]
    pub fn value_form(&self) -> ValueForm {
        self.typed.form
    }

    /// Notes that a row of a key-addressed table, or the table itself, was changed. The calls must be in the order of
    /// the changes.
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

    /// Notes that a whole table is made or dropped. The transaction must have latched every partition, and gets a
    /// number in the sequence of each.
    pub fn note_table(&mut self, table: TableId, op: &Op<'_>) {
        assert!(op.is_of_table(), "the op is of a table");
        self.typed.homes = PartitionSet::all(self.geometry.partitions);
        self.typed.note(RowHome::All, table, &[], op);
    }

    /// Returns a hash of the effects noted so far. Equal changes in equal order give equal hashes.
    #[must_use]
    pub fn effects_hash(&mut self) -> u64 {
        self.typed.effects_hash()
    }

    /// Returns the latched partitions in ascending order.
    pub fn latched(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.guards.iter().map(|(id, _)| *id)
    }

    /// Returns the sequence number that this transaction will get in a partition if it commits.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure must return.
    pub fn sequence(&self, home: PartitionId) -> Result<u64> {
        let at = self.guard_of(home)?;
        Ok(self.guards[at].1.pseq() + 1)
    }

    /// Returns the seed of this transaction's random numbers. `first` is the transaction's first partition. A replay
    /// gets the same seed. If the transaction runs again for more latches, it keeps its seed.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure must return.
    pub fn random_seed(&mut self, first: PartitionId) -> Result<u64> {
        let sequence = self.sequence(first)?;
        match self.typed.is_command {
            true => Ok(mix64(sequence) ^ u64::from(first.0)),
            false => Ok(*self.typed.seed.get_or_insert_with(|| self.seeds.take())),
        }
    }

    /// Returns a savepoint for [`rollback_to`](Self::rollback_to).
    pub fn savepoint(&mut self) -> TxSavepoint {
        let _verb = self.verb();
        TxSavepoint {
            undo: self.undo.savepoint(),
            effects: self.typed.effects.len(),
            bytes: self.typed.bytes.len(),
        }
    }

    /// Undoes all changes since a savepoint. Later savepoints become invalid.
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
