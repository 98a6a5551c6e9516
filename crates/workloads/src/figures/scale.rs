//! The size of an experiment, and its sets of disks.

use std::time::Duration;

use super::archive::scale::ArchiveScale;
use super::command::scale::TypedScale;
use super::logical::scale::LogicalScale;
use super::memory_disk::scale::MemoryDiskScale;

/// The transfer rate of the paper's disks, 10^6 bytes a second.
pub const PAPER_DISK_MBPS: u64 = 29;

/// The size of an experiment.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Its name.
    pub name: &'static str,
    /// Rows at the begin.
    pub rows: u64,
    /// Transactions since the checkpoint.
    pub txns: u64,
    /// Rows and transactions where the CPU is the bottleneck. They are more than elsewhere, because it is faster.
    pub cpu: (u64, u64),
    /// Repetitions of the measurements where the CPU is the bottleneck. The fastest counts.
    pub repeats: usize,
    /// Repetitions of the measurements that costs are taken from.
    pub cost_repeats: usize,
    /// Repetitions on slow disks. The fastest counts.
    pub slow_repeats: usize,
    /// Numbers of disks.
    pub disks: &'static [usize],
    /// Steps of the number of transactions in figure 5.
    pub steps: u64,
    /// Slot sizes of figure 9.
    pub slots: &'static [usize],
    /// The measured time of a throughput.
    pub measured: Duration,
    /// The time of a run before its measured time.
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

    /// A fifth of them.
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

    /// A size that only tests the machinery. Its claims mean nothing.
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
