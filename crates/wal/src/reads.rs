//! Reads of a scanned stream, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Reads of units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnitReads {
    /// The number of reads. One takes a whole unit.
    pub reads: u64,
    /// The bytes read, with the headers of blocks.
    pub bytes: u64,
}

/// Reads that several threads count.
#[derive(Default)]
pub(crate) struct CountedReads {
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl CountedReads {
    /// Counts a read.
    pub fn note(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the reads so far.
    pub fn so_far(&self) -> UnitReads {
        UnitReads {
            reads: self.reads.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}
