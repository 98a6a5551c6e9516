//! The sizes of the experiments of paper 002.

/// Pages of the paper's table.
const PAPER_PAGES: u64 = 436_000;
/// Updates between two of the paper's checkpoints.
const PAPER_INTERVAL: u64 = 40_000;
/// Updates behind the paper's last Δ.
const PAPER_TAIL: u64 = 100;
/// The least tail. A tail that is a part of a transaction would show nothing.
const TAIL_MIN: u64 = 10;

/// The sizes of the experiments.
#[derive(Debug, Clone, Copy)]
pub struct LogicalScale {
    /// The part of the paper's size on the modelled disk: one divided by this.
    pub divisor: u64,
    /// The divisor of the paper's size on a disk of this machine.
    pub own_divisor: u64,
    /// Memory as parts of the table, percent, ascending.
    pub caches: &'static [u64],
    /// Memory where the checkpoint interval varies, percent.
    pub interval_cache: u64,
    /// Checkpoint intervals as multiples of the first.
    pub intervals: &'static [u64],
    /// Restarts of which the median counts.
    pub repeats: usize,
}

impl LogicalScale {
    /// A tenth of the paper's size on the modelled disk, all of it on the machine's own.
    pub const FULL: LogicalScale = LogicalScale {
        divisor: 10,
        own_divisor: 1,
        caches: &[2, 7, 15, 30, 60],
        interval_cache: 15,
        intervals: &[1, 5, 10],
        repeats: 3,
    };

    /// A fortieth, and a tenth.
    pub const SMALL: LogicalScale = LogicalScale {
        divisor: 40,
        own_divisor: 10,
        ..LogicalScale::FULL
    };

    /// Only to try the machinery.
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
    /// One divided by this.
    pub divisor: u64,
}

impl Size {
    /// Returns the number of leaves of the table, about.
    pub fn pages(self) -> u64 {
        PAPER_PAGES / self.divisor
    }

    /// Returns the number of updates between two checkpoints.
    pub fn interval(self) -> u64 {
        PAPER_INTERVAL / self.divisor
    }

    /// Returns the number of updates behind the last Δ, which has a lower bound.
    pub fn tail(self) -> u64 {
        (PAPER_TAIL / self.divisor).max(TAIL_MIN)
    }

    /// Returns whether the targets apply to it. In a smaller table, the least batch of the writer, 16 pages, is too
    /// large a part of the pages that may be dirty.
    pub fn is_asked(self) -> bool {
        self.divisor <= 10
    }

    /// Returns whether it is the paper's own size.
    pub fn is_papers(self) -> bool {
        self.divisor == 1
    }
}
