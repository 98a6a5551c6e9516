//! The sizes of the experiments of paper 002.

use perdura_base::num::to_u64;

use super::history::PAGE_BYTES;

/// The number of pages of the paper's table.
const PAPER_PAGES: u64 = 436_000;
/// The number of updates between two of the paper's checkpoints.
const PAPER_INTERVAL: u64 = 40_000;
/// The number of updates after the paper's last Δ record.
const PAPER_TAIL: u64 = 100;
/// The minimum number of updates after the last Δ record: a whole transaction. Fewer would not show an effect.
const TAIL_MIN: u64 = 10;

/// The sizes of the experiments.
#[derive(Debug, Clone, Copy)]
pub struct LogicalScale {
    /// The factor by which an experiment on the modelled disk is smaller than the paper's.
    pub divisor: u64,
    /// The factor by which an experiment on a disk of this machine is smaller than the paper's.
    pub own_divisor: u64,
    /// The sizes of memory in percent of the table, in ascending order.
    pub caches: &'static [u64],
    /// The size of memory in the experiment that varies the checkpoint interval, in percent of the table.
    pub interval_cache: u64,
    /// The checkpoint intervals as multiples of the shortest one.
    pub intervals: &'static [u64],
    /// The number of timed restarts for each crash and method. Their median is reported.
    pub repeats: usize,
}

impl LogicalScale {
    /// A tenth of the paper's size on the modelled disk, and the whole size on a disk of this machine.
    pub const FULL: LogicalScale = LogicalScale {
        divisor: 10,
        own_divisor: 1,
        caches: &[2, 7, 15, 30, 60],
        interval_cache: 15,
        intervals: &[1, 5, 10],
        repeats: 3,
    };

    /// A fortieth of the paper's size on the modelled disk, and a tenth on a disk of this machine.
    pub const SMALL: LogicalScale = LogicalScale {
        divisor: 40,
        own_divisor: 10,
        ..LogicalScale::FULL
    };

    /// Sizes that only test the code of the experiment.
    pub const TINY: LogicalScale = LogicalScale {
        divisor: 400,
        own_divisor: 400,
        caches: &[7, 60],
        interval_cache: 7,
        intervals: &[1, 2],
        repeats: 1,
    };
}

impl LogicalScale {
    /// Returns the size of the table on a disk of this machine, bytes.
    pub fn own_bytes(&self) -> u64 {
        let size = Size {
            divisor: self.own_divisor,
        };
        size.pages() * to_u64(PAGE_BYTES)
    }
}

/// A part of the paper's size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// The divisor of the paper's size.
    pub divisor: u64,
}

impl Size {
    /// Returns the approximate number of the table's leaves.
    pub fn pages(self) -> u64 {
        PAPER_PAGES / self.divisor
    }

    /// Returns the number of updates between two checkpoints.
    pub fn interval(self) -> u64 {
        PAPER_INTERVAL / self.divisor
    }

    /// Returns the number of updates after the last Δ record, at least [`TAIL_MIN`].
    pub fn tail(self) -> u64 {
        (PAPER_TAIL / self.divisor).max(TAIL_MIN)
    }

    /// Returns whether this is the paper's own size.
    pub fn is_papers(self) -> bool {
        self.divisor == 1
    }
}
