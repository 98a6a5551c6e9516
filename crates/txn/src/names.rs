//! The check of the keys that a transaction uses.
//!
//! A server checks the client's rights for the keys that a command declares. A command with a bug might use an
//! undeclared key. The rights for this key were not checked. So the caller lists the checked keys. Every other key is
//! refused at the single place where a key's name is looked up. Elements of collections are looked up by numbers, so
//! this check does not apply to them.

use crate::tx::Tx;
use perdura_base::{Error, Result, TableId};
use perdura_heap::{KeyHash, RowRef};

/// The error of a transaction that uses a forbidden key.
pub const UNDECLARED_KEY: &str = "the command used a key that its arguments do not declare. \
                                  Nothing was changed. This is a bug in the server: please \
                                  report the command";

/// The hashes of the keys that may be used, in ascending order.
pub(crate) type Names = Box<[u64]>;

impl Tx<'_> {
    /// Refuses all keys except these, until [`allow_all_keys`](Self::allow_all_keys) is called.
    pub fn allow_only<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        let mut names: Vec<u64> = keys.map(|key| self.geometry.hash(key).0).collect();
        names.sort_unstable();
        names.dedup();
        debug_assert!(names.is_sorted(), "a name is found by halving");
        self.names = Some(names.into());
    }

    /// Allows every key again. A new transaction allows every key.
    pub fn allow_all_keys(&mut self) {
        self.names = None;
    }

    /// Like [`get`](Self::get), for a key name read from the database. The key need not be in the list of
    /// [`allow_only`](Self::allow_only). The caller must have checked that the client may read every key.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_found(&self, table: TableId, key: &[u8]) -> Result<Option<RowRef<'_>>> {
        let _verb = self.verb();
        let (at, hash) = self.place_any(key)?;
        let now = self.now_ms;
        let row = self.guards[at].1.get(table, key, hash);
        Ok(row.filter(|row| crate::tx::is_alive(row, now)))
    }
}

/// Fails unless `names` has the key.
#[cold]
pub(crate) fn check(names: &[u64], hash: KeyHash) -> Result<()> {
    if names.binary_search(&hash.0).is_ok() {
        return Ok(());
    }
    Err(Error::Usage(UNDECLARED_KEY.into()))
}
