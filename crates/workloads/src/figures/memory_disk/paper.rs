//! The results that paper 003 prints: formulas 3 and 4, tables 2 and 3.
//!
//! The formulas give the delay of a block of L KB in units of 0.1 ms. Formula 4 is about the memory disk, although
//! the paper prints the disk's symbol on its left side.

use crate::num::{count_f64, ratio};

/// A delay that grows linearly with the size of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Formula {
    /// The delay for each KB, in units of 0.1 ms.
    per_kb: f64,
    /// The delay for each block, in units of 0.1 ms.
    base: f64,
}

impl Formula {
    /// Formula 3: the delay of writing a block to the disk.
    pub const DISK: Formula = Formula {
        per_kb: 0.27,
        base: 66.0,
    };
    /// Formula 4: the delay of writing a block to the memory of a node.
    pub const MEMORY: Formula = Formula {
        per_kb: 0.064,
        base: 0.025,
    };

    /// Returns the delay of a block, milliseconds.
    #[must_use]
    pub fn ms(self, block_kb: u32) -> f64 {
        assert!(block_kb > 0, "a block has bytes");
        self.per_kb.mul_add(f64::from(block_kb), self.base) / 10.0
    }
}

/// Returns a block's delay on the disk, divided by its delay in memory. Both are computed by the paper's formulas.
#[must_use]
pub fn delay_ratio(block_kb: u32) -> f64 {
    Formula::DISK.ms(block_kb) / Formula::MEMORY.ms(block_kb)
}

/// The sizes of blocks in tables 2 and 3, KB.
pub const BLOCKS_KB: [u32; 5] = [4, 8, 16, 32, 64];
/// The numbers of users in tables 2 and 3.
pub const USERS: [u32; 5] = [100, 200, 300, 400, 500];
/// Table 2: transactions in a unit of time with the log on the disk, by users (rows) and sizes of blocks (columns).
pub const TABLE_2: [[u32; 5]; 5] = [
    [380, 434, 450, 471, 506],
    [762, 870, 896, 1206, 1208],
    [1151, 1291, 1390, 1415, 1524],
    [1528, 1598, 1673, 1737, 1895],
    [1873, 2187, 2184, 2289, 2409],
];
/// Table 3: transactions in a unit of time with the log in memory, by users (rows) and sizes of blocks (columns).
pub const TABLE_3: [[u32; 5]; 5] = [
    [426, 473, 485, 501, 528],
    [847, 942, 1062, 1209, 1284],
    [1275, 1402, 1488, 1537, 1603],
    [1701, 1823, 1836, 1906, 2018],
    [2104, 2309, 2298, 2413, 2536],
];
/// The average gains that the paper prints, by the size of a block.
pub const PRINTED_GAINS: [f64; 5] = [1.12, 1.09, 1.09, 1.06, 1.06];

/// Returns the gain of a cell: its value in table 3, divided by its value in table 2.
#[must_use]
pub fn gain(user: usize, block: usize) -> f64 {
    f64::from(TABLE_3[user][block]) / f64::from(TABLE_2[user][block])
}

/// Returns the mean gain for one size of block, over all numbers of users.
#[must_use]
pub fn mean_gain(block: usize) -> f64 {
    let gains = (0..USERS.len()).map(|user| gain(user, block));
    ratio(gains.sum(), count_f64(USERS.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formulas_give_the_ratios_of_the_papers_text_nearly() {
        assert!((Formula::DISK.ms(4) - 6.708).abs() < 1e-9);
        assert!((Formula::MEMORY.ms(4) - 0.0281).abs() < 1e-9);
        assert!(
            (delay_ratio(4) - 238.7).abs() < 0.05,
            "the paper prints 237"
        );
        assert!((delay_ratio(64) - 20.2).abs() < 0.05, "the paper prints 20");
    }

    #[test]
    fn the_averages_of_the_printed_tables_are_these() {
        for (block, mean) in [1.115, 1.091, 1.097, 1.061, 1.055].into_iter().enumerate() {
            assert!(
                (mean_gain(block) - mean).abs() < 0.0005,
                "{block}: {}",
                mean_gain(block)
            );
        }
        assert!((gain(0, 0) - 426.0 / 380.0).abs() < 1e-12);
        assert!((gain(3, 1) - 1823.0 / 1598.0).abs() < 1e-12);
    }
}
