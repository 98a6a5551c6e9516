//! The limits of what is removed of a collection or a string at once, and in one step.

/// The sizes that decide which removals a transaction makes itself and which it leaves to the background. The simulator
/// draws small ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrphanLimits {
    /// The most elements of a collection that is removed together with its header.
    pub at_once: usize,
    /// The number of rows of orphans in a table's partition that may wait for the background.
    pub debt_rows: usize,
    /// The most rows of orphans that one step of the background removes.
    pub step_rows: usize,
    /// The most pages of a string in a chain that is removed together with its key. Of a longer one, a step of the
    /// background frees this number of pages.
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
