//! Limits on the removal of collections and strings: how much is removed at once, and how much in one step.

/// The sizes that decide which removals a transaction makes itself and which it leaves to the background. The simulator
/// chooses small values at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrphanLimits {
    /// The most elements that a collection may have to be removed together with its header.
    pub at_once: usize,
    /// The number of orphans' rows in one partition of a table that may wait for the background.
    pub debt_rows: usize,
    /// The most orphans' rows that one background step removes.
    pub step_rows: usize,
    /// The most pages that a string's chain may have to be removed together with its key. One background step frees
    /// this number of pages of a longer chain.
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
