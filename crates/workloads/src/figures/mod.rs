//! Reproduces the papers' figures. Each figure has data, a plot, and a verdict on each claim.
//!
//! | module | one idea |
//! |---|---|
//! | [`volume`] | the bytes that each scheme logs (section 5.2) |
//! | [`log_time`] | figure 5: log processing time by transactions since the checkpoint |
//! | [`disks`] | figure 6: log processing time and its parts by log disks |
//! | [`aborts`] | figure 7: log processing time by abort ratio |
//! | [`total`] | figure 8: the whole restart |
//! | [`throughput`] | figure 9: transactions a second |
//! | [`command`] | the figures of paper 001 |
//! | [`logical`] | the figures of paper 002 |
//! | [`memory_disk`] | the figures of paper 003 |
//! | [`archive`] | the figures of paper 004 |
//! | `scratch` | a directory that is removed with its experiment |
//! | `space` | the space on the devices of experiments |
//! | [`data`] | the space that papers 002 and 003 need |
//! | [`costs`] | the costs of playing records if the CPU is the bottleneck, measured and modelled |
//! | [`lab`] | disks, histories with a crash at the end, restarts |
//! | [`real`] | the experiments of paper 000 on directories of real disks |
//! | [`scale`] | the size of an experiment |
//! | [`figure`] | a reproduced figure, and its files |
//! | [`mod@file`] | the JSON file of a figure, and its picture drawn again |
//! | [`claim`] | a claim, its result and its verdict |
//! | [`paper`] | a value that a paper states |
//! | [`sample`] | a value of ours, with its spread |
//! | [`recorded`] | the verdicts of an earlier run |
//! | [`plot`] | lines, stacked bars and boxes as SVG |
//! | [`boxes`] | quartiles |
//! | [`points`] | the paper's points in a picture |
//! | `stated` | the values that the papers state for places in the pictures |
//! | `panel` | drawing a panel |
//! | `axis` | linear and logarithmic scales |
//! | `svg` | the shapes of which plots are made |
//! | [`schedule`] | predictions for more cores than this machine has, by list scheduling |
//!
//! # Source
//! *Differential Logging* (000), section 5.
//! *Rethinking Main Memory OLTP Recovery* (001), section V.
//! *Implementing Performance Competitive Logical Recovery* (002), section 5.
//! *A Database Redo Log System Based on Virtual Memory Disk* (003), sections 3.2 and 4.2.
//! *Single-pass restore after a media failure* (004), section 4.
//!
//! # Deviations
//! Disks are modelled in front of memory, so that one to eight disks behave the same on every machine. They run at two
//! rates. One is the paper's 29 MB/s. The other is as fast, compared with this machine's CPU, as 29 MB/s was compared
//! with the paper's CPU. The results for four and eight cores are computed by a model, and marked as such. PL2P-part is
//! a physical replay that divides the pages among players. It is shown beside the paper's schemes because it is the
//! design that one would build today.

pub mod aborts;
pub mod archive;
mod axis;
pub mod boxes;
pub mod claim;
pub mod command;
pub mod costs;
pub mod data;
pub mod disks;
pub mod figure;
pub mod file;
pub mod lab;
pub mod log_time;
pub mod logical;
pub mod memory_disk;
mod panel;
pub mod paper;
pub mod plot;
pub mod points;
pub mod real;
pub mod recorded;
pub mod sample;
pub mod scale;
pub mod schedule;
mod scratch;
mod space;
mod stated;
mod svg;
pub mod throughput;
pub mod total;
pub mod volume;

use std::cell::OnceCell;
use std::path::PathBuf;

use anyhow::{Context, Result};
use perdura_wal::scheme::Scheme;

pub use claim::{Better, Bounds, Claim, Finding, Verdict};
pub use figure::Figure;
pub use file::{File, redraw};
pub use paper::Paper;
pub use sample::Sample;
pub use scale::Scale;

use self::archive::{copying, devices, impact, memory};
use self::command::stand::Workload;
use self::command::sweep::Sweep;
use self::command::{bytes, distributed, rates, replay, replicas, size};
use self::costs::Costs;
use self::logical::stand::LogicalStand;
use self::logical::{detail, dirty, interval, prefetch, records, redo_time};
use self::memory_disk::real_nodes::processes::NodesFrom;
use self::memory_disk::real_nodes::runs::RealTables;
use self::memory_disk::real_nodes::{self, disk_figure, nodes_figure};
use self::memory_disk::tables::Tables;
use self::memory_disk::{delay, reliability, table2, table3};
use self::real::rates::Rates;
use self::real::{Backing, RealDisks};
use crate::sms::SmsOptions;

/// The size of a segment, which is small here. A restart searches for lost blocks from the log's end to the end of
/// the last segment. With large segments, this search would be a noticeable part of the reads, because the log is
/// much shorter than the paper's.
const SEGMENT_BYTES: u64 = 512 << 10;

/// The function that makes a figure.
type Make = fn(&Lab<'_>) -> Result<Figure>;

/// Every figure by its name.
pub const FIGURES: [(&str, Make); 33] = [
    ("000-volume", volume::make),
    ("000-fig5", log_time::make),
    ("000-fig6", disks::make),
    ("000-fig7", aborts::make),
    ("000-fig8", total::make),
    ("000-fig9", throughput::make),
    ("001-fig3", rates::voter_throughput),
    ("001-fig4", rates::voter_latency),
    ("001-fig5", replay::voter),
    ("001-fig6", rates::tpcc_throughput),
    ("001-fig7", rates::tpcc_latency),
    ("001-fig8", replay::tpcc),
    ("001-fig9", distributed::make),
    ("001-fig10", replicas::make),
    ("001-bytes", bytes::make),
    ("001-size", size::make),
    ("002-fig2a", redo_time::make),
    ("002-fig2b", dirty::make),
    ("002-fig2c", records::make),
    ("002-fig3", interval::make),
    ("002-dpt", detail::make),
    ("002-prefetch", prefetch::make),
    ("003-delay", delay::make),
    ("003-table2", table2::make),
    ("003-table3", table3::make),
    ("003-reliability", reliability::make),
    (real_nodes::NAMES[0], disk_figure::make),
    (real_nodes::NAMES[1], nodes_figure::make),
    ("004-fig1", devices::make),
    ("004-fig3", copying::make),
    ("004-fig4", memory::make),
    ("004-fig5", impact::in_memory),
    ("004-fig6", impact::on_disk),
];

/// The settings and the shared results of experiments.
pub struct Lab<'a> {
    /// The sizes of the experiments.
    pub scale: Scale,
    /// The seed of every history.
    pub seed: u64,
    /// The number of players of a restart: one for each core.
    pub cores: usize,
    /// The function that gets each progress message.
    pub says: &'a dyn Fn(&str),
    /// The costs of playing, once they have been measured.
    costs: OnceCell<Costs>,
    /// Voter and TPC-C at all rates, once they have been measured.
    sweeps: [OnceCell<Sweep>; 2],
    /// The folder of paper 002's files. Paper 003 measures the disk of this folder. `None`: the files of paper 002
    /// are in memory.
    data: Option<PathBuf>,
    /// The table and the histories of paper 002, once they have been made.
    logical: OnceCell<LogicalStand>,
    /// Tables 2 and 3 of paper 003, once they have been measured.
    memory_disk: OnceCell<Tables>,
    /// The origin of the nodes of paper 003.
    nodes_from: Option<NodesFrom>,
    /// Tables 2 and 3 of paper 003 on real media, once they have been measured.
    real_nodes: OnceCell<RealTables>,
    /// The directories of paper 000. `None`: all its disks are modelled.
    real: Option<RealDisks>,
    /// The rates of these directories, once they have been measured.
    rates: OnceCell<Rates>,
}

impl<'a> Lab<'a> {
    /// Makes a lab in which nothing has been measured yet.
    #[must_use]
    pub fn new(scale: Scale, seed: u64, cores: usize, says: &'a dyn Fn(&str)) -> Lab<'a> {
        Lab {
            scale,
            seed,
            cores,
            says,
            costs: OnceCell::new(),
            sweeps: Default::default(),
            data: None,
            logical: OnceCell::new(),
            memory_disk: OnceCell::new(),
            nodes_from: None,
            real_nodes: OnceCell::new(),
            real: None,
            rates: OnceCell::new(),
        }
    }

    /// Adds runs of paper 000's experiments on real disks.
    #[must_use]
    pub fn with_real(self, real: RealDisks) -> Lab<'a> {
        Lab {
            real: Some(real),
            ..self
        }
    }

    /// Returns the real disks and their rates. The rates are measured at the first call. `None`: all disks are modelled.
    fn real(&self) -> Result<Option<Backing<'_>>> {
        let Some(disks) = &self.real else {
            return Ok(None);
        };
        if self.rates.get().is_none() {
            self.say("reading and writing the real disks");
            let rates = Rates::measure(disks)?;
            self.rates.get_or_init(|| rates);
        }
        let rates = self.rates.get();
        Ok(rates.map(|rates| Backing::Real { disks, rates }))
    }

    /// Puts the files of papers 002 and 003 into the directory `data`, on this machine's own disk.
    #[must_use]
    pub fn with_data(self, data: PathBuf) -> Lab<'a> {
        Lab {
            data: Some(data),
            ..self
        }
    }

    /// Sets the origin of the nodes of paper 003.
    #[must_use]
    pub fn with_nodes(self, from: NodesFrom) -> Lab<'a> {
        Lab {
            nodes_from: Some(from),
            ..self
        }
    }

    /// Returns the costs of playing if the CPU is the bottleneck. They are measured at the first call.
    fn costs(&self) -> Result<&Costs> {
        if let Some(costs) = self.costs.get() {
            return Ok(costs);
        }
        let costs = Costs::measure(self)?;
        Ok(self.costs.get_or_init(|| costs))
    }

    /// Returns the results of a workload under all schemes at all rates. They are measured at the first call.
    fn sweep(&self, workload: Workload) -> Result<&Sweep> {
        let cell = match workload {
            Workload::Voter => &self.sweeps[0],
            Workload::Tpcc => &self.sweeps[1],
        };
        if let Some(sweep) = cell.get() {
            return Ok(sweep);
        }
        let sweep = Sweep::measure(self, workload)?;
        Ok(cell.get_or_init(|| sweep))
    }

    /// Returns the experiments of paper 002. Their table is made at the first call.
    fn logical(&self) -> Result<&LogicalStand> {
        if let Some(stand) = self.logical.get() {
            return Ok(stand);
        }
        let stand = LogicalStand::new(self, self.data.as_deref())?;
        Ok(self.logical.get_or_init(|| stand))
    }

    /// Returns tables 2 and 3 of paper 003. They are measured at the first call.
    fn memory_disk(&self) -> Result<&Tables> {
        if let Some(tables) = self.memory_disk.get() {
            return Ok(tables);
        }
        let tables = Tables::measure(self)?;
        Ok(self.memory_disk.get_or_init(|| tables))
    }

    /// Returns tables 2 and 3 of paper 003 on real media. They are measured at the first call.
    fn real_nodes(&self) -> Result<&RealTables> {
        if let Some(tables) = self.real_nodes.get() {
            return Ok(tables);
        }
        let tables = RealTables::measure(self)?;
        Ok(self.real_nodes.get_or_init(|| tables))
    }

    /// Returns the origin of the nodes.
    fn nodes_from(&self) -> Result<&NodesFrom> {
        let from = self.nodes_from.as_ref();
        from.context("the lab has no nodes: set their program or their addresses")
    }

    /// Returns the folder whose disk is measured.
    fn disk_folder(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(std::env::temp_dir)
    }

    fn say(&self, what: &str) {
        (self.says)(what);
    }

    /// Returns how often a restart is repeated on disks of `mbps` MB/s (0: no limit).
    fn repeats(&self, mbps: u64) -> usize {
        match mbps {
            0 => self.scale.cost_repeats,
            scale::PAPER_DISK_MBPS => self.scale.slow_repeats,
            _ => self.scale.repeats,
        }
    }

    /// Returns the paper's workload for a scheme, at this scale.
    fn sms(&self, scheme: Scheme) -> SmsOptions {
        SmsOptions {
            scheme,
            rows: self.scale.rows,
            segment_bytes: SEGMENT_BYTES,
            seed: self.seed,
            ..SmsOptions::default()
        }
    }
}

/// Returns a scheme's name in the paper.
fn scheme_label(scheme: Scheme) -> String {
    scheme.name().to_uppercase()
}
