//! The cells of tables 2 and 3 on real media. The media take turns, and each cell runs in several rounds.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use perdura::{Db, Durability, NodeSettings, Rung, Ticket};
use perdura_base::Epoch;

use super::super::super::Lab;
use super::super::super::sample::Sample;
use super::super::super::scratch::Scratch;
use super::super::paper::{BLOCKS_KB, TABLE_3, USERS};
use super::super::tables::{bench, users};
use super::super::users::{WaitsFor, in_real_time};
use super::processes::LogNodes;
use super::slow_disk::{SlowDisk, Timing};
use crate::drive::{Log, LogCounters};
use crate::num::{count_f64, ratio};
use crate::tpcc::bench::TpccBench;

/// The mirror must be complete within this time.
const MIRRORED_WITHIN: Duration = Duration::from_secs(20);
/// The pause between two looks at the mirror.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The maximum number of runs of a cell until one of them has a durable transaction.
const TRIES_MAX: u32 = 10;
/// The sizes of the durable writes that are measured alone, KB.
pub const PROBES_KB: [u32; 2] = [4, 64];

/// The medium of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogMedium {
    /// The disk with the paper's time, one package after another.
    OneDisk,
    /// The disk with the paper's time, all packages of a sync at once.
    Pool,
    /// The memories of two nodes.
    Nodes,
}

impl LogMedium {
    /// All media.
    pub const ALL: [LogMedium; 3] = [LogMedium::OneDisk, LogMedium::Pool, LogMedium::Nodes];

    /// Returns the name of the medium in files and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogMedium::OneDisk => "one disk",
            LogMedium::Pool => "pool of disks",
            LogMedium::Nodes => "two nodes",
        }
    }

    fn timing(self, block_kb: u32) -> Timing {
        match self {
            LogMedium::OneDisk => Timing::One(block_kb),
            LogMedium::Pool => Timing::Pool(block_kb),
            LogMedium::Nodes => Timing::Free,
        }
    }
}

/// A cell of the tables.
#[derive(Debug, Clone)]
pub struct RealCell {
    /// The index in [`USERS`].
    pub user: usize,
    /// The index in [`BLOCKS_KB`].
    pub block: usize,
    /// The transactions a second in each round, by medium in the order of [`LogMedium::ALL`].
    pub per_s: Vec<[f64; 3]>,
}

impl RealCell {
    /// Returns the transactions a second on a medium.
    #[must_use]
    pub fn tps(&self, medium: LogMedium) -> Sample {
        Sample::of(self.per_s.iter().map(|round| round[at(medium)]))
    }

    /// Returns by how many percent the nodes are faster than a disk in a round.
    fn percent_in(&self, disk: LogMedium, round: usize) -> f64 {
        let per_s = self.per_s[round];
        100.0 * (ratio(per_s[at(LogMedium::Nodes)], per_s[at(disk)]) - 1.0)
    }

    /// Returns by how many percent the nodes are faster than a disk, a value for each round.
    #[must_use]
    pub fn percent(&self, disk: LogMedium) -> Sample {
        Sample::of((0..self.per_s.len()).map(|round| self.percent_in(disk, round)))
    }
}

fn at(medium: LogMedium) -> usize {
    let found = LogMedium::ALL.iter().position(|other| *other == medium);
    found.expect("it is one of all")
}

/// All measured cells.
#[derive(Debug)]
pub struct RealTables {
    /// The cells.
    pub cells: Vec<RealCell>,
    /// The mean think time.
    pub think: Duration,
    /// The duration of durable writes of [`PROBES_KB`] on the disk with the paper's time, milliseconds.
    pub probes_ms: [Sample; 2],
    /// The addresses of the nodes, and their process ids if they were started here.
    pub nodes: String,
}

impl RealTables {
    /// Returns the mean over all users of a value of the cells of one block, a value for each round.
    pub(super) fn mean_percent(&self, disk: LogMedium, block: usize) -> Sample {
        let cells = || self.cells.iter().filter(|cell| cell.block == block);
        let rounds = cells().map(|cell| cell.per_s.len()).min().unwrap_or(0);
        Sample::of((0..rounds).map(|round| {
            let sum = cells().map(|cell| cell.percent_in(disk, round)).sum();
            ratio(sum, count_f64(cells().count()))
        }))
    }

    /// Returns the median transactions a second of a cell.
    pub(super) fn per_s(&self, medium: LogMedium, user: usize, block: usize) -> Option<f64> {
        let mut cells = self.cells.iter();
        let cell = cells.find(|cell| cell.user == user && cell.block == block)?;
        Some(cell.tps(medium).median)
    }

    /// Starts the nodes, mounts the disk, and measures all cells.
    ///
    /// # Errors
    /// [`check`](super::check) finds something missing; errors of the disk, of the nodes and of the engine.
    pub fn measure(lab: &Lab<'_>) -> Result<RealTables> {
        super::check(lab)?;
        let scale = &lab.scale.memory_disk;
        let stand = RealStand::new(lab)?;
        let probes_ms = stand.probes(scale.real_rounds)?;
        let mut cells = Vec::new();
        for user in scale.real_users {
            lab.say(&format!("{} users on real media", USERS[*user]));
            for block in scale.real_blocks {
                let mut cell = RealCell {
                    user: *user,
                    block: *block,
                    per_s: Vec::new(),
                };
                for round in 0..scale.real_rounds {
                    let mut per_s = [0.0; 3];
                    for turn in 0..LogMedium::ALL.len() {
                        let number = (round + turn) % LogMedium::ALL.len();
                        per_s[number] = stand.run(LogMedium::ALL[number], &cell)?;
                    }
                    cell.per_s.push(per_s);
                }
                cells.push(cell);
            }
        }
        let nodes = stand.nodes_text();
        let think = stand.think;
        stand.close()?;
        Ok(RealTables {
            cells,
            think,
            probes_ms,
            nodes,
        })
    }
}

/// Returns the think time that follows from the first cell of table 3, if the paper's unit of time is a second.
fn think() -> Duration {
    Duration::from_secs_f64(f64::from(USERS[0]) / f64::from(TABLE_3[0][0]))
}

/// A database with TPC-C.
struct Loaded {
    bench: TpccBench,
    db: Db,
}

/// The databases, the disk and the nodes. Fields are dropped in this order.
struct RealStand<'a> {
    lab: &'a Lab<'a>,
    on_disk: Loaded,
    on_nodes: Loaded,
    disk: SlowDisk,
    nodes: LogNodes,
    think: Duration,
    /// The folder of the databases, without the slow disk's log.
    _folder: Scratch,
}

impl<'a> RealStand<'a> {
    fn new(lab: &'a Lab<'a>) -> Result<RealStand<'a>> {
        let nodes = LogNodes::start(lab.nodes_from()?)?;
        let disk = SlowDisk::new()?;
        let folder = lab.disk_folder();
        std::fs::create_dir_all(&folder)?;
        let folder = Scratch::within(&folder)?;
        lab.say("populating TPC-C twice");
        let on_nodes = side_on_nodes(lab, &nodes, &folder.dir)?;
        let on_disk = side_on_disk(lab, &disk, &folder.dir)?;
        Ok(RealStand {
            lab,
            on_disk,
            on_nodes,
            disk,
            nodes,
            think: think(),
            _folder: folder,
        })
    }

    /// Measures durable writes to the disk alone.
    fn probes(&self, rounds: usize) -> Result<[Sample; 2]> {
        let mut probes = [Sample::from(0.0); 2];
        for (probe, kb) in probes.iter_mut().zip(PROBES_KB) {
            self.disk.set(Timing::One(kb));
            let bytes = usize::try_from(kb)? << 10;
            *probe = Sample::of(self.disk.durable_write_ms(bytes, rounds)?);
        }
        self.disk.set(Timing::Free);
        Ok(probes)
    }

    /// Runs a cell on a medium. Returns the transactions a second. On busy cores, a short run may end before a transaction
    /// is durable. It is then repeated.
    fn run(&self, medium: LogMedium, cell: &RealCell) -> Result<f64> {
        for _ in 1..TRIES_MAX {
            if let Some(per_s) = self.try_run(medium, cell)? {
                return Ok(per_s);
            }
        }
        let last = self.try_run(medium, cell)?;
        last.with_context(|| {
            format!(
                "no transaction became durable on {} within {} s, {TRIES_MAX} times: leave the machine idle, or use --scale full",
                medium.name(),
                self.lab.scale.memory_disk.real_measured.as_secs_f64()
            )
        })
    }

    /// Runs a cell on a medium. Returns the transactions a second. `None`: no transaction became durable.
    fn try_run(&self, medium: LogMedium, cell: &RealCell) -> Result<Option<f64>> {
        let lab = self.lab;
        self.disk.set(medium.timing(BLOCKS_KB[cell.block]));
        let count = usize::try_from(USERS[cell.user])?;
        let measured = lab.scale.memory_disk.real_measured;
        let users = users(lab, count, self.think, measured);
        let side = match medium {
            LogMedium::Nodes => &self.on_nodes,
            LogMedium::OneDisk | LogMedium::Pool => &self.on_disk,
        };
        let mut load = side.bench.terminals(&side.db, 1, 0);
        let ended = match medium {
            LogMedium::Nodes => {
                let log = OnNodes(&side.db);
                let ended = in_real_time(&users, &log, WaitsFor::Log, &mut load)?;
                ensure!(
                    side.db.is_mirrored(),
                    "the nodes {} stopped being a mirror during a run; start both again",
                    self.nodes.addresses.join(", ")
                );
                ended
            }
            _ => in_real_time(&users, &side.db, WaitsFor::Log, &mut load)?,
        };
        self.disk.set(Timing::Free);
        Ok((ended.txns > 0).then(|| ended.per_s()))
    }

    fn nodes_text(&self) -> String {
        let addresses = self.nodes.addresses.join(" and ");
        match &self.nodes.pids()[..] {
            [] => format!("{addresses}, as named"),
            pids => format!(
                "{} processes of `perdura logd` here, {addresses}",
                pids.len()
            ),
        }
    }

    fn close(self) -> Result<()> {
        self.disk.set(Timing::Free);
        for side in [self.on_disk, self.on_nodes] {
            side.bench.site.close(side.db)?;
        }
        Ok(())
    }
}

/// Populates the database whose log is on the slow disk, and opens it again while syncs take their time: an open
/// measures its disk.
fn side_on_disk(lab: &Lab<'_>, disk: &SlowDisk, folder: &Path) -> Result<Loaded> {
    let mut bench = bench(lab, Some(&folder.join("on-disk")));
    let log = disk.folder().join("log");
    std::fs::create_dir(&log).with_context(|| format!("making {}", log.display()))?;
    bench.site.options.log_dirs = vec![log];
    let populated = bench.run()?.db;
    bench.site.close(populated)?;
    disk.set(Timing::One(BLOCKS_KB[0]));
    let db = bench.open_populated()?;
    disk.set(Timing::Free);
    Ok(Loaded { bench, db })
}

/// Populates the database whose log is in the nodes.
fn side_on_nodes(lab: &Lab<'_>, nodes: &LogNodes, folder: &Path) -> Result<Loaded> {
    let mut bench = bench(lab, Some(&folder.join("on-nodes")));
    let options = &mut bench.site.options;
    options.nodes = Some(nodes.connect(&folder.join("view"))?);
    options.node_settings = NodeSettings {
        groups: vec![nodes.addresses.join(",")],
        view: Some(folder.join("view")),
        one_machine: true,
        ..NodeSettings::default()
    };
    options.durability = Durability::Mirror;
    let db = bench.run()?.db;
    let begin = Instant::now();
    while !db.is_mirrored() {
        ensure!(
            begin.elapsed() < MIRRORED_WITHIN,
            "the nodes {} make no mirror within {} s: are both of this version of perdura, and without a key?",
            nodes.addresses.join(", "),
            MIRRORED_WITHIN.as_secs()
        );
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(Loaded { bench, db })
}

/// The log of a database whose commits count once two nodes have them.
struct OnNodes<'a>(&'a Db);

impl Log for OnNodes<'_> {
    fn durable(&self) -> Epoch {
        // The one thread of the users also collects the nodes' replies.
        self.0.ship();
        self.0.reached().at(Rung::Mirror)
    }

    fn wait(&self, epoch: Epoch) -> Result<()> {
        Ok(self.0.wait_at(Durability::Mirror, Ticket { epoch })?)
    }

    fn nudge(&self) {
        self.0.ship();
    }

    fn counters(&self) -> LogCounters {
        self.0.counters()
    }
}
