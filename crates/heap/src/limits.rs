//! Limits on the removal of collections and strings: the amount removed together with the key, and the amount that one
//! background step removes.

/// Limits that decide which removals a transaction makes at once and which it leaves to background steps. The simulator
/// chooses small values at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrphanLimits {
    /// The maximum number of elements that are removed together with their collection's header. A bigger collection
    /// becomes an orphan.
    pub at_once: usize,
    /// The number of rows of orphans above which each write of an element must first remove some of them. The rows of
    /// each table are counted separately in each partition.
    pub debt_rows: usize,
    /// The maximum number of rows of orphans that one background step removes.
    pub step_rows: usize,
    /// The maximum number of pages that are freed together with a string's key. If the string's chain is longer, each
    /// background step frees this number of its pages.
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
