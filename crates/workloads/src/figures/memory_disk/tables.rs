//! The runs of tables 2 and 3: TPC-C, by users and by blocks, with the paper's delays injected.
//!
//! A transaction's redo is padded to B KB and is sent in blocks of L KB. The user waits for each block: ceil(B / L)
//! delays of formula 3 or 4. The engine executes the transactions, page-addressed and in memory. Waits and think times
//! pass on a virtual clock ([`users`](super::users)). The think time is fitted to one cell, 100 users at 4 KB, so that
//! its gain equals the gain that the paper prints for 4 KB. The other cells are predictions.

use std::time::Duration;

use anyhow::Result;
use perdura::{Db, Options};
use perdura_base::checksum::mix64;

use super::super::Lab;
use super::super::sample::Sample;
use super::as_found::{AsFound, as_found};
use super::cell::{Cell, FITTED_GAIN, REDO_KB, blocks, closed_think};
use super::paper::{BLOCKS_KB, Formula, USERS};
use super::users::{Ended, Executed, Users, WaitsFor, in_real_time, in_virtual_time};
use crate::drive::{Load, LogScheme, Site};
use crate::num::{f64_of, ratio};
use crate::process::thread_cpu;
use crate::tpcc::bench::TpccBench;
use crate::tpcc::inputs::{Kind, Mix};

/// The values of B at which the gain is measured, to show how it depends on B, KB.
pub const REDOS_KB: [f64; 9] = [0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0];
/// A fit ends when the gain differs from [`FITTED_GAIN`] by less than this.
const FITTED_WITHIN: f64 = 0.000_5;
/// The indexes in [`BLOCKS_KB`] of two cells that also run in real time: the fitted cell, and a cell at 16 KB.
const REAL_BLOCKS: [usize; 2] = [0, 2];
/// The most rounds of a cell in real time.
const REAL_ROUNDS: usize = 3;
/// The most trials of a fit.
const FITS_MAX: usize = 5;
/// The minimum number of transactions between two checkpoints. A checkpoint is taken before a cell, and truncates the
/// log.
const CHECKPOINT_EVERY: u64 = 100_000;

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

    /// Returns by how many percent the throughput is higher with the log in memory than with the log on the disk.
    #[must_use]
    pub fn percent(&self) -> f64 {
        100.0 * (self.gain() - 1.0)
    }
}

/// The results of a cell of 100 users in real time.
#[derive(Debug, Clone)]
pub struct InRealTime {
    /// The index of the cell's block size in [`BLOCKS_KB`].
    pub block: usize,
    /// The results in each round.
    pub rounds: Vec<Pair>,
}

impl InRealTime {
    /// Returns what `of` computes from each round.
    #[must_use]
    pub fn sample(&self, of: impl Fn(&Pair) -> f64) -> Sample {
        Sample::of(self.rounds.iter().map(of))
    }
}

/// The results of a cell for one of the values [`REDOS_KB`] of B.
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
    /// The results for the values [`REDOS_KB`] of B, by B and then by L.
    pub varied: Vec<Varied>,
    /// The results in real time of the fitted cell, and of a cell that is not fitted.
    pub real: [InRealTime; 2],
    /// The results without injected delays.
    pub found: AsFound,
    /// The mean number of bytes that the engine logged for a transaction, without padding to B.
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
    /// The number of transactions whose log bytes were measured, and the sum of these log bytes.
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
        lab.say("two cells in real time");
        let [fitted, predicted] = REAL_BLOCKS;
        let real = [
            stand.in_real_time(first, fitted)?,
            stand.in_real_time(first, predicted)?,
        ];
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

    /// Runs a cell in real time. It is `first` with the block size `BLOCKS_KB[block]`. The media take turns.
    fn in_real_time(&mut self, first: Cell, block: usize) -> Result<InRealTime> {
        let scale = &self.lab.scale.memory_disk;
        let users = users(
            self.lab,
            usize::try_from(first.users)?,
            first.think,
            scale.real_time,
        );
        let run = |medium| {
            let block_kb = BLOCKS_KB[block];
            let cell = Cell {
                block_kb,
                medium,
                ..first
            };
            let mut load = self.bench.terminals(&self.db, 1, 0);
            in_real_time(&users, &self.db, WaitsFor::Delay(cell.wait()), &mut load)
        };
        let mut rounds = Vec::new();
        for round in 0..scale.found_rounds.min(REAL_ROUNDS) {
            let early = if round % 2 == 0 {
                Some(run(Formula::DISK)?)
            } else {
                None
            };
            let memory = run(Formula::MEMORY)?;
            let disk = early.map_or_else(|| run(Formula::DISK), Ok)?;
            rounds.push(Pair { disk, memory });
        }
        Ok(InRealTime { block, rounds })
    }
}

#[cfg(test)]
pub(super) mod by_hand {
    use super::super::as_found::Found;
    use super::super::paper::{TABLE_2, TABLE_3};
    use super::*;

    /// Returns the results of a cell with these throughputs.
    pub fn pair(disk: u32, memory: u32) -> Pair {
        let of = |txns: u32| Ended {
            txns: u64::from(txns),
            seconds: 1.0,
        };
        Pair {
            disk: of(disk),
            memory: of(memory),
        }
    }

    /// Returns the paper's tables. Without injected delays, the gain is 8 %.
    pub fn as_paper() -> Tables {
        let of = |user: usize, block: usize| pair(TABLE_2[user][block], TABLE_3[user][block]);
        let real = |block| InRealTime {
            block,
            rounds: vec![of(0, block); 3],
        };
        let found = |users, thinks| Found {
            users,
            thinks,
            per_s: [vec![100.0; 3], vec![108.0; 3]],
            latency_us: Default::default(),
        };
        Tables {
            think: Duration::from_millis(167),
            think_of_writers: Duration::from_millis(150),
            cells: std::array::from_fn(|user| std::array::from_fn(|block| of(user, block))),
            varied: Vec::new(),
            real: REAL_BLOCKS.map(real),
            found: AsFound {
                folder: String::new(),
                found: vec![found(100, true), found(500, false)],
            },
            logged_bytes: 500.0,
            executed_us: 50.0,
        }
    }
}
