//! The sizes of the experiments of paper 003.

use std::time::Duration;

use crate::tpcc::inputs::Scale as Warehouses;

/// The sizes of the experiments.
#[derive(Debug, Clone, Copy)]
pub struct MemoryDiskScale {
    /// The number of blocks for each block size and each medium.
    pub delay_rounds: usize,
    /// The number of losses to simulate.
    pub losses: u64,
    /// The size of TPC-C in tables 2 and 3.
    pub warehouses: Warehouses,
    /// The virtual time of the cell that has the highest number of users. A cell with fewer users runs longer in
    /// proportion.
    pub virtual_time: Duration,
    /// The length of the runs in real time.
    pub real_time: Duration,
    /// The number of rounds of the measurements without injected delays. The median of the rounds is reported.
    pub found_rounds: usize,
    /// The number of runs of each cell on real media. Their median is reported.
    pub real_rounds: usize,
    /// The length of the measured time of a run on real media.
    pub real_measured: Duration,
    /// The measured numbers of users on real media, as indexes in the paper's table.
    pub real_users: &'static [usize],
    /// The measured sizes of blocks on real media, as indexes in the paper's table.
    pub real_blocks: &'static [usize],
}

impl MemoryDiskScale {
    /// Sizes with which each figure takes half a minute, and tables 2 and 3 together some minutes.
    pub const FULL: MemoryDiskScale = MemoryDiskScale {
        delay_rounds: 5_000,
        losses: 40_000,
        warehouses: Warehouses {
            warehouses: 8,
            items: 100_000,
            customers: 3_000,
        },
        virtual_time: Duration::from_secs(12),
        real_time: Duration::from_secs(5),
        found_rounds: 5,
        real_rounds: 5,
        real_measured: Duration::from_secs(5),
        real_users: &[0, 1, 2, 3, 4],
        real_blocks: &[0, 1, 2, 3, 4],
    };

    /// Sizes for a few seconds per figure. The standard error of 8,000 losses is 1.1 %.
    pub const SMALL: MemoryDiskScale = MemoryDiskScale {
        delay_rounds: 1_000,
        losses: 8_000,
        warehouses: Warehouses {
            warehouses: 4,
            items: 20_000,
            customers: 600,
        },
        virtual_time: Duration::from_secs(4),
        real_time: Duration::from_millis(1_500),
        found_rounds: 3,
        real_rounds: 5,
        real_measured: Duration::from_millis(1_000),
        real_users: &[0, 2, 4],
        real_blocks: &[0, 1, 2, 3, 4],
    };

    /// Sizes that only test the code of the experiment.
    pub const TINY: MemoryDiskScale = MemoryDiskScale {
        delay_rounds: 5,
        losses: 20,
        warehouses: Warehouses {
            warehouses: 2,
            items: 100,
            customers: 30,
        },
        virtual_time: Duration::from_millis(50),
        real_time: Duration::from_millis(50),
        found_rounds: 1,
        real_rounds: 1,
        real_measured: Duration::from_millis(200),
        real_users: &[0],
        real_blocks: &[0],
    };
}
