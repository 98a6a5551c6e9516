//! A collection that is being changed.
//!
//! [`Change::open`] reads the collection in its current form. The operations work on that form, and
//! turn a packed collection into rows when it no longer fits. [`Change::finish`] writes the packed
//! form back, or deletes the key if no element is left. The key's row is written only once, even if a
//! command changes many elements.
//!
//! ```text
//! absent ──put──► small ──put that does not fit──► rows
//!                   └──────────── last one removed: no key ────────────┘
//! ```

use perdura_base::TableId;
use perdura_txn::{End, Home, Packing, Shape, Tx};

use crate::Fault;
use crate::open::{Source, View, read, view};
use crate::small::{Editor, New, Packed, may_change, may_join, may_join_set};

/// The present form of the elements.
#[derive(Debug)]
pub enum State {
    /// The key does not exist.
    Absent,
    /// Packed, with the changes made so far.
    Small(Editor),
    /// One row for each element.
    Rows(Home),
}

/// A collection that is being changed. [`finish`](Self::finish) must be called after the last change.
#[derive(Debug)]
pub struct Change<'k> {
    table: TableId,
    key: &'k [u8],
    shape: Shape,
    expiry_ms: Option<u64>,
    /// The present form of the elements.
    pub state: State,
    packing: Packing,
    edited: bool,
    /// True if the rows are known to have an element.
    filled: bool,
}

/// The outcome of a change: elements are left in the key, or none are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a key that is gone is an event"]
pub enum Left {
    /// At least one element is left.
    Some,
    /// No element is left: the key was deleted, or did not exist.
    Nothing,
}

impl<'k> Change<'k> {
    /// Opens the collection of a key to change it.
    ///
    /// # Errors
    /// [`Fault::WrongType`]; an abort, which the caller must pass on.
    pub fn open(
        tx: &Tx<'_>,
        table: TableId,
        key: &'k [u8],
        shape: Shape,
    ) -> Result<Change<'k>, Fault> {
        let (state, expiry_ms) = match tx.get(table, key)? {
            None => (State::Absent, None),
            Some(row) => {
                let state = match view(row, shape)? {
                    View::Small(packed) => State::Small(packed.into()),
                    View::Rows(home) => State::Rows(home),
                };
                (state, row.expiry_ms())
            }
        };
        Ok(Change {
            table,
            key,
            shape,
            expiry_ms,
            state,
            packing: tx.packing(),
            edited: false,
            filled: false,
        })
    }

    /// Deletes the key's previous value of any type, and begins a change of an empty collection.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn replace(
        tx: &mut Tx<'_>,
        table: TableId,
        key: &'k [u8],
        shape: Shape,
    ) -> Result<Change<'k>, Fault> {
        tx.delete(table, key)?;
        Ok(Change {
            table,
            key,
            shape,
            expiry_ms: None,
            state: State::Absent,
            packing: tx.packing(),
            edited: false,
            filled: false,
        })
    }

    /// Returns whether the key does not exist and no element has been put.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self.state, State::Absent)
    }

    /// Returns the table of the key.
    pub(crate) fn table(&self) -> TableId {
        self.table
    }

    /// Returns the limits of the packed form.
    pub(crate) fn packing(&self) -> Packing {
        self.packing
    }

    /// Returns the packed form, so that the caller can change it. The form is empty if the key does not exist. `None`:
    /// the elements are rows. After a change the caller must call [`note_edit`](Self::note_edit).
    pub(crate) fn packed(&mut self) -> Option<&mut Editor> {
        if matches!(self.state, State::Absent) {
            self.state = State::Small(Editor::new(self.shape));
        }
        match &mut self.state {
            State::Small(editor) => Some(editor),
            State::Absent | State::Rows(_) => None,
        }
    }

    /// Removes every element at once. If elements are put later, the key keeps its present expiry.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub(crate) fn clear(&mut self, tx: &mut Tx<'_>) -> Result<(), Fault> {
        tx.delete(self.table, self.key)?;
        self.state = State::Absent;
        self.edited = false;
        self.filled = false;
        Ok(())
    }

    /// Returns the number of elements.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn len(&self, tx: &Tx<'_>) -> Result<u64, Fault> {
        Ok(match &self.state {
            State::Absent => 0,
            State::Small(editor) => perdura_base::num::to_u64(editor.packed().len()),
            State::Rows(home) => tx.elements(self.table, *home)?.len(),
        })
    }

    /// Puts an element: a hash field with a value, a set member in the set's order, or a sorted set member with a
    /// score. Returns whether the element is new.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn put(&mut self, tx: &mut Tx<'_>, new: New<'_>) -> Result<bool, Fault> {
        let (name, value) = match new {
            New::One(name) => (name, &[][..]),
            New::Pair(name, value) => (name, value),
            New::Scored(name, score) => {
                return Ok(self.put_row(tx, name, &score.to_le_bytes())?);
            }
        };
        if matches!(self.state, State::Absent) {
            self.state = State::Small(Editor::new(self.shape));
        }
        if let State::Small(editor) = &mut self.state {
            let found = editor.packed().find(name).map(|e| e.start..e.end);
            let is_new = found.is_none();
            let done = match found {
                Some(_) if self.shape == Shape::Set => return Ok(false),
                Some(range) => {
                    may_change(editor.packed(), new, self.packing) && editor.replace(range, new)
                }
                None if self.shape == Shape::Set => {
                    let (at, integers) = place_in_set(editor.packed(), name);
                    may_join_set(editor.packed(), name, integers, self.packing)
                        && editor.insert(at, new)
                }
                None => may_join(editor.packed(), new, self.packing) && editor.push(new),
            };
            if done {
                self.edited = true;
                return Ok(is_new);
            }
        }
        Ok(self.put_row(tx, name, value)?)
    }

    /// Puts an element as a row. A packed collection is turned into rows first.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn put_row(
        &mut self,
        tx: &mut Tx<'_>,
        name: &[u8],
        value: &[u8],
    ) -> Result<bool, perdura_base::Error> {
        let home = self.spread(tx)?;
        let is_new = tx.element_put(self.table, home, name, value)?;
        self.filled = true;
        Ok(is_new)
    }

    /// Turns a packed or absent collection into rows. Returns the home of the rows. The collection
    /// must have an element, or the caller must put one next.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn spread(&mut self, tx: &mut Tx<'_>) -> Result<Home, perdura_base::Error> {
        if let State::Rows(home) = self.state {
            return Ok(home);
        }
        let home = tx.create(self.table, self.key, self.shape, self.expiry_ms)?;
        if let State::Small(editor) = &self.state {
            for element in editor.packed().iter() {
                match self.shape {
                    Shape::List => {
                        tx.list_push_one(self.table, home, End::Back, &element.key)?;
                    }
                    Shape::Hash | Shape::Stream => {
                        tx.element_put(self.table, home, &element.key, &element.value)?;
                    }
                    Shape::Set => {
                        tx.element_put(self.table, home, &element.key, &[])?;
                    }
                    Shape::Zset => {
                        let score = element.score().to_le_bytes();
                        tx.element_put(self.table, home, &element.key, &score)?;
                    }
                }
            }
        }
        self.state = State::Rows(home);
        self.edited = false;
        Ok(home)
    }

    /// Removes the element with a field or member name. Returns whether the element existed. Not for lists: items have
    /// no names.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn remove(&mut self, tx: &mut Tx<'_>, name: &[u8]) -> Result<bool, Fault> {
        match &mut self.state {
            State::Absent => Ok(false),
            State::Small(editor) => {
                let found = editor.packed().find(name).map(|e| e.start..e.end);
                let Some(range) = found else {
                    return Ok(false);
                };
                editor.remove(range);
                self.edited = true;
                Ok(true)
            }
            State::Rows(home) => {
                self.filled = false;
                Ok(tx.element_delete(self.table, *home, name)?)
            }
        }
    }

    /// Notes that the rows have an element, so that [`finish`](Self::finish) need not look.
    pub(crate) fn note_filled(&mut self) {
        debug_assert!(
            matches!(self.state, State::Rows(_)),
            "the packed form has its length"
        );
        self.filled = true;
    }

    /// Notes that an element was removed through [`state`](Self::state).
    pub(crate) fn note_removal(&mut self) {
        self.filled = false;
    }

    /// Notes that the packed form was changed through [`state`](Self::state).
    pub fn note_edit(&mut self) {
        self.edited = true;
    }

    /// Writes the packed form, or deletes the key if no element is left.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn finish(self, tx: &mut Tx<'_>) -> Result<Left, Fault> {
        debug_assert!(
            !self.filled || self.len(tx)? > 0,
            "rows that are known to have an element have one"
        );
        if !self.filled && self.len(tx)? == 0 {
            if !self.is_absent() {
                tx.delete(self.table, self.key)?;
            }
            return Ok(Left::Nothing);
        }
        if let (State::Small(editor), true) = (&self.state, self.edited) {
            let packed = editor.packed().bytes();
            tx.put_small(self.table, self.key, self.shape, packed, self.expiry_ms)?;
        }
        Ok(Left::Some)
    }

    /// Returns the collection as the transaction has stored it so far. Changes of the packed form are missing until
    /// [`finish`](Self::finish) writes them.
    ///
    /// # Errors
    /// As [`read`].
    pub fn stored<'a>(&self, tx: &'a Tx<'_>) -> Result<Option<Source<'a>>, Fault> {
        read(tx, self.table, self.key, self.shape)
    }
}

/// Returns the offset for a new member, and whether every member, including the new one, is an integer. A set of
/// integers is sorted by value. In any other set the new member comes last.
fn place_in_set(packed: &Packed<'_>, name: &[u8]) -> (usize, bool) {
    let end = packed.bytes().len();
    let Some(value) = crate::number::parse_i64(name) else {
        return (end, false);
    };
    let mut place = end;
    for element in packed.iter() {
        match element.key.integer() {
            None => return (end, false),
            Some(other) if other > value => place = place.min(element.start),
            Some(_) => {}
        }
    }
    (place, true)
}

/// Removes elements of a hash, a set or a sorted set. Returns the number of removed elements, and
/// whether any is left.
pub(crate) fn remove_all<'n>(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    shape: Shape,
    names: impl IntoIterator<Item = &'n [u8]>,
) -> Result<(u64, Left), Fault> {
    let mut change = Change::open(tx, table, key, shape)?;
    let mut removed = 0;
    let names = names.into_iter();
    tx.expect_removals(names.size_hint().0)?;
    for name in names {
        removed += u64::from(change.remove(tx, name)?);
    }
    Ok((removed, change.finish(tx)?))
}
