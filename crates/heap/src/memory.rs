//! The account of memory by use. Writes are refused at the limit; reads and deletes are not.
//!
//! Each part adds its size; the sum is compared with the limit at the few places where memory grows. The counters are
//! independent and approximate: nothing is derived from two of them being read at one instant.

use std::sync::atomic::{AtomicU64, Ordering};

/// The use of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryUse {
    /// Pages of the heap that hold something.
    Pages,
    /// Hash and ordered indexes.
    Indexes,
    /// Before-images of running transactions.
    Undo,
    /// Copies of pages on their way to an image.
    Staging,
    /// Log blocks that are not written yet.
    Log,
    /// Buffers of clients: unfinished requests, queued transactions, replies and messages.
    Clients,
    /// Bytes that open cuts need of pages that have changed since.
    Kept,
    /// Passwords that wait to be tried, and the memory of trying one.
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

    /// Returns a word for reports.
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

/// The memory at which the kernel ends the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ceiling {
    /// Its size in bytes, swap included.
    pub bytes: u64,
    /// The file that sets it.
    pub set_by: String,
}

/// The bytes in use, by use, and the limit.
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
    /// The part of the limit that is kept for [`MemoryUse::Clients`].
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
    /// The divisor of the memory in use that gives the limit beyond `free`; above 0.
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

    /// Returns the account with the memory at which the kernel ends the process.
    #[must_use]
    pub fn with_ceiling(self, ceiling: Option<Ceiling>) -> Self {
        MemoryAccount { ceiling, ..self }
    }

    /// Returns the memory at which the kernel ends the process, if it is known.
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

    /// Adds bytes to a use.
    pub fn add(&self, what: MemoryUse, bytes: u64) {
        self.counter(what).fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts bytes of a use that were added before.
    pub fn sub(&self, what: MemoryUse, bytes: u64) {
        let before = self.counter(what).fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{what:?}: {before} - {bytes}");
    }

    /// Replaces an amount that was added before by another.
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

    /// Sets the limit, bytes. The bytes in use stay even if they exceed it.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Reserves a part of the limit for clients' buffers: no other use may grow into it.
    pub fn set_reserve(&self, bytes: u64) {
        self.reserve.store(bytes, Ordering::Relaxed);
    }

    /// Sets the limit of the memory that may be kept for open cuts.
    pub fn set_kept_bound(&self, bound: KeptBound) {
        assert!(bound.share > 0, "a share of the memory in use");
        self.kept_free.store(bound.free, Ordering::Relaxed);
        self.kept_share.store(bound.share, Ordering::Relaxed);
    }

    /// Returns whether more is kept for open cuts than is allowed.
    #[must_use]
    pub fn is_kept_over_bound(&self) -> bool {
        let kept = self.get(MemoryUse::Kept);
        let share = || self.used() / self.kept_share.load(Ordering::Relaxed);
        kept > self.kept_free.load(Ordering::Relaxed) && kept > share()
    }

    /// Returns whether `bytes` more, not of clients' buffers, stay within the limit. Buffers count as the part that is
    /// reserved for them, or as their size if that is more.
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
