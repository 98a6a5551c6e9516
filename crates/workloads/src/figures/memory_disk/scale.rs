//! How large the experiments of paper 003 are.

/// The sizes of the experiments.
#[derive(Debug, Clone, Copy)]
pub struct MemoryDiskScale {
    /// Blocks of each size that each medium takes.
    pub delay_rounds: usize,
    /// Losses that a simulation waits for.
    pub losses: u64,
}

impl MemoryDiskScale {
    /// Half a minute each.
    pub const FULL: MemoryDiskScale = MemoryDiskScale {
        delay_rounds: 5_000,
        losses: 40_000,
    };

    /// A few seconds each. Of 8,000 losses the standard error is 1.1 %.
    pub const SMALL: MemoryDiskScale = MemoryDiskScale {
        delay_rounds: 1_000,
        losses: 8_000,
    };

    /// Only to try the machinery.
    pub const TINY: MemoryDiskScale = MemoryDiskScale {
        delay_rounds: 5,
        losses: 20,
    };
}
