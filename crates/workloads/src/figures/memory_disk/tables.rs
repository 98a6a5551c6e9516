//! The runs of tables 2 and 3: TPC-C, by users and by blocks, with the paper's delays injected.
//!
//! A transaction's redo is padded to B KB and is sent in blocks of L KB. The user waits for each block: ceil(B / L)
//! delays of formula 3 or 4. The engine executes the transactions, page-addressed and in memory. The times of users,
//! waits and thinking pass in virtual time ([`users`](super::users)). The think time is fitted to one cell, 100 users
//! at 4 KB: there the gain must equal the one that the paper prints for that block. The other cells are predictions.

use std::time::Duration;

use anyhow::Result;
use perdura::{Db, Options};
use perdura_base::checksum::mix64;

use super::super::Lab;
use super::as_found::{AsFound, as_found};
use super::paper::{BLOCKS_KB, Formula, PRINTED_GAINS, USERS};
use super::users::{Ended, Executed, Users, WaitsFor, in_real_time, in_virtual_time};
use crate::drive::{Load, LogScheme, Site};
use crate::num::{f64_of, ratio};
use crate::process::thread_cpu;
use crate::tpcc::bench::TpccBench;
use crate::tpcc::inputs::{Kind, Mix};

/// B: the size to which a transaction's redo is padded, KB.
pub const REDO_KB: f64 = 10.0;
/// Other values of B.
pub const REDOS_KB: [f64; 9] = [0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0];
/// The gain to which the think time is fitted: the paper's gain for its smallest block.
pub const FITTED_GAIN: f64 = PRINTED_GAINS[0];
/// A fit ends when the gain differs from [`FITTED_GAIN`] by at most this.
const FITTED_WITHIN: f64 = 0.000_5;
/// The most trials of a fit.
const FITS_MAX: usize = 5;
/// After this number of transactions, a checkpoint is taken between two cells, so that the log is truncated.
const CHECKPOINT_EVERY: u64 = 100_000;

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
    fn first(think: Duration) -> Cell {
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
    fn blocks(&self) -> f64 {
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
fn blocks(redo_kb: f64, block_kb: u32) -> f64 {
    assert!(redo_kb > 0.0, "a transaction has redo");
    (redo_kb / f64::from(block_kb)).ceil()
}

/// Returns the gain in closed form: that of users with this think time, if execution takes no time.
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

/// The results of one cell with both media.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// The result with the log on the disk.
    pub disk: Ended,
    /// The result with the log in memory.
    pub memory: Ended,
}

impl Pair {
    /// Returns the throughput with the log in memory, divided by that with the log on the disk.
    #[must_use]
    pub fn gain(&self) -> f64 {
        ratio(self.memory.per_s(), self.disk.per_s())
    }
}

/// The results of a cell with another value of B.
#[derive(Debug, Clone, Copy)]
pub struct Varied {
    /// B, KB.
    pub redo_kb: f64,
    /// L, KB.
    pub block_kb: u32,
    /// The results at 100 users.
    pub pair: Pair,
}

/// All results that tables 2 and 3 consist of.
#[derive(Debug)]
pub struct Tables {
    /// The fitted think time.
    pub think: Duration,
    /// The think time that is fitted if users do not wait for transactions that change nothing.
    pub think_of_writers: Duration,
    /// The results of the cells, by users and then by blocks.
    pub cells: [[Pair; 5]; 5],
    /// The results with other values of B, by B and L.
    pub varied: Vec<Varied>,
    /// The results of the fitted cell in real time.
    pub real: Pair,
    /// The results without injected delays.
    pub found: AsFound,
    /// The number of bytes that a transaction really logged on average.
    pub logged_bytes: f64,
    /// The mean time of executing a transaction, microseconds.
    pub executed_us: f64,
}

/// A database with TPC-C.
struct Stand<'a> {
    lab: &'a Lab<'a>,
    bench: TpccBench,
    db: Db,
    /// The number of transactions since the last checkpoint.
    since: u64,
    executed: u64,
    busy: Duration,
    /// The number of transactions whose bytes were measured, and the number of those bytes.
    sized: (u64, u64),
}

impl Tables {
    /// Runs and measures everything that the tables consist of.
    ///
    /// # Errors
    /// Errors of the engine and of the data folder's disk.
    pub fn measure(lab: &Lab<'_>) -> Result<Tables> {
        lab.say("populating TPC-C");
        let mut stand = Stand::new(lab)?;
        lab.say("fitting the think time to one cell");
        let think = stand.fit(true)?;
        let think_of_writers = stand.fit(false)?;
        let first = Cell::first(think);
        let mut cells = Vec::new();
        for users in USERS {
            lab.say(&format!("{users} users"));
            let mut row = Vec::new();
            for block_kb in BLOCKS_KB {
                row.push(stand.pair(Cell {
                    users,
                    block_kb,
                    ..first
                })?);
            }
            cells.push([row[0], row[1], row[2], row[3], row[4]]);
        }
        lab.say("other sizes of the redo");
        let mut varied: Vec<Varied> = Vec::new();
        for redo_kb in REDOS_KB {
            for block_kb in BLOCKS_KB {
                let cell = Cell {
                    redo_kb,
                    block_kb,
                    ..first
                };
                // A cell with an equal number of blocks has equal waits, so its result is used again.
                let is_same = |other: &&Varied| {
                    other.block_kb == block_kb && blocks(other.redo_kb, block_kb) == cell.blocks()
                };
                let pair = match varied.iter().find(is_same) {
                    Some(same) => same.pair,
                    None => stand.pair(cell)?,
                };
                varied.push(Varied {
                    redo_kb,
                    block_kb,
                    pair,
                });
            }
        }
        lab.say("the fitted cell in real time");
        let real = Pair {
            disk: stand.in_real_time(first)?,
            memory: stand.in_real_time(Cell {
                medium: Formula::MEMORY,
                ..first
            })?,
        };
        let executed_us = ratio(1e6 * stand.busy.as_secs_f64(), f64_of(stand.executed));
        let logged_bytes = ratio(f64_of(stand.sized.1), f64_of(stand.sized.0));
        stand.db.abandon();
        Ok(Tables {
            think,
            think_of_writers,
            cells: [cells[0], cells[1], cells[2], cells[3], cells[4]],
            varied,
            real,
            found: as_found(lab, think)?,
            logged_bytes,
            executed_us,
        })
    }
}

/// Returns TPC-C in memory or, if a directory is given, in that directory.
pub(super) fn bench(lab: &Lab<'_>, dir: Option<&std::path::Path>) -> TpccBench {
    let warehouses = lab.scale.memory_disk.warehouses;
    let mut options = Options::new(dir.unwrap_or_else(|| "tpcc".as_ref()));
    options.partitions = warehouses.warehouses.next_power_of_two();
    options.segment_bytes = 16 << 20;
    TpccBench {
        site: Site::new(options, dir.is_none(), LogScheme::Differential),
        scale: warehouses,
        mix: Mix::default(),
        seed: lab.seed,
        drive: None,
        own_dates: false,
        digest: false,
    }
}

/// Returns `count` users with the mean think time `think`. They have the lab's seed, so they are the same for every
/// medium.
pub(super) fn users(lab: &Lab<'_>, count: usize, think: Duration, measured: Duration) -> Users {
    Users {
        count,
        think,
        seed: mix64(lab.seed),
        warm_up: think.mul_f64(2.0),
        measured,
    }
}

impl<'a> Stand<'a> {
    fn new(lab: &'a Lab<'a>) -> Result<Stand<'a>> {
        let bench = bench(lab, None);
        let db = bench.run()?.db;
        Ok(Stand {
            lab,
            bench,
            db,
            since: 0,
            executed: 0,
            busy: Duration::ZERO,
            sized: (0, 0),
        })
    }

    /// Fits the think time: first by the closed form, then by the cell's gain.
    fn fit(&mut self, readers_wait: bool) -> Result<Duration> {
        let mut think = closed_think(FITTED_GAIN, REDO_KB, BLOCKS_KB[0]);
        for _ in 0..FITS_MAX {
            let gain = self
                .pair(Cell {
                    readers_wait,
                    ..Cell::first(think)
                })?
                .gain();
            if (gain - FITTED_GAIN).abs() < FITTED_WITHIN {
                break;
            }
            // The gain minus 1 is the time of waiting divided by the rest of the cycle, which is mostly thinking.
            let factor = (gain - 1.0) / (FITTED_GAIN - 1.0);
            think = think.mul_f64(factor.clamp(0.5, 2.0));
        }
        Ok(think)
    }

    /// Runs a cell on both media.
    fn pair(&mut self, cell: Cell) -> Result<Pair> {
        let mut on = |medium| self.in_virtual_time(Cell { medium, ..cell });
        Ok(Pair {
            disk: on(Formula::DISK)?,
            memory: on(Formula::MEMORY)?,
        })
    }

    fn in_virtual_time(&mut self, cell: Cell) -> Result<Ended> {
        if self.since >= CHECKPOINT_EVERY {
            self.db.checkpoint()?;
            self.since = 0;
        }
        // Fewer users run for longer, so that all cells have about as many transactions.
        let most = f64::from(USERS[USERS.len() - 1]);
        let longer = most / f64::from(cell.users);
        let measured = self.lab.scale.memory_disk.virtual_time.mul_f64(longer);
        let users = users(self.lab, usize::try_from(cell.users)?, cell.think, measured);
        let wait = cell.wait();
        let mut load = self.bench.terminals(&self.db, 1, 0);
        let (executed, busy, sized) = (&mut self.executed, &mut self.busy, &mut self.sized);
        let before = *executed;
        let ended = in_virtual_time(&users, self.lab.cores, || {
            // The CPU time is measured and not the wall time, which would include other work on the core.
            let begin = thread_cpu();
            let submitted = load.step()?;
            let took = thread_cpu().saturating_sub(begin);
            *executed += 1;
            *busy += took;
            if let Some(bytes) = submitted.log_bytes {
                *sized = (sized.0 + 1, sized.1 + bytes);
            }
            let reads = [Kind::OrderStatus.index(), Kind::StockLevel.index()];
            let has_redo = !submitted.aborted && !reads.contains(&submitted.kind);
            let wait = match cell.readers_wait || has_redo {
                true => wait,
                false => Duration::ZERO,
            };
            Ok(Executed { took, wait })
        })?;
        self.since += *executed - before;
        Ok(ended)
    }

    fn in_real_time(&mut self, cell: Cell) -> Result<Ended> {
        let measured = self.lab.scale.memory_disk.real_time;
        let users = users(self.lab, usize::try_from(cell.users)?, cell.think, measured);
        let mut load = self.bench.terminals(&self.db, 1, 0);
        in_real_time(&users, &self.db, WaitsFor::Delay(cell.wait()), &mut load)
    }
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
