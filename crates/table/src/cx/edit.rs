//! Verbs that change parts of a row.

use perdura_base::{Error, Result};
use perdura_txn::TypedSpot;

use super::write::Rewrite;
use super::{Cx, Placed};
use crate::key::KeyBytes;
use crate::prefix::WholeKey;
use crate::registry::Entry;
use crate::table::Table;
use crate::view::RowEdit;

impl Cx<'_, '_> {
    /// Decodes a row, passes it to `change`, and writes it back.
    ///
    /// # Errors
    /// [`Error::Usage`] if the row does not exist, or `change` has changed the key. Otherwise as
    /// [`insert`](Self::insert).
    pub fn modify<T: Table>(
        &mut self,
        key: impl WholeKey<T::Key>,
        change: impl FnOnce(&mut T),
    ) -> Result<()> {
        self.change_bytes::<T>(&key, |key, value| {
            let mut row = T::decode(key, value)?;
            change(&mut row);
            let mut after = KeyBytes::new();
            row.encode_key(&mut after);
            if !T::KEYLESS && after.as_slice() != key {
                return Err(Error::Usage(format!(
                    "table {:?}: the key of a row does not change; remove the row with the key {} and \
                     insert another",
                    T::NAME,
                    T::schema().key_text(key)
                )));
            }
            value.clear();
            row.encode_row(value);
            Ok(())
        })
    }

    /// Passes a row to `change` and then writes the row back. `change` reads and sets single columns. The other columns
    /// are not decoded.
    ///
    /// # Errors
    /// The error of `change`. [`Error::Usage`] if the row does not exist. Otherwise as [`insert`](Self::insert).
    pub fn edit<T: Table>(
        &mut self,
        key: impl WholeKey<T::Key>,
        change: impl FnOnce(&mut RowEdit<'_, T>) -> Result<()>,
    ) -> Result<()> {
        self.change_bytes::<T>(&key, |key, value| change(&mut RowEdit::new(key, value)?))
    }

    fn change_bytes<T: Table>(
        &mut self,
        key: &impl WholeKey<T::Key>,
        change: impl FnOnce(&[u8], &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let entry = self.entry::<T>()?;
        let placed = self.place::<T>(key);
        let buffer = std::mem::take(&mut self.after);
        let (mut after, spot) = self.copy_row(entry, &placed, buffer)?;
        let done = if self.needs_before(entry) {
            let mut before = std::mem::take(&mut self.before);
            before.clone_from(&after);
            let changed = change(placed.key.as_slice(), &mut after);
            let rewrite = Rewrite {
                before: Some(&before),
                after: &after,
            };
            let done = changed.and_then(|()| self.write_back(entry, &placed, spot, rewrite));
            self.before = before;
            done
        } else {
            let changed = change(placed.key.as_slice(), &mut after);
            let rewrite = Rewrite {
                before: None,
                after: &after,
            };
            changed.and_then(|()| self.write_back(entry, &placed, spot, rewrite))
        };
        self.after = after;
        done
    }

    fn write_back(
        &mut self,
        entry: &Entry,
        placed: &Placed,
        spot: TypedSpot,
        rewrite: Rewrite<'_>,
    ) -> Result<()> {
        debug_assert!(
            entry.schema.check_value(rewrite.after).is_ok(),
            "what is written can be read"
        );
        self.replace(entry, placed, Some(spot), rewrite)
    }
}
