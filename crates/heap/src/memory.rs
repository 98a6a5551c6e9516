//! The memory in use, counted by purpose. At the limit writes are refused, but reads and deletes are not.
//!
//! Each component adds the size of its memory. The sum is compared with the limit in the few functions that let memory
//! grow. The counters are independent and approximate: no code needs the values of two counters at the same instant.

use std::sync::atomic::{AtomicU64, Ordering};

/// The purpose of memory in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryUse {
    /// Pages of the heap that are in use.
    Pages,
    /// Hash and ordered indexes.
    Indexes,
    /// Before-images of running transactions.
    Undo,
    /// Copies of pages that are being written to an image.
    Staging,
    /// Log blocks that are not written yet.
    Log,
    /// Buffers of clients: unfinished requests, queued transactions, replies and messages.
    Clients,
    /// Bytes of changed pages, kept for open cuts.
    Kept,
    /// Passwords that wait for a check, and the memory for one check.
    Passwords,
}

impl MemoryUse {
    /// All uses.
    pub const ALL: [MemoryUse; 8] = [
        MemoryUse::Pages,
        MemoryUse::Indexes,
        MemoryUse::Undo,
        MemoryUse::Staging,
        MemoryUse::Log,
        MemoryUse::Clients,
        MemoryUse::Kept,
        MemoryUse::Passwords,
    ];

    /// Returns the name of the use in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MemoryUse::Pages => "pages",
            MemoryUse::Indexes => "indexes",
            MemoryUse::Undo => "undo",
            MemoryUse::Staging => "staging",
            MemoryUse::Log => "log",
            MemoryUse::Clients => "clients",
            MemoryUse::Kept => "kept",
            MemoryUse::Passwords => "passwords",
        }
    }
}

/// The amount of memory that makes the kernel kill the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ceiling {
    /// The amount in bytes, swap included.
    pub bytes: u64,
    /// The file that sets this limit.
    pub set_by: String,
}

/// The bytes in use for each purpose, and the limit.
#[derive(Debug)]
pub struct MemoryAccount {
    pages: AtomicU64,
    indexes: AtomicU64,
    undo: AtomicU64,
    staging: AtomicU64,
    log: AtomicU64,
    clients: AtomicU64,
    kept: AtomicU64,
    passwords: AtomicU64,
    limit: AtomicU64,
    /// The part of the limit reserved for [`MemoryUse::Clients`].
    reserve: AtomicU64,
    kept_free: AtomicU64,
    kept_share: AtomicU64,
    ceiling: Option<Ceiling>,
}

/// The limit of the memory that may be kept for open cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptBound {
    /// The bytes that are always allowed.
    pub free: u64,
    /// The divisor, above 0. The limit is the greater of `free` and the memory in use divided by `share`.
    pub share: u64,
}

impl Default for KeptBound {
    fn default() -> Self {
        KeptBound {
            free: 16 << 20,
            share: 4,
        }
    }
}

impl MemoryAccount {
    /// Returns an empty account with a limit in bytes; `u64::MAX` means no limit.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        MemoryAccount {
            pages: AtomicU64::new(0),
            indexes: AtomicU64::new(0),
            undo: AtomicU64::new(0),
            staging: AtomicU64::new(0),
            log: AtomicU64::new(0),
            clients: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            passwords: AtomicU64::new(0),
            limit: AtomicU64::new(limit),
            reserve: AtomicU64::new(0),
            kept_free: AtomicU64::new(KeptBound::default().free),
            kept_share: AtomicU64::new(KeptBound::default().share),
            ceiling: None,
        }
    }

    /// Returns this account with a ceiling: the amount of memory that makes the kernel kill the process.
    #[must_use]
    pub fn with_ceiling(self, ceiling: Option<Ceiling>) -> Self {
        MemoryAccount { ceiling, ..self }
    }

    /// Returns the amount of memory that makes the kernel kill the process, if the amount is known.
    #[must_use]
    pub fn ceiling(&self) -> Option<&Ceiling> {
        self.ceiling.as_ref()
    }

    fn counter(&self, what: MemoryUse) -> &AtomicU64 {
        match what {
            MemoryUse::Pages => &self.pages,
            MemoryUse::Indexes => &self.indexes,
            MemoryUse::Undo => &self.undo,
            MemoryUse::Staging => &self.staging,
            MemoryUse::Log => &self.log,
            MemoryUse::Clients => &self.clients,
            MemoryUse::Kept => &self.kept,
            MemoryUse::Passwords => &self.passwords,
        }
    }

    /// Adds bytes to a use. Zero bytes cost nothing: a write to the counter would take its cache line from other threads.
    #[inline]
    pub fn add(&self, what: MemoryUse, bytes: u64) {
        if bytes > 0 {
            self.counter(what).fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Subtracts previously added bytes from a use. Zero bytes cost nothing, as in [`add`](Self::add).
    #[inline]
    pub fn sub(&self, what: MemoryUse, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let before = self.counter(what).fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{what:?}: {before} - {bytes}");
    }

    /// Replaces `old` bytes of a use by `new` bytes. The `old` bytes must have been added before.
    pub fn change(&self, what: MemoryUse, old: u64, new: u64) {
        if new > old {
            self.add(what, new - old);
        } else if old > new {
            self.sub(what, old - new);
        }
    }

    /// Returns the bytes of one use.
    #[must_use]
    pub fn get(&self, what: MemoryUse) -> u64 {
        self.counter(what).load(Ordering::Relaxed)
    }

    /// Returns the bytes of all uses.
    #[must_use]
    pub fn used(&self) -> u64 {
        MemoryUse::ALL.iter().map(|what| self.get(*what)).sum()
    }

    /// Returns the limit, bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit, bytes. Memory that already exceeds the new limit stays in use.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Reserves a part of the limit for clients' buffers. No other use may grow into this part.
    pub fn set_reserve(&self, bytes: u64) {
        self.reserve.store(bytes, Ordering::Relaxed);
    }

    /// Sets the limit of the memory that may be kept for open cuts.
    pub fn set_kept_bound(&self, bound: KeptBound) {
        assert!(bound.share > 0, "a share of the memory in use");
        self.kept_free.store(bound.free, Ordering::Relaxed);
        self.kept_share.store(bound.share, Ordering::Relaxed);
    }

    /// Returns whether the memory kept for open cuts exceeds its bound.
    #[must_use]
    pub fn is_kept_over_bound(&self) -> bool {
        let kept = self.get(MemoryUse::Kept);
        let share = || self.used() / self.kept_share.load(Ordering::Relaxed);
        kept > self.kept_free.load(Ordering::Relaxed) && kept > share()
    }

    /// Returns whether a use other than clients' buffers may grow by `bytes` within the limit. Clients' buffers count
    /// as the greater of the reserved part and the actual size.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        let clients = self.get(MemoryUse::Clients);
        let kept = self.reserve.load(Ordering::Relaxed).saturating_sub(clients);
        let used = self.used().saturating_add(kept);
        used.saturating_add(bytes) <= self.limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_add_up_and_the_limit_is_inclusive() {
        let account = MemoryAccount::new(100);
        for what in MemoryUse::ALL {
            account.add(what, 10);
        }
        account.change(MemoryUse::Log, 10, 4);
        account.change(MemoryUse::Undo, 10, 16);
        assert_eq!(account.used(), 80);
        assert!(account.has_room(20));
        assert!(!account.has_room(21));
        account.set_limit(50);
        assert!(!account.has_room(0));
    }

    #[test]
    fn nothing_else_grows_into_the_part_that_is_kept_for_clients() {
        let account = MemoryAccount::new(100);
        account.set_reserve(20);
        account.add(MemoryUse::Pages, 70);
        assert!(account.has_room(10) && !account.has_room(11));
        account.add(MemoryUse::Clients, 20);
        assert!(account.has_room(10), "the part is used now");
        account.add(MemoryUse::Clients, 5);
        assert!(account.has_room(5) && !account.has_room(6));
    }
}
