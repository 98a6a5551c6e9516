//! Before-images: rollback and the difference at commit.

use perdura_base::PartitionSet;

/// The undo of one transaction, over all the partitions it changed.
#[derive(Default)]
pub struct Undo {}

impl Undo {
    /// An empty undo.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything and keeps the buffers.
    pub fn clear(&mut self) {
        todo!()
    }

    /// Whether nothing was saved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        todo!()
    }

    /// Bytes held, for the memory account.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        todo!()
    }

    /// The partitions something was saved of.
    #[must_use]
    pub fn partitions(&self) -> PartitionSet {
        todo!()
    }
}
