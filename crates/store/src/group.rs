//! The log records of one transaction.

use perdura_base::{CkptEpoch, PartitionSet};

/// Collects the records of one transaction and lays them out as a group payload.
#[derive(Default)]
pub struct GroupBuilder {}

impl GroupBuilder {
    /// An empty builder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything and keeps the buffers.
    pub fn clear(&mut self) {
        todo!()
    }

    /// Lays out the payload; empty if no page changed.
    pub fn finish(&mut self) -> &[u8] {
        todo!()
    }

    /// Whether no page changed so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        todo!()
    }

    /// The partitions with a record.
    #[must_use]
    pub fn partitions(&self) -> PartitionSet {
        todo!()
    }

    /// The highest tag; 0 when empty.
    #[must_use]
    pub fn tag_max(&self) -> CkptEpoch {
        todo!()
    }
}
