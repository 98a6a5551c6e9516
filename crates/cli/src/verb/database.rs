//! The options of a database, for the verbs that open one.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use perdura_recovery::Level;

use crate::exit::Usage;
use crate::offline::peek;
use crate::units;

/// How a database is opened, and what it is made with.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// Directory of the log, on another disk than the data; once for all streams or once for
    /// each.
    #[arg(long, value_name = "DIR")]
    pub log_dir: Vec<PathBuf>,
    /// Log streams, 1 to 16; more than one pays only with more than one disk. Fixed when the
    /// database is made [default: 1].
    #[arg(long, value_name = "N")]
    pub streams: Option<u8>,
    /// Virtual partitions, a power of two up to 256. Fixed when the database is made [default:
    /// 256].
    #[arg(long, value_name = "P")]
    pub partitions: Option<u16>,
    /// Size of a log segment. Fixed when the database is made [default: 64MiB].
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub segment_size: Option<u64>,
    /// A checkpoint begins when the log has grown by this much.
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = units::bytes)]
    pub checkpoint_log_size: u64,
    /// A checkpoint is written slowly, but takes at most this long.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    pub checkpoint_max: Duration,
    /// Memory for pages, indexes and buffers; writes are refused beyond it [default: 75 % of the
    /// machine's or container's].
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub maxmemory: Option<u64>,
    /// The longest value, up to 512MiB.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = units::bytes)]
    pub max_value_size: u64,
    /// How parallel a restart is, 1 to 4; 4 plays the log while the image is loaded.
    #[arg(
        long,
        value_name = "L",
        default_value_t = 4,
        value_parser = clap::value_parser!(u8).range(1..=4)
    )]
    pub restart_level: u8,
    /// Threads that play image and log at a restart; 0: one a core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
}

impl DatabaseArgs {
    /// The engine's options. What was fixed when the database was made is taken from its anchor;
    /// a wish for something else is refused rather than ignored.
    pub fn options(&self, data: PathBuf) -> Result<perdura::Options> {
        let mut options = perdura::Options::new(data);
        if let Some(anchor) = peek(&options.data) {
            fixed("streams", self.streams, anchor.streams)?;
            fixed("partitions", self.partitions, anchor.partitions)?;
            fixed("segment-size", self.segment_size, anchor.segment_bytes)?;
            options.streams = anchor.streams;
            options.partitions = anchor.partitions;
            options.segment_bytes = anchor.segment_bytes;
        } else {
            options.streams = self.streams.unwrap_or(options.streams);
            options.partitions = self.partitions.unwrap_or(options.partitions);
            options.segment_bytes = self.segment_size.unwrap_or(options.segment_bytes);
        }
        options.log_dirs.clone_from(&self.log_dir);
        options.checkpoint_log_bytes = self.checkpoint_log_size;
        options.checkpoint_seconds_max = self.checkpoint_max.as_secs().max(1);
        options.memory_limit = self.maxmemory;
        options.value_bytes_max = usize::try_from(self.max_value_size).unwrap_or(usize::MAX);
        options.restart_level = Level::new(self.restart_level).expect("checked by the parser");
        options.threads = self.threads;
        options.core()?;
        Ok(options)
    }
}

fn fixed<T: PartialEq + std::fmt::Display>(name: &str, wish: Option<T>, made: T) -> Result<()> {
    match wish {
        Some(wish) if wish != made => bail!(Usage(format!(
            "--{name} {wish}: this database was made with {made}, which cannot be changed"
        ))),
        Some(_) | None => Ok(()),
    }
}
