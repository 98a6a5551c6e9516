//! The settings. A setting marked "Fixed at creation" cannot change after the database is made. All others may change
//! at each open.

use std::path::PathBuf;
use std::time::Duration;

use perdura_archive::Retention;
use perdura_base::limits::{CHUNK_PAGES_DEFAULT, PARTITIONS_DEFAULT, VALUE_BYTES_DEFAULT};
use perdura_base::{Error, Result};
use perdura_device::LogIo;
use perdura_heap::{Ceiling, KeptBound, OrphanLimits, SnapshotMode};
use perdura_recovery::disks::Paths;
use perdura_recovery::tree::TreeMeans;
use perdura_recovery::{IMAGE_DISKS_MAX, Level, Methods, Schedule};
use perdura_wal::{EpochEnds, SegmentSizes};

use crate::durability::Durability;
use crate::machine::Machine;
use crate::nodes::{NodeSettings, Nodes};
use crate::typed::TypedOptions;

/// The default tables of a database: Redis's sixteen databases.
pub const DATABASE_NAMES: &[&str] = &[
    "db0", "db1", "db2", "db3", "db4", "db5", "db6", "db7", "db8", "db9", "db10", "db11", "db12",
    "db13", "db14", "db15",
];

/// Settings of the database, except for its threads and paths.
#[derive(Debug, Clone)]
pub struct CoreOptions {
    /// Count of virtual partitions, a power of two up to 256. Fixed at creation.
    pub partitions: u16,
    /// Count of pages in a chunk. Fixed at creation.
    pub chunk_pages: u16,
    /// Size of the largest log segments, bytes. Fixed at creation.
    pub segment_bytes: u64,
    /// Size of a life's first segment, in bytes, but at most `segment_bytes`. Each later segment is twice as long as
    /// the one before it, until the size reaches `segment_bytes`. Fixed at creation.
    pub segment_bytes_first: u64,
    /// The longest log block, bytes.
    pub block_bytes_max: usize,
    /// Bytes that may wait for a stream's flusher before writes are refused.
    pub queue_bytes_max: u64,
    /// The number of lanes of each log stream: of threads that append without waiting for each other.
    pub lanes: usize,
    /// The longest value, bytes.
    pub value_bytes_max: usize,
    /// Memory for pages, indexes and buffers, bytes.
    pub memory_limit: u64,
    /// The amount of memory at which the kernel kills the process. `None` if not known. A restart is refused if its
    /// pages need more memory than this.
    pub memory_ceiling: Option<Ceiling>,
    /// A warning that `memory_limit` is above `memory_ceiling`, for the restart's report. `None` if there is no reason
    /// for the warning.
    pub memory_fault: Option<String>,
    /// A checkpoint begins when the log has grown by this much since the last one, bytes.
    pub checkpoint_log_bytes: u64,
    /// True if every checkpoint is consistent: its image is of one instant. If a database has key-addressed tables, its
    /// checkpoints are always consistent, even if this is false.
    pub consistent_checkpoints: bool,
    /// The form of a consistent checkpoint's pages, for key-addressed tables.
    pub snapshot_mode: SnapshotMode,
    /// The limit of the old page versions that are kept for checkpoints and snapshots. At the limit, writers wait and
    /// snapshots end.
    pub kept_bound: KeptBound,
    /// The use of disks, processors and memory by a restart.
    pub schedule: Schedule,
    /// True if a restart lets transactions run before it has loaded everything. It loads a partition when a transaction
    /// needs it. The caller loads the others by [`Life::load_next`](perdura_recovery::Life::load_next).
    pub on_demand: bool,
    /// Settings of trees: the number of pages in memory, and the use of these pages by a restart.
    pub tree: TreeMeans,
    /// The methods for playing the log at a restart. Empty: each kind of records uses its default.
    pub methods: Methods,
    /// The limits that determine when the rows of deleted collections are removed.
    pub orphans: OrphanLimits,
    /// The names of the tables to open, at most 255. Missing tables are made.
    pub tables: &'static [&'static str],
    /// Typed tables and procedures.
    pub typed: TypedOptions,
    /// The end of the log in the archive, from the archive's manifest. `None`: no archive is configured.
    pub archived: Option<EpochEnds>,
}

impl Default for CoreOptions {
    fn default() -> Self {
        CoreOptions {
            partitions: PARTITIONS_DEFAULT,
            chunk_pages: CHUNK_PAGES_DEFAULT,
            segment_bytes: 64 << 20,
            segment_bytes_first: 4 << 20,
            block_bytes_max: 256 << 10,
            queue_bytes_max: 8 << 20,
            lanes: 1,
            value_bytes_max: VALUE_BYTES_DEFAULT,
            memory_limit: u64::MAX,
            memory_ceiling: None,
            memory_fault: None,
            checkpoint_log_bytes: 512 << 20,
            consistent_checkpoints: false,
            snapshot_mode: SnapshotMode::Pages,
            kept_bound: KeptBound::default(),
            schedule: Schedule::inline(Level::Four, 0),
            on_demand: false,
            tree: TreeMeans::default(),
            methods: Methods::default(),
            orphans: OrphanLimits::default(),
            tables: DATABASE_NAMES,
            typed: TypedOptions::default(),
            archived: None,
        }
    }
}

/// The choice between a restart that loads everything first, and one that loads partitions when they are needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnDemand {
    /// The database loads everything before it runs the first transaction.
    #[default]
    Never,
    /// The database runs transactions at once. It loads a partition when a transaction needs it, and the others in the
    /// background. Some databases must be loaded first. The restart's report then says why.
    Always,
}

/// Settings of a database in a directory.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data directory; made if it is not there.
    pub data: PathBuf,
    /// A directory for each log stream. Empty: all streams are in the data directory.
    pub log_dirs: Vec<PathBuf>,
    /// Directories over which the images' pages are spread, one for each disk. Empty: the data directory. The number of
    /// directories and their order are fixed at creation. A directory may move to a new path.
    pub image_dirs: Vec<PathBuf>,
    /// The directory of the archive, which holds sorted copies of the log's records. `None`: no archive is used. If the
    /// database had an archive before, the log is then kept until that archive is used again.
    pub archive: Option<PathBuf>,
    /// The approximate maximum size of the *backlog*, in bytes. The backlog is the runs and log that wait on the log's
    /// disk while the archive cannot be reached. At this limit, writes are refused until the archive is back. `None`:
    /// only the log waits, until its disk is full.
    pub archive_backlog: Option<u64>,
    /// True if the database merges the runs of its archive. Otherwise an archive agent may merge them.
    pub archive_merge: bool,
    /// True if the database makes a first backup without a request. It does so when its archive contains no backup.
    pub first_backup: bool,
    /// The moments that the archive keeps, if the database merges it. By default it keeps every moment, without limit.
    pub archive_retention: Retention,
    /// True if runs are made by a selection tree, which reads new records while it writes a run. Otherwise the records
    /// are sorted one workspace at a time.
    pub archive_selects: bool,
    /// Count of log streams. Fixed at creation. More than one stream is useful only with more than one disk.
    pub streams: u8,
    /// Count of virtual partitions, a power of two up to 256. Fixed at creation.
    pub partitions: u16,
    /// Size of the largest log segments, bytes. The first segments are smaller. Fixed at creation.
    pub segment_bytes: u64,
    /// A checkpoint begins when the log has grown by this much since the last one, bytes.
    pub checkpoint_log_bytes: u64,
    /// A checkpoint is paced to take at most this long, seconds.
    pub checkpoint_seconds_max: u64,
    /// Memory for pages, indexes and buffers, bytes; `None`: 75 % of what the machine and the control groups of this
    /// process allow.
    pub memory_limit: Option<u64>,
    /// The longest value, bytes.
    pub value_bytes_max: usize,
    /// The degree of parallelism of a restart.
    pub restart_level: Level,
    /// The choice of when a restart loads the data.
    pub on_demand: OnDemand,
    /// The methods for playing the log at a restart. Empty: each kind of records uses its default.
    pub restart_methods: Methods,
    /// Count of threads that load the image and play the log at a restart. 0: one for each core.
    pub threads: usize,
    /// Settings of trees: the number of pages in memory, and the use of these pages by a restart.
    pub tree: TreeMeans,
    /// The method for durable writes of the log.
    pub log_io: LogIo,
    /// The durability that [`Db::write`](crate::Db::write) and other waiting calls wait for. The server's sessions have
    /// a separate setting.
    pub durability: Durability,
    /// The form of a consistent checkpoint's pages, for key-addressed tables.
    pub snapshot_mode: SnapshotMode,
    /// The minimum time between the starts of two flushes of the log. The largest valid value is one second. Zero: a
    /// flush starts when a thread wants a flush. Flushes are then spaced only while spacing costs no throughput (see
    /// the module `pace`).
    pub flush_every: Duration,
    /// The longest time that an open waits for the directories' locks. If a process that held these locks was killed,
    /// they become free when its last write has completed.
    pub lock_wait: Duration,
    /// Typed tables and procedures; see [`Db::builder`](crate::Db::builder).
    pub typed: TypedOptions,
    /// The settings for making `nodes`. The caller makes `nodes`. The open itself reads only `accept_loss`.
    pub node_settings: NodeSettings,
    /// The nodes that hold the newest part of the log. `None`: the database has no nodes.
    pub nodes: Option<Nodes>,
}

/// The largest valid [`Options::flush_every`].
pub const FLUSH_EVERY_MAX: Duration = Duration::from_secs(1);

/// The default of [`Options::archive_backlog`], bytes.
const ARCHIVE_BACKLOG: u64 = 16 << 30;
/// The minimum valid [`Options::archive_backlog`], bytes: room for some runs and some segments of the
/// log.
const ARCHIVE_BACKLOG_MIN: u64 = 128 << 20;

/// The default of [`Options::lock_wait`].
const LOCK_WAIT: Duration = Duration::from_secs(10);

impl Options {
    /// Returns the defaults for a data directory.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        let core = CoreOptions::default();
        Options {
            data: data.into(),
            log_dirs: Vec::new(),
            image_dirs: Vec::new(),
            archive: None,
            archive_backlog: Some(ARCHIVE_BACKLOG),
            archive_merge: true,
            first_backup: true,
            archive_retention: Retention::default(),
            archive_selects: false,
            streams: 1,
            partitions: core.partitions,
            segment_bytes: core.segment_bytes,
            checkpoint_log_bytes: core.checkpoint_log_bytes,
            checkpoint_seconds_max: 60,
            memory_limit: None,
            value_bytes_max: core.value_bytes_max,
            restart_level: Level::Four,
            on_demand: OnDemand::default(),
            restart_methods: core.methods,
            tree: core.tree,
            threads: 0,
            log_io: LogIo::default(),
            durability: Durability::default(),
            snapshot_mode: core.snapshot_mode,
            flush_every: Duration::ZERO,
            lock_wait: LOCK_WAIT,
            typed: core.typed,
            node_settings: NodeSettings::default(),
            nodes: None,
        }
    }

    /// Returns the directories.
    #[must_use]
    pub fn paths(&self) -> Paths {
        Paths {
            data: self.data.clone(),
            images: self.image_dirs.clone(),
            logs: self.log_dirs.clone(),
        }
    }

    /// Checks these settings, and returns the settings for the core.
    ///
    /// # Errors
    /// [`Error::Usage`] with the name of a setting out of range.
    pub fn core(&self) -> Result<CoreOptions> {
        let machine = Machine::read();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let core = CoreOptions {
            lanes: cores.min(perdura_wal::LANES_MAX),
            partitions: self.partitions,
            segment_bytes: self.segment_bytes,
            value_bytes_max: self.value_bytes_max,
            memory_limit: self
                .memory_limit
                .unwrap_or_else(|| machine.default_memory_limit()),
            memory_ceiling: machine.ceiling(),
            memory_fault: self
                .memory_limit
                .and_then(|chosen| machine.complaint(chosen)),
            checkpoint_log_bytes: self.checkpoint_log_bytes,
            on_demand: self.on_demand == OnDemand::Always,
            schedule: Schedule::new(
                self.restart_level,
                match self.threads {
                    0 => cores,
                    threads => threads,
                },
            ),
            methods: self.restart_methods.clone(),
            tree: self.tree,
            snapshot_mode: self.snapshot_mode,
            typed: self.typed.clone(),
            ..CoreOptions::default()
        };
        core.check()?;
        if self.flush_every > FLUSH_EVERY_MAX {
            return Err(Error::Usage(format!(
                "the time between flushes is {:?}. Give at most {FLUSH_EVERY_MAX:?}",
                self.flush_every
            )));
        }
        if let Some(bytes) = self.archive_backlog
            && bytes < ARCHIVE_BACKLOG_MIN
        {
            return Err(Error::Usage(format!(
                "the limit of the archive's backlog is {bytes} bytes. Give at least \
                 {ARCHIVE_BACKLOG_MIN}, or 0 for no backlog"
            )));
        }
        if !(1..=perdura_base::limits::STREAMS_MAX).contains(&self.streams) {
            return Err(Error::Usage(format!(
                "streams is {}. Give 1 to 16",
                self.streams
            )));
        }
        if self.image_dirs.len() > usize::from(IMAGE_DISKS_MAX) {
            return Err(Error::Usage(format!(
                "{} image directories were given. Give at most {IMAGE_DISKS_MAX}",
                self.image_dirs.len()
            )));
        }
        if let Some(nodes) = &self.nodes {
            nodes.options.check()?;
            let (tail, block) = (nodes.options.tail_bytes_max, core.block_bytes_max);
            if tail < 2 * perdura_base::num::to_u64(block) {
                return Err(Error::Usage(format!(
                    "the log's tail has {tail} bytes. Give at least two blocks of {block} bytes"
                )));
            }
        }
        self.paths().check_logs(self.streams)?;
        Ok(core)
    }
}

impl CoreOptions {
    /// Returns the sizes of a new database's segments.
    #[must_use]
    pub fn segment_sizes(&self) -> SegmentSizes {
        SegmentSizes {
            first: self.segment_bytes_first.min(self.segment_bytes),
            max: self.segment_bytes,
        }
    }

    /// Checks that every setting is within its range.
    ///
    /// # Errors
    /// [`Error::Usage`] with the name of the first setting that is not.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::Usage(what));
        if !self.partitions.is_power_of_two() || self.partitions > 256 {
            return refuse(format!(
                "partitions is {}. Give a power of two from 1 to 256",
                self.partitions
            ));
        }
        if !(1..=255).contains(&self.tables.len()) {
            return refuse(format!(
                "{} tables were given. Give 1 to 255",
                self.tables.len()
            ));
        }
        if self.chunk_pages == 0 {
            return refuse("chunks have 0 pages. Give at least 1".into());
        }
        if !self.segment_bytes.is_multiple_of(4096) || self.segment_bytes < 16 * 4096 {
            return refuse(format!(
                "segment size is {} bytes. Give a multiple of 4096, at least 65536",
                self.segment_bytes
            ));
        }
        let first = self.segment_bytes_first;
        if !first.is_multiple_of(4096) || first < 16 * 4096 {
            return refuse(format!(
                "the first segment's size is {first} bytes. Give a multiple of 4096, at least \
                 65536"
            ));
        }
        if !self.block_bytes_max.is_multiple_of(4096)
            || !(4096..=perdura_wal::block::BLOCK_BYTES_MAX).contains(&self.block_bytes_max)
        {
            return refuse(format!(
                "the longest block is {} bytes. Give a multiple of 4096, at most 4 MiB",
                self.block_bytes_max
            ));
        }
        if self.value_bytes_max > perdura_base::limits::VALUE_BYTES_MAX {
            return refuse(format!(
                "the value limit is {} bytes. Give at most 512 MiB",
                self.value_bytes_max
            ));
        }
        Ok(())
    }
}
