//! A running transaction. It reads and writes rows in place, under the latches that it holds.

use std::sync::Arc;

use perdura_base::StreamId;
use perdura_base::limits::KEY_BYTES_MAX;
use perdura_base::{Error, PartitionId, Result, TableId};
use perdura_heap::ahead;
use perdura_heap::{
    Geometry, Heap, Home, KeyHash, Kind, MemoryAccount, MemoryUse, NewRow, PartitionGuard, RowRef,
    Shape, TableKey, Undo,
};
use perdura_wal::Wal;
use smallvec::SmallVec;

use crate::counters::CounterKeys;
use crate::names::{self, Names};
use crate::packing::Packing;
use crate::random::Seeds;
use crate::typed::Typed;
use crate::verb::{Marks, Verb};

/// The minimum number of changes for which room in the log is requested in advance.
pub(crate) const FEW: usize = 256;

pub(crate) type Guards<'a> = SmallVec<[(PartitionId, PartitionGuard<'a>); 4]>;

/// The memory account is updated each time a transaction's group has grown by this many bytes.
pub(crate) const ACCOUNT_STEP_BYTES: usize = 1 << 20;

/// The new content of a key.
pub(crate) struct Content<'a> {
    pub kind: Kind,
    pub value: &'a [u8],
}

/// A running transaction: a view of the database, and the verbs for changes.
pub struct Tx<'a> {
    pub(crate) heap: &'a Arc<Heap>,
    pub(crate) geometry: &'a Geometry,
    pub(crate) guards: Guards<'a>,
    pub(crate) undo: &'a mut Undo,
    pub(crate) typed: &'a mut Typed,
    pub(crate) marks: &'a Marks,
    /// The catalog's keys of the counters of row ids.
    pub(crate) counters: &'a CounterKeys,
    /// The seeds for random numbers.
    pub(crate) seeds: &'a Seeds,
    /// The log for the transaction's records; `None` in a replay.
    pub(crate) wal: Option<&'a Wal>,
    /// The log stream for the transaction's group.
    pub(crate) stream: StreamId,
    /// The approximate bytes that the transaction's group takes in the log so far.
    pub(crate) appending: usize,
    pub(crate) now_ms: u64,
    /// Collections that may be without an element now.
    pub(crate) changed: SmallVec<[(TableId, Home); 2]>,
    pub(crate) value_bytes_max: usize,
    /// The used memory and its limit, if the limit is reached. Then only deletes are allowed. `None`: the limit is not
    /// reached.
    pub(crate) out_of_memory: Option<(u64, u64)>,
    pub(crate) memory: &'a MemoryAccount,
    /// The bytes of the transaction's before-images and group that the memory account already includes.
    pub(crate) accounted: u64,
    /// The size of the group, in bytes, at which the memory account is updated next.
    pub(crate) account_at: usize,
    /// The limits of packed collections.
    pub(crate) packing: Packing,
    /// The keys that the transaction may use. `None`: all keys.
    pub(crate) names: Option<Names>,
}

impl<'a> Tx<'a> {
    /// The approximate bytes that a row takes in the log in addition to its key and value. They cover a page header, a
    /// slot header and a word of the bitmap, each twice because the row may move.
    pub const ROW_BYTES: usize = 128;
    /// The approximate bytes that a removed row takes in the log.
    pub const REMOVED_BYTES: usize = 32;

    /// Begins a verb. A panic while the returned guard is alive counts as a panic of the engine.
    pub(crate) fn verb(&self) -> Verb<'a> {
        Verb::enter(self.marks)
    }

    /// Returns the time of this transaction, milliseconds since 1970.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Returns this transaction's size limits for packed collections.
    #[must_use]
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Sets this transaction's size limits for packed collections. A transaction begins with [`Packing::FULL`].
    pub fn set_packing(&mut self, packing: Packing) {
        self.packing = packing;
    }

    /// Requests room in the log for all changes so far and for one more change of `bytes`.
    ///
    /// # Errors
    /// [`Error::LogFull`], [`Error::Stopped`].
    pub fn admit(&mut self, bytes: usize) -> Result<()> {
        self.admit_part(bytes + Self::ROW_BYTES)
    }

    /// Like [`admit`](Self::admit), but `bytes` already includes all overhead of the change.
    pub(crate) fn admit_part(&mut self, bytes: usize) -> Result<()> {
        self.appending += bytes;
        self.admit_in_all(self.appending)
    }

    /// Requests room in the log for the whole transaction. `bytes` is the total of its changes.
    pub(crate) fn admit_in_all(&mut self, bytes: usize) -> Result<()> {
        if self.appending >= self.account_at {
            self.account();
        }
        if self.heap.kept_over_bound() {
            // The refusal is temporary: it ends when the checkpoint has visited the pages that are
            // kept for it.
            self.marks.meet_full_log(true, bytes);
            let why = "memory is full with data that checkpoints and snapshots still need";
            return Err(Error::LogFull(why.into()));
        }
        let Some(wal) = self.wal else {
            return Ok(());
        };
        let admitted = wal.admit(self.stream, bytes);
        if matches!(admitted, Err(Error::LogFull(_))) {
            let passes = wal.is_refused_for_now(self.stream, bytes);
            // The transaction will run again from its beginning, and may need more room than so far. Requesting twice
            // the room each time bounds the cost of all runs together to about twice the cost of the last run.
            let hint = self.appending.saturating_mul(2).max(bytes);
            wal.ask_for_room(self.stream, hint);
            self.marks.meet_full_log(passes, bytes);
        }
        admitted
    }

    /// Requests room in the log for `count` rows before the first row is written. `bytes` is the total of the rows'
    /// keys and values. Without this request, the log may refuse a later write, and the transaction then runs again
    /// from its beginning. This is only a hint, and does nothing for a small `count`.
    ///
    /// # Errors
    /// [`Error::LogFull`], [`Error::Stopped`].
    pub fn expect_rows(&mut self, count: usize, bytes: usize) -> Result<()> {
        if count < FEW {
            return Ok(());
        }
        let _verb = self.verb();
        let bytes = count.saturating_mul(Self::ROW_BYTES).saturating_add(bytes);
        self.admit_in_all(self.appending.saturating_add(bytes))
    }

    /// Like [`expect_rows`](Self::expect_rows), for `count` rows that will be removed.
    ///
    /// # Errors
    /// As [`expect_rows`](Self::expect_rows).
    pub fn expect_removals(&mut self, count: usize) -> Result<()> {
        if count < FEW {
            return Ok(());
        }
        let _verb = self.verb();
        let bytes = count.saturating_mul(Self::REMOVED_BYTES);
        self.admit_in_all(self.appending.saturating_add(bytes))
    }

    /// Changes a partition with `f`. If the change needs more room in the log than the `admitted` bytes, requests the
    /// rest. The request follows the change, because `f` may remove pages of a long value or rows of an orphan. Their
    /// number is not known before.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return; [`Error::LogFull`], [`Error::Stopped`]; the errors of `f`.
    pub(crate) fn change<R>(
        &mut self,
        at: usize,
        admitted: usize,
        f: impl FnOnce(&mut perdura_heap::Partition, &mut Undo) -> Result<R>,
    ) -> Result<R> {
        let (id, part) = &mut self.guards[at];
        let before = self.undo.log_bytes(*id);
        let done = f(part, self.undo)?;
        let grown = self.undo.log_bytes(*id).saturating_sub(before);
        if grown > admitted {
            self.admit_part(grown - admitted)?;
        }
        Ok(done)
    }

    /// Returns whether the transaction has changed anything so far.
    #[must_use]
    pub fn has_written(&self) -> bool {
        !self.undo.is_empty() || !self.typed.homes.is_empty()
    }

    /// Returns the largest number of bytes for which room was refused. The transaction then has to wait and run again.
    /// `None`: no write was refused, or waiting does not help.
    #[must_use]
    pub fn awaits_log(&self) -> Option<usize> {
        self.marks.awaits_log()
    }

    /// Fails if a verb of this transaction met a missing latch or a full log. An error that the closure ignored counts
    /// too. The transaction will then be undone. So a caller must call this before it publishes data outside the pages.
    ///
    /// # Errors
    /// [`Error::Undeclared`], [`Error::LogFull`], which the closure must return.
    pub fn check_not_refused(&self) -> Result<()> {
        if let Some(partition) = self.marks.missing().iter().next() {
            return Err(Error::Undeclared(partition));
        }
        if self.marks.met_full_log() {
            return Err(Error::LogFull(
                "the log refused a write of this transaction".into(),
            ));
        }
        Ok(())
    }

    /// Updates the memory account with the bytes that this transaction uses now. If the used memory reaches the limit,
    /// the rest of the transaction may only delete.
    #[cold]
    fn account(&mut self) {
        let group = u64::try_from(self.appending).unwrap_or(u64::MAX);
        let bytes = self.undo.bytes().saturating_add(group);
        self.memory.change(MemoryUse::Undo, self.accounted, bytes);
        self.accounted = bytes;
        self.account_at = self.appending + ACCOUNT_STEP_BYTES;
        if self.out_of_memory.is_none() && !self.memory.has_room(0) {
            self.out_of_memory = Some((self.memory.used(), self.memory.limit()));
        }
    }

    /// Returns whether memory is below its limit. At the limit only deletes are allowed.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        self.out_of_memory.is_none()
    }

    pub(crate) fn check_memory(&self) -> Result<()> {
        match self.out_of_memory {
            Some((used, limit)) => Err(Error::OutOfMemory { used, limit }),
            None => Ok(()),
        }
    }

    pub(crate) fn place(&self, key: &[u8]) -> Result<(usize, KeyHash)> {
        if let Some(names) = &self.names {
            names::check(names, self.geometry.hash(key))?;
        }
        self.place_any(key)
    }

    /// Like [`place`](Self::place), but does not check whether the transaction may use the key.
    pub(crate) fn place_any(&self, key: &[u8]) -> Result<(usize, KeyHash)> {
        self.use_pages();
        let hash = self.geometry.hash(key);
        let partition = self.geometry.partition_of(hash);
        Ok((self.guard_of(partition)?, hash))
    }

    pub(crate) fn guard_of(&self, partition: PartitionId) -> Result<usize> {
        if let [(only, _)] = self.guards.as_slice()
            && *only == partition
        {
            debug_assert_eq!(self.guards[0].1.id(), partition);
            return Ok(0);
        }
        let found = self.guards.binary_search_by_key(&partition, |(id, _)| *id);
        debug_assert!(found.is_ok_and(|at| self.guards[at].1.id() == partition) || found.is_err());
        found.map_err(|_| {
            self.marks.miss(partition);
            Error::Undeclared(partition)
        })
    }

    /// Prefetches the memory of keys that this transaction will use, a few at a time; see [`perdura_heap::ahead`]. This
    /// is only a hint. It skips partitions that are not latched.
    pub fn look_ahead<'k>(&self, table: TableId, keys: impl Iterator<Item = &'k [u8]>) {
        let keys = keys.filter_map(|key| {
            let hash = self.geometry.hash(key);
            let id = self.geometry.partition_of(hash);
            let at = self.guards.binary_search_by_key(&id, |(id, _)| *id).ok()?;
            Some((&*self.guards[at].1, table, hash))
        });
        ahead::touch(keys.take(ahead::AHEAD_KEYS));
    }

    /// Returns the row of a key, and counts the key as used. An expired row counts as absent.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return.
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<RowRef<'_>>> {
        let _verb = self.verb();
        let (at, hash) = self.place(key)?;
        let now = self.now_ms;
        let row = self.guards[at].1.get(table, key, hash);
        Ok(row.filter(|row| is_alive(row, now)))
    }

    /// Like [`get`](Self::get), but does not count the key as used.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn peek(&self, table: TableId, key: &[u8]) -> Result<Option<RowRef<'_>>> {
        let _verb = self.verb();
        let (at, hash) = self.place(key)?;
        let now = self.now_ms;
        let row = self.guards[at].1.peek(table, key, hash);
        Ok(row.filter(|row| is_alive(row, now)))
    }

    /// Returns the whole seconds since the last use of a key. `None`: the key does not exist, or accesses are not
    /// recorded.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn idle_seconds(&self, table: TableId, key: &[u8]) -> Result<Option<u64>> {
        let _verb = self.verb();
        let (at, hash) = self.place(key)?;
        Ok(self.guards[at].1.idle_seconds(table, key, hash))
    }

    /// Sets the number of seconds since the last use of a key. Does nothing if accesses are not recorded.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn set_idle_seconds(&self, table: TableId, key: &[u8], idle: u64) -> Result<()> {
        let _verb = self.verb();
        let (at, hash) = self.place(key)?;
        self.guards[at].1.set_idle_seconds(table, key, hash, idle);
        Ok(())
    }

    /// Inserts or overwrites a row. `expiry_ms` is absolute, milliseconds since 1970.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] at the memory limit. [`Error::LogFull`] if the log has no room for the change.
    /// [`Error::Usage`] for keys and values over their limits. [`Error::Undeclared`], which the closure must return.
    pub fn put(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<()> {
        let _verb = self.verb();
        let kind = Kind::String;
        self.put_content(table, key, Content { kind, value }, expiry_ms)
    }

    /// Inserts or overwrites a key with a small, packed collection. At the memory limit the
    /// collection may only become shorter, so that elements can still be removed.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_small(
        &mut self,
        table: TableId,
        key: &[u8],
        shape: Shape,
        packed: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<()> {
        let _verb = self.verb();
        let new = Content {
            kind: Kind::Small(shape),
            value: packed,
        };
        let shrinks = self.out_of_memory.is_some()
            && self.get(table, key)?.is_some_and(|old| {
                let same = old.kind() == new.kind && old.expiry_ms() == expiry_ms;
                same && old.value_len() >= packed.len()
            });
        if !shrinks {
            return self.put_content(table, key, new, expiry_ms);
        }
        let refused = self.out_of_memory.take();
        let done = self.put_content(table, key, new, expiry_ms);
        self.out_of_memory = refused;
        done
    }

    /// Inserts or overwrites a key with content of any kind.
    pub(crate) fn put_content(
        &mut self,
        table: TableId,
        key: &[u8],
        content: Content<'_>,
        expiry_ms: Option<u64>,
    ) -> Result<()> {
        let Content { kind, value } = content;
        self.check_write(key, value.len())?;
        let (at, hash) = self.place(key)?;
        let admitted = key.len() + value.len() + Self::ROW_BYTES;
        let displaced = self.change(at, admitted, |part, undo| {
            let at = TableKey::new(table, key, hash);
            part.put_kind(undo, table, &NewRow::of(at, kind, value, expiry_ms))
        })?;
        debug_assert_eq!(
            self.guards[at]
                .1
                .peek(table, key, hash)
                .map(|row| row.value_len()),
            Some(value.len()),
            "what is written is found"
        );
        self.orphan_displaced(table, displaced)
    }

    /// Writes `bytes` at offset `at` into the string of a key. If the key does not exist, creates
    /// the string. If the string is shorter, extends it and fills the gap with zeros. The expiry
    /// does not change. Returns the string's new length.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn write_at(
        &mut self,
        table: TableId,
        key: &[u8],
        at: usize,
        bytes: &[u8],
    ) -> Result<usize> {
        let _verb = self.verb();
        let end = at.saturating_add(bytes.len());
        if end > self.value_bytes_max {
            return Err(over_limit("value", end, self.value_bytes_max));
        }
        self.check_memory()?;
        let Some(row) = self.get(table, key)? else {
            let mut value = vec![0; at];
            value.extend_from_slice(bytes);
            self.put(table, key, &value, None)?;
            return Ok(value.len());
        };
        let len = row.value_len();
        self.admit(key.len() + bytes.len() + end.saturating_sub(len))?;
        let (guard, hash) = self.place(key)?;
        let part = &mut self.guards[guard].1;
        let written = part.write_at(self.undo, TableKey::new(table, key, hash), at, bytes)?;
        debug_assert!(
            written == len.max(end) || bytes.is_empty(),
            "no byte is lost"
        );
        Ok(written)
    }

    /// Fails unless a key may be written with a value of `value_bytes`.
    pub(crate) fn check_write(&mut self, key: &[u8], value_bytes: usize) -> Result<()> {
        self.check_memory()?;
        if key.len() > KEY_BYTES_MAX {
            return Err(over_limit("key", key.len(), KEY_BYTES_MAX));
        }
        self.check_value_bytes(value_bytes)?;
        self.admit(key.len() + value_bytes)
    }

    /// Fails if `bytes` is above the maximum length of a value.
    pub(crate) fn check_value_bytes(&self, bytes: usize) -> Result<()> {
        if bytes > self.value_bytes_max {
            return Err(over_limit("value", bytes, self.value_bytes_max));
        }
        Ok(())
    }

    /// Fails if `bytes` is too long for the name or the value of an element.
    pub(crate) fn check_value(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() > self.value_bytes_max {
            return Err(over_limit("element", bytes.len(), self.value_bytes_max));
        }
        Ok(())
    }

    /// Removes a key with any content. Returns whether the key existed and had not expired.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return.
    pub fn delete(&mut self, table: TableId, key: &[u8]) -> Result<bool> {
        let _verb = self.verb();
        let (at, hash) = self.place(key)?;
        let now = self.now_ms;
        let row = self.guards[at].1.get(table, key, hash);
        let alive = row.is_some_and(|row| is_alive(&row, now));
        let displaced = self.change(at, 0, |part, undo| Ok(part.delete(undo, table, key, hash)))?;
        debug_assert!(displaced.is_some() || !alive, "what was found is removed");
        debug_assert!(self.guards[at].1.peek(table, key, hash).is_none());
        if let Some(displaced) = displaced {
            self.orphan_displaced(table, displaced)?;
        }
        Ok(alive)
    }

    /// Sets or clears a row's expiry. Returns whether the row exists.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] at the memory limit; [`Error::Undeclared`], which the closure must return.
    pub fn set_expiry(
        &mut self,
        table: TableId,
        key: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<bool> {
        let _verb = self.verb();
        if self.get(table, key)?.is_none() {
            return Ok(false);
        }
        self.check_memory()?;
        self.admit(0)?;
        let (at, hash) = self.place(key)?;
        let is_set = self.change(at, Self::ROW_BYTES, |part, undo| {
            part.set_expiry(undo, TableKey::new(table, key, hash), expiry_ms)
        })?;
        debug_assert_eq!(
            self.guards[at]
                .1
                .peek(table, key, hash)
                .and_then(|row| row.expiry_ms()),
            expiry_ms
        );
        Ok(is_set)
    }

    /// Returns the number of keys of a table, including expired keys that were not removed yet. Every partition must
    /// be latched.
    ///
    /// # Errors
    /// [`Error::Undeclared`] if a partition is missing.
    pub fn len(&self, table: TableId) -> Result<u64> {
        self.over_all(|part| part.len(table))
    }

    /// Returns the number of rows of a table that have an expiry. Every partition must be latched.
    ///
    /// # Errors
    /// [`Error::Undeclared`] if a partition is missing.
    pub fn expiring(&self, table: TableId) -> Result<u64> {
        self.over_all(|part| part.expiring(table))
    }

    fn over_all(&self, f: impl Fn(&perdura_heap::Partition) -> u64) -> Result<u64> {
        let _verb = self.verb();
        let mut sum = Ok(0);
        // The loop continues after a missing latch. So all missing latches are noted, and the next run takes them.
        for id in (0..self.geometry.partitions).map(PartitionId) {
            sum = match (self.guard_of(id), sum) {
                (Ok(at), Ok(sum)) => Ok(sum + f(&self.guards[at].1)),
                (Err(missing), _) | (_, Err(missing)) => Err(missing),
            };
        }
        sum
    }
}

/// Returns whether a row has not expired.
pub(crate) fn is_alive(row: &RowRef<'_>, now_ms: u64) -> bool {
    row.expiry_ms().is_none_or(|expiry| expiry > now_ms)
}

fn over_limit(what: &str, got: usize, max: usize) -> Error {
    Error::Usage(format!(
        "the {what} has {got} bytes, more than the limit of {max}"
    ))
}
