//! How much of a collection or a string goes away at once, and how much a step removes.

/// The sizes that decide what a transaction removes itself and what it leaves to the background. The
/// simulator draws small ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrphanLimits {
    /// A collection of up to so many elements goes away with its header.
    pub at_once: usize,
    /// Rows of orphans in a table's partition that may wait for the background.
    pub debt_rows: usize,
    /// Rows of orphans that one step of the background removes at most.
    pub step_rows: usize,
    /// A string in a chain of up to so many pages goes away with its key; of a longer one, a step of the
    /// background frees so many.
    pub chain_pages: usize,
}

impl Default for OrphanLimits {
    fn default() -> Self {
        OrphanLimits {
            at_once: 128,
            debt_rows: 16 * 1024,
            step_rows: 256,
            chain_pages: 1024,
        }
    }
}
