//! Counts the reads of a scanned stream.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of unit reads. A unit is a sequence of blocks (module `unit`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnitReads {
    /// The number of reads. Each reads a whole unit.
    pub reads: u64,
    /// The bytes read, including the headers of blocks.
    pub bytes: u64,
}

/// The number of unit reads, and the number of bytes read. Several threads update the two numbers.
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
