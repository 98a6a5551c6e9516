//! The sizes of all experiments.

use std::time::Duration;

use super::archive::scale::ArchiveScale;
use super::command::scale::TypedScale;
use super::logical::scale::LogicalScale;
use super::memory_disk::scale::MemoryDiskScale;

/// The transfer rate of the paper's disks, 10^6 bytes a second.
pub const PAPER_DISK_MBPS: u64 = 29;

/// The sizes of all experiments.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// The name of the scale.
    pub name: &'static str,
    /// The number of rows at the start of a history.
    pub rows: u64,
    /// The number of transactions between the checkpoint and the crash.
    pub txns: u64,
    /// The number of rows and the number of transactions of a history, if the CPU is the bottleneck of its restart. At
    /// the small scale, both numbers are larger than `rows` and `txns`, because such a restart is faster.
    pub cpu: (u64, u64),
    /// The number of repetitions of measurements in which the CPU is the bottleneck. The fastest is reported.
    pub repeats: usize,
    /// The number of repetitions of measurements from which costs are computed.
    pub cost_repeats: usize,
    /// The number of repetitions on slow disks. The fastest is reported.
    pub slow_repeats: usize,
    /// The compared counts of log disks.
    pub disks: &'static [usize],
    /// The number of points on the horizontal axis of figure 5. This axis shows the number of transactions.
    pub steps: u64,
    /// The slot sizes of figure 9.
    pub slots: &'static [usize],
    /// The length of the measured time of a run.
    pub measured: Duration,
    /// The length of the unmeasured time at the start of a run.
    pub warm_up: Duration,
    /// The sizes of paper 001.
    pub typed: TypedScale,
    /// The sizes of paper 002.
    pub logical: LogicalScale,
    /// The sizes of paper 003.
    pub memory_disk: MemoryDiskScale,
    /// The sizes of paper 004.
    pub archive: ArchiveScale,
}

impl Scale {
    /// The paper's sizes.
    pub const FULL: Scale = Scale {
        name: "full",
        rows: 1_000_000,
        txns: 600_000,
        cpu: (1_000_000, 600_000),
        repeats: 4,
        cost_repeats: 9,
        slow_repeats: 1,
        disks: &[1, 2, 3, 4, 6, 8],
        steps: 6,
        slots: &[64, 128, 256, 512, 1024, 2048],
        measured: Duration::from_millis(2500),
        warm_up: Duration::from_millis(700),
        typed: TypedScale::FULL,
        logical: LogicalScale::FULL,
        memory_disk: MemoryDiskScale::FULL,
        archive: ArchiveScale::FULL,
    };

    /// A fifth of the paper's sizes.
    pub const SMALL: Scale = Scale {
        name: "small",
        rows: 200_000,
        txns: 120_000,
        cpu: (300_000, 300_000),
        repeats: 7,
        cost_repeats: 9,
        slow_repeats: 2,
        disks: &[1, 2, 4, 6, 8],
        steps: 3,
        slots: &[64, 128, 256, 512, 1024, 2048],
        measured: Duration::from_millis(1200),
        warm_up: Duration::from_millis(500),
        typed: TypedScale::SMALL,
        logical: LogicalScale::SMALL,
        memory_disk: MemoryDiskScale::SMALL,
        archive: ArchiveScale::SMALL,
    };

    /// Sizes for tests of the code. At these sizes, the verdicts on the claims mean nothing.
    pub const TINY: Scale = Scale {
        name: "tiny",
        rows: 3_000,
        txns: 1_200,
        cpu: (3_000, 1_200),
        repeats: 1,
        cost_repeats: 1,
        slow_repeats: 1,
        disks: &[1, 2],
        steps: 1,
        slots: &[64, 256],
        measured: Duration::from_millis(60),
        warm_up: Duration::from_millis(20),
        typed: TypedScale::TINY,
        logical: LogicalScale::TINY,
        memory_disk: MemoryDiskScale::TINY,
        archive: ArchiveScale::TINY,
    };
}
