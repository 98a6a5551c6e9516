//! A stopped database that is opened for reading.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use perdura::digest::summary;
use perdura::typed::AcceptDivergence;
use perdura::{Error, Progress, RestartReport};
use perdura_base::num::to_u64;
use perdura_base::{PartitionId, Pos, StreamId};
use perdura_device::{Disk, SystemClock};
use perdura_heap::{Geometry, Heap, MemoryAccount};
use perdura_page::{PageKind, layout};
use perdura_recovery::disks::{Demand, Disks, Locks, Opening, Paths};
use perdura_recovery::found::find;
use perdura_recovery::restart::{RestartOptions, Restarted, restart};
use perdura_recovery::tree::TreeMeans;
use perdura_recovery::verify::log_begin;
use perdura_recovery::{Anchor, Tail, read_anchor};
use perdura_recovery::{Level, Method, Methods, Schedule, check_methods, writes_in_place};
use perdura_restore::THREADS_A_CORE;
use perdura_wal::{Check, Cut, StreamScan, scan_stream};

use crate::exit::Usage;
use crate::in_memory::Pool;
use crate::programs::player;
use crate::read_disk::ReadDisk;

/// The directories of a database.
#[derive(Debug, Clone, Args)]
pub struct Directories {
    /// The data directory.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// The directory of the log, if it is not in the data directory; once for all streams or once
    /// for each.
    #[arg(long, value_name = "DIR")]
    pub log_dir: Vec<PathBuf>,
    /// A directory of the images' pages, if they are not in the data directory; once for each
    /// disk the images are spread over.
    #[arg(long, value_name = "DIR")]
    pub image_dir: Vec<PathBuf>,
}

impl Directories {
    /// Returns the directories.
    pub fn paths(&self) -> Paths {
        Paths {
            data: self.data.clone(),
            images: self.image_dir.clone(),
            logs: self.log_dir.clone(),
        }
    }
}

/// A stopped database.
pub struct Offline {
    /// The disks.
    pub disks: Disks,
    /// The content of the anchor.
    pub anchor: Anchor,
    /// The faults of the anchor that do not prevent reading it.
    pub anchor_notes: Vec<String>,
    /// The data directory, in which the anchor is.
    data: PathBuf,
    /// Accepts calls whose results differ from those in the log. `None`: such calls are refused.
    pub accept: Option<AcceptDivergence>,
    _locks: Locks,
}

impl Offline {
    /// Opens a database read-only.
    ///
    /// # Errors
    /// Fails for a directory without a database, a database of another version, and one that a server has open.
    pub fn open(directories: &Directories) -> Result<Offline> {
        Offline::opened(directories, Demand::All)
    }

    /// Opens the remains of a database that a restart would refuse.
    ///
    /// # Errors
    /// Fails for a directory without a readable anchor, and one that a server has open.
    pub fn open_damaged(directories: &Directories) -> Result<Offline> {
        Offline::opened(directories, Demand::Anchor)
    }

    fn opened(directories: &Directories, demand: Demand) -> Result<Offline> {
        let dir = directories.data.display();
        if !directories.data.is_dir() {
            let why = match directories.data.exists() {
                true => "it is not a directory",
                false => "no such directory",
            };
            bail!("there is no database in {dir}: {why}");
        }
        let paths = directories.paths();
        let open = |dir: &Path| Ok(Arc::new(ReadDisk::open(dir)) as Arc<dyn Disk>);
        let opening = Opening::begin(&paths, &open).map_err(|error| match error {
            locked @ Error::Locked { .. } => stopped(locked),
            other => anyhow::Error::new(other).context(dir.to_string()),
        })?;
        let found = opening.anchor().with_context(|| dir.to_string())?;
        let Some((anchor, anchor_notes)) = found else {
            bail!("there is no database in {dir}");
        };
        let opened = opening.finish(anchor.streams, usize::from(anchor.images.disks), demand);
        let (disks, locks) = opened.map_err(stopped)?;
        Ok(Offline {
            disks,
            anchor,
            anchor_notes,
            data: directories.data.clone(),
            accept: None,
            _locks: locks,
        })
    }

    /// Returns the shape of its pages.
    pub fn geometry(&self) -> Geometry {
        self.anchor.geometry
    }

    /// Returns for each stream the position from which on a restart could need the log: where the older image begins.
    pub fn log_begin(&self) -> Vec<Pos> {
        log_begin(&self.anchor)
    }

    /// Scans one stream.
    pub fn scan(&self, stream: StreamId, from: Pos) -> perdura::Result<StreamScan> {
        debug_assert!(
            stream.0 < self.anchor.streams,
            "the database has this stream"
        );
        scan_stream(
            self.disks.logs[usize::from(stream.0)].as_ref(),
            &self.anchor.lives(),
            stream,
            from,
            Check::All,
        )
    }

    /// Returns the positions at which a restart cuts the log. Blocks that are missing on the disks, but that nodes
    /// may hold, do not count as damage.
    ///
    /// # Errors
    /// Errors of [`Anchor::decide_cut`].
    pub fn decide_cut(&self, scans: &[StreamScan]) -> perdura::Result<Cut> {
        let may_lack = Tail::LookedAt.may_lack(&self.anchor);
        self.anchor.decide_cut(scans, may_lack)
    }

    /// Returns the methods of these names and the level with this number, if they are legal for this database. Without
    /// a number, returns the highest legal level.
    ///
    /// # Errors
    /// Returns [`Usage`] with the reason.
    pub fn way(&self, names: &str, level: Option<u8>) -> Result<(Methods, Level)> {
        let scheme = self.anchor.scheme;
        let methods = Methods::by_names(names).map_err(Usage)?;
        let level = match level {
            None => Method::highest_level(scheme),
            Some(number) => Level::new(number)
                .ok_or_else(|| Usage(format!("there is no level {number}. Give 1 to 4")))?,
        };
        check_methods(&methods, &self.anchor, level).map_err(Usage)?;
        Ok((methods, level))
    }

    /// Restarts in memory with the default methods and level. Changes nothing on the disks. Also returns the digest.
    pub fn restart(&self, pool: &Pool) -> Result<(Restarted, String)> {
        let (methods, level) = self.way("auto", None)?;
        self.restart_by(&methods, &Schedule::new(level, threads_or_cores(0)), pool)
    }

    /// Restarts in memory with the given methods and schedule.
    pub fn restart_by(
        &self,
        methods: &Methods,
        schedule: &Schedule,
        pool: &Pool,
    ) -> Result<(Restarted, String)> {
        let dir = || self.disks.data.name();
        let options = self.overlaid_options(methods, schedule, pool)?;
        let restarted = restart(&options).with_context(dir)?;
        let mut restarted = restarted.context("there is no database")?;
        let (rows, digest) = described(&restarted).with_context(dir)?;
        restarted.report.rows = rows;
        Ok((restarted, digest))
    }

    /// Returns the options of a restart in memory by these methods.
    pub fn restart_options(&self, methods: &Methods, schedule: &Schedule) -> RestartOptions {
        RestartOptions {
            disks: self.disks.clone(),
            clock: Arc::new(SystemClock::new()),
            schedule: *schedule,
            methods: methods.clone(),
            tree: TreeMeans::default(),
            ordered: Some(player(self.accept.clone())),
            archived: None,
            mode: perdura_recovery::RestartMode::Dry,
            tail: Tail::LookedAt,
            memory: Arc::new(MemoryAccount::new(u64::MAX)),
            catalog: Arc::new(perdura::catalog::CatalogRows::default()),
            progress: Arc::new(Progress::default()),
        }
    }

    /// Returns the same options with an overlay over the disks, if the restart writes some pages in place.
    pub fn overlaid_options(
        &self,
        methods: &Methods,
        schedule: &Schedule,
        pool: &Pool,
    ) -> Result<RestartOptions> {
        let mut options = self.restart_options(methods, schedule);
        options.tree = pool.means();
        if writes_in_place(&self.anchor) {
            options.disks = pool.overlay(&self.data, &self.disks)?;
        }
        Ok(options)
    }
}

/// Returns the number of rows and the digest. In a database of interleaved transactions, the rows are the taken
/// slots, because no index counts them.
pub fn described(restarted: &Restarted) -> perdura::Result<(u64, String)> {
    let heap = &restarted.heap;
    if restarted.record.scheme.has_tables() {
        let all = summary(&restarted.data())?;
        return Ok((restarted.report.rows + all.rows_of_trees, hex(all.digest)));
    }
    Ok((taken_slots(heap), perdura_steal::digest(heap)))
}

/// Returns the number of taken slots: the rows of a database in which no index counts them.
pub fn taken_slots(heap: &Heap) -> u64 {
    let of_page = |page: &[u8]| match (layout::kind(page), layout::class(page)) {
        (Some(PageKind::Slotted), Some(class)) => to_u64(layout::taken_count(page, class)),
        _ => 0,
    };
    let ids = (0..heap.geometry().partitions).map(PartitionId);
    ids.map(|id| {
        let part = heap.lock(id);
        let pages = (0..part.pages()).filter_map(|local| part.page_bytes(local));
        pages.map(of_page).sum::<u64>()
    })
    .sum()
}

/// Returns the number of threads. `0` means one for each core.
pub fn threads_or_cores(threads: usize) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        threads => threads,
    }
}

/// Returns the number of threads of a restore. `0` means [`THREADS_A_CORE`] for each core.
pub fn restore_threads(threads: usize) -> usize {
    match threads {
        0 => THREADS_A_CORE * threads_or_cores(0),
        threads => threads,
    }
}

/// Returns the report with `digest` set.
pub fn with_digest(mut report: RestartReport, digest: String) -> RestartReport {
    report.digest = Some(digest);
    report
}

/// Returns a digest as 16 hexadecimal digits.
pub fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}

/// Returns an error of opening a database. Adds advice if a server has the database open.
fn stopped(error: Error) -> anyhow::Error {
    match error {
        locked @ Error::Locked { .. } => anyhow::Error::new(locked)
            .context("this verb works on a stopped database: stop the server first"),
        other => other.into(),
    }
}

/// Returns the anchor of the database in these directories. `None`: no database exists yet.
///
/// # Errors
/// Errors of [`find`]: a directory of other files, a database whose anchor is missing or damaged.
pub fn look(paths: &Paths) -> Result<Option<Anchor>> {
    if !paths.data.is_dir() {
        return Ok(None);
    }
    let disk = |dir: &PathBuf| Arc::new(ReadDisk::open(dir)) as Arc<dyn Disk>;
    let logs: Vec<_> = paths.logs.iter().map(disk).collect();
    let found = find(&ReadDisk::open(&paths.data), &logs);
    let found = found.with_context(|| paths.data.display().to_string())?;
    Ok(found.map(|(_, anchor, _)| anchor))
}

/// Returns the anchor of the database in a directory. `None`: there is no anchor, or it cannot be read.
pub fn peek(dir: &Path) -> Option<Anchor> {
    read_anchor(&ReadDisk::open(dir)).ok().flatten()
}
