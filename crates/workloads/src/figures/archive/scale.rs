//! The sizes of the experiments of paper 004.

use std::time::Duration;

use super::stand::changes;
use crate::tpcc::inputs::Scale as Warehouses;

/// The sizes of the experiments.
#[derive(Debug, Clone, Copy)]
pub struct ArchiveScale {
    /// The sizes of the images of figure 3, 10^6 bytes, ascending.
    pub images_mb: &'static [u64],
    /// The number of copies and restores of each image. The median counts.
    pub rounds: usize,
    /// The size of the image of figure 4, 10^6 bytes.
    pub pool_image_mb: u64,
    /// The size of the image of figure 1, 10^6 bytes.
    pub device_image_mb: u64,
    /// The number of row changes of figure 1.
    pub device_changes: u64,
    /// The size of TPC-C in figures 5 and 6.
    pub impact_warehouses: Warehouses,
    /// The number of rows of the update workload in figures 5 and 6.
    pub impact_rows: u64,
    /// The number of runs for each box of the plot.
    pub impact_runs: usize,
    /// The measured time of a run.
    pub impact_measured: Duration,
    /// The length of the warm-up at the start of a run. The warm-up is not measured.
    pub impact_warm_up: Duration,
}

impl ArchiveScale {
    /// The largest sizes that fit a machine of 24 GiB. The paper's images are 4 to 65 GB.
    pub const FULL: ArchiveScale = ArchiveScale {
        images_mb: &[64, 128, 256, 512, 1024, 2048],
        rounds: 5,
        pool_image_mb: 64,
        device_image_mb: 32,
        device_changes: changes(32),
        impact_warehouses: Warehouses {
            warehouses: 8,
            items: 100_000,
            customers: 3_000,
        },
        impact_rows: 1_000_000,
        impact_runs: 10,
        impact_measured: Duration::from_secs(20),
        impact_warm_up: Duration::from_secs(2),
    };

    /// Sizes for a few seconds per figure.
    pub const SMALL: ArchiveScale = ArchiveScale {
        images_mb: &[64, 128, 256, 512, 1024],
        rounds: 3,
        pool_image_mb: 32,
        device_image_mb: 16,
        device_changes: changes(16),
        impact_warehouses: Warehouses {
            warehouses: 4,
            items: 20_000,
            customers: 600,
        },
        impact_rows: 300_000,
        impact_runs: 3,
        impact_measured: Duration::from_millis(2_000),
        impact_warm_up: Duration::from_millis(500),
    };

    /// Sizes that only test the code of the experiment.
    pub const TINY: ArchiveScale = ArchiveScale {
        images_mb: &[1, 2],
        rounds: 1,
        pool_image_mb: 1,
        device_image_mb: 1,
        device_changes: 200,
        impact_warehouses: Warehouses {
            warehouses: 2,
            items: 100,
            customers: 30,
        },
        impact_rows: 2_000,
        impact_runs: 1,
        impact_measured: Duration::from_millis(60),
        impact_warm_up: Duration::from_millis(20),
    };
}
