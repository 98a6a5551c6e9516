//! How far the log's disks are behind, now and at worst.
//!
//! The worst is noted where it is reached: the age of the oldest write grows until D advances, and the bytes until a
//! write of the log begins or ends.

use std::sync::atomic::{AtomicU64, Ordering};

use perdura_device::Clock;
use perdura_wal::Rung;

use crate::db::Db;
use crate::shared::Shared;

/// The most that the disks were behind since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct Worst {
    bytes: AtomicU64,
    age_ns: AtomicU64,
}

impl Worst {
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn age_us(&self) -> u64 {
        self.age_ns.load(Ordering::Relaxed) / 1000
    }
}

impl Shared {
    /// Bytes of blocks that are not on the log's disks.
    pub fn unsynced_bytes(&self) -> u64 {
        self.core.wal().waiting_bytes(Rung::Disk)
    }

    /// Notes how far the disks are behind now.
    pub fn note_behind(&self) {
        if self.core.wal().is_idle() {
            return;
        }
        let age_ns = self.core.age_ns(Rung::Disk);
        self.worst.age_ns.fetch_max(age_ns, Ordering::Relaxed);
        let bytes = self.unsynced_bytes();
        self.worst.bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Runs what may raise D, and notes how old the oldest write was when it had.
    pub fn watch_behind<T>(&self, raise: impl FnOnce() -> T) -> T {
        let wal = self.core.wal();
        let Some(since_ns) = wal.waiting_since_ns(Rung::Disk) else {
            return raise();
        };
        let before = wal.durable(Rung::Disk);
        let bytes = self.unsynced_bytes();
        self.worst.bytes.fetch_max(bytes, Ordering::Relaxed);
        let raised = raise();
        let after = wal.durable(Rung::Disk);
        assert!(before <= after, "D goes back from {before} to {after}");
        if after > before {
            let age_ns = self.clock.mono_ns().saturating_sub(since_ns);
            self.worst.age_ns.fetch_max(age_ns, Ordering::Relaxed);
        }
        raised
    }
}

impl Db {
    /// Returns whether accepted writes wait for a log that cannot be written, because its disk is full or fails.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.shared.core.wal().is_stuck()
    }

    /// Returns whether the log's disk was full when it was written or extended last.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.shared.core.wal().is_disk_full()
    }
}
