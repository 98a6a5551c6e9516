//! The keys that a transaction may use by name.
//!
//! A server judges a request by the keys that it declares. A command that reads its arguments in another
//! way would use a key that no rule has judged. So the caller lists the judged keys, and every other key is
//! refused at the one place where a name becomes a row. Elements of collections are found by numbers, and are not
//! concerned.

use crate::tx::Tx;
use perdura_base::{Error, Result, TableId};
use perdura_heap::{KeyHash, RowRef};

/// The error of a transaction that uses a key that it may not use.
pub const UNDECLARED_KEY: &str = "the command used a key that its arguments do not declare. \
                                  Nothing was changed. This is a bug in the server: please \
                                  report the command";

/// The hashes of the keys that may be used, in ascending order.
pub(crate) type Names = Box<[u64]>;

impl Tx<'_> {
    /// Refuses all keys but these, until [`allow_all_keys`](Self::allow_all_keys).
    pub fn allow_only<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        let mut names: Vec<u64> = keys.map(|key| self.geometry.hash(key).0).collect();
        names.sort_unstable();
        names.dedup();
        debug_assert!(names.is_sorted(), "a name is found by halving");
        self.names = Some(names.into());
    }

    /// Allows every key, as at the beginning.
    pub fn allow_all_keys(&mut self) {
        self.names = None;
    }

    /// Like [`get`](Self::get), for a key whose name was found in the data. The caller has judged that every key may be
    /// read.
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

/// Fails unless a key is among those that may be used.
#[cold]
pub(crate) fn check(names: &[u64], hash: KeyHash) -> Result<()> {
    if names.binary_search(&hash.0).is_ok() {
        return Ok(());
    }
    Err(Error::Usage(UNDECLARED_KEY.into()))
}
