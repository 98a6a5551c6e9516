//! The part of the log that is not durable yet: its size and its age, now and at their maximum since
//! the database was opened.
//!
//! Each maximum is updated just before the value can fall. The age is that of the oldest write. It grows until D, the
//! durable epoch, advances. The number of bytes grows until a write to the log's disks begins or ends.

use std::sync::atomic::{AtomicU64, Ordering};

use perdura_wal::Rung;

use crate::core::Core;

/// The maximum size and the maximum age of the part of the log that was not durable, since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct Worst {
    bytes: AtomicU64,
    age_ns: AtomicU64,
}

/// Returns the bytes of the log that are not on the log's disks yet.
pub(crate) fn unsynced_bytes(core: &Core) -> u64 {
    core.wal().waiting_bytes(Rung::Disk)
}

impl Worst {
    /// Returns the greatest number of bytes that were not on the disks.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the greatest age, in microseconds, of a write that was not on the disks.
    pub fn age_us(&self) -> u64 {
        self.age_ns.load(Ordering::Relaxed) / 1000
    }

    /// Updates the maxima with the present bytes and age.
    pub fn note(&self, core: &Core) {
        if core.wal().is_idle() {
            return;
        }
        let age_ns = core.age_ns(Rung::Disk);
        let before = self.age_ns.fetch_max(age_ns, Ordering::Relaxed);
        debug_assert!(before / 1000 <= self.age_us(), "the worst only grows");
        let bytes = unsynced_bytes(core);
        self.bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Runs `raise`, which may advance the durable epoch. Updates the maximum number of bytes before `raise` runs. If
    /// the durable epoch advances, updates the maximum age afterwards. It uses the age of the write that was the oldest
    /// waiting write before `raise`.
    pub fn watch<T>(&self, core: &Core, raise: impl FnOnce() -> T) -> T {
        let wal = core.wal();
        let Some(since_ns) = wal.waiting_since_ns(Rung::Disk) else {
            return raise();
        };
        let before = wal.durable(Rung::Disk);
        let bytes = unsynced_bytes(core);
        self.bytes.fetch_max(bytes, Ordering::Relaxed);
        let raised = raise();
        let after = wal.durable(Rung::Disk);
        assert!(before <= after, "D goes back from {before} to {after}");
        if after > before {
            let age_ns = core.clock().mono_ns().saturating_sub(since_ns);
            self.age_ns.fetch_max(age_ns, Ordering::Relaxed);
        }
        raised
    }
}
