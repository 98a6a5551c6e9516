//! The sizes of the experiments of paper 002.

/// The number of pages of the paper's table.
const PAPER_PAGES: u64 = 436_000;
/// The number of updates between two of the paper's checkpoints.
const PAPER_INTERVAL: u64 = 40_000;
/// The number of updates behind the paper's last Δ record.
const PAPER_TAIL: u64 = 100;
/// The least number of updates behind the last Δ record: a whole transaction. Fewer would not show an effect.
const TAIL_MIN: u64 = 10;

/// The sizes of the experiments.
#[derive(Debug, Clone, Copy)]
pub struct LogicalScale {
    /// The paper's size is divided by this on the modelled disk.
    pub divisor: u64,
    /// The paper's size is divided by this on a disk of this machine.
    pub own_divisor: u64,
    /// The sizes of memory as parts of the table, percent, ascending.
    pub caches: &'static [u64],
    /// The size of memory for the varied checkpoint intervals, percent of the table.
    pub interval_cache: u64,
    /// The checkpoint intervals as multiples of the shortest one.
    pub intervals: &'static [u64],
    /// The number of restarts. The median counts.
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

/// A part of the paper's size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// The paper's size is divided by this.
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

    /// Returns the number of updates behind the last Δ record, at least [`TAIL_MIN`].
    pub fn tail(self) -> u64 {
        (PAPER_TAIL / self.divisor).max(TAIL_MIN)
    }

    /// Returns whether the targets apply to this size. In a smaller table, the writer's smallest batch of 16 pages is
    /// too large a part of the pages that may be dirty.
    pub fn is_asked(self) -> bool {
        self.divisor <= 10
    }

    /// Returns whether it is the paper's own size.
    pub fn is_papers(self) -> bool {
        self.divisor == 1
    }
}
