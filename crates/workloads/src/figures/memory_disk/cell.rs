//! A cell of tables 2 and 3: its settings, and its gain in closed form.

use std::time::Duration;

use super::paper::{BLOCKS_KB, Formula, PRINTED_GAINS, USERS};

/// B: the size to which a transaction's redo is padded, KB.
pub const REDO_KB: f64 = 10.0;
/// The gain to which the think time is fitted: the paper's gain for its smallest block.
pub const FITTED_GAIN: f64 = PRINTED_GAINS[0];

/// The settings of one cell of a table, or of a variation of a cell.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// The number of users.
    pub users: u32,
    /// L, KB.
    pub block_kb: u32,
    /// B, KB.
    pub redo_kb: f64,
    /// The medium of the log.
    pub medium: Formula,
    /// The mean think time.
    pub think: Duration,
    /// True if a user also waits for a transaction that changed nothing.
    pub readers_wait: bool,
}

impl Cell {
    /// Returns the cell to which the think time is fitted, with the log on the disk.
    pub(super) fn first(think: Duration) -> Cell {
        Cell {
            users: USERS[0],
            block_kb: BLOCKS_KB[0],
            redo_kb: REDO_KB,
            medium: Formula::DISK,
            think,
            readers_wait: true,
        }
    }

    /// Returns the number of blocks of a transaction's redo.
    pub(super) fn blocks(&self) -> f64 {
        blocks(self.redo_kb, self.block_kb)
    }

    /// Returns the time that a user waits for the redo of a transaction.
    #[must_use]
    pub fn wait(&self) -> Duration {
        let ms = self.blocks() * self.medium.ms(self.block_kb);
        Duration::from_secs_f64(ms / 1e3)
    }
}

/// Returns the number of blocks of a transaction's redo.
pub(super) fn blocks(redo_kb: f64, block_kb: u32) -> f64 {
    assert!(redo_kb > 0.0, "a transaction has redo");
    (redo_kb / f64::from(block_kb)).ceil()
}

/// Returns the gain in closed form, for users with this think time. It assumes that execution takes no time.
#[must_use]
pub fn closed_gain(think: Duration, redo_kb: f64, block_kb: u32) -> f64 {
    let blocks = blocks(redo_kb, block_kb);
    let cycle = |medium: Formula| think.as_secs_f64() * 1e3 + blocks * medium.ms(block_kb);
    cycle(Formula::DISK) / cycle(Formula::MEMORY)
}

/// Returns the think time at which the closed form gives this gain.
#[must_use]
pub fn closed_think(gain: f64, redo_kb: f64, block_kb: u32) -> Duration {
    assert!(gain > 1.0, "memory gains");
    let blocks = blocks(redo_kb, block_kb);
    let (disk, memory) = (Formula::DISK.ms(block_kb), Formula::MEMORY.ms(block_kb));
    let ms = blocks * gain.mul_add(-memory, disk) / (gain - 1.0);
    Duration::from_secs_f64(ms / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redo_goes_out_in_whole_blocks() {
        assert_eq!(
            [4, 8, 16, 64].map(|block| blocks(REDO_KB, block)),
            [3.0, 2.0, 1.0, 1.0]
        );
        assert_eq!(
            [blocks(0.5, 4), blocks(4.0, 4), blocks(4.5, 4)],
            [1.0, 1.0, 2.0]
        );
        let cell = Cell::first(Duration::ZERO);
        assert!((cell.wait().as_secs_f64() - 3.0 * 6.708e-3).abs() < 1e-9);
    }

    #[test]
    fn the_closed_form_has_the_papers_gains_at_a_think_time_of_167_ms() {
        let think = closed_think(FITTED_GAIN, REDO_KB, 4);
        assert_eq!(think.as_millis(), 166);
        for (block_kb, gain) in [(4, 1.12), (8, 1.081), (16, 1.041), (64, 1.047)] {
            let ours = closed_gain(think, REDO_KB, block_kb);
            assert!((ours - gain).abs() < 0.001, "{block_kb} KB: {ours}");
        }
    }
}
