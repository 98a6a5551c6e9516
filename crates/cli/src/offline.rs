//! A stopped database, opened for reading.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use perdura::counts::ByTable;
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
use perdura_restore::default_threads;
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
    /// The directory of the log, if it is not in the data directory. Give it once for all streams, or once for each
    /// stream.
    #[arg(long, value_name = "DIR")]
    pub log_dir: Vec<PathBuf>,
    /// A directory of the images' pages, if they are not in the data directory. Give it once for each disk that holds
    /// pages.
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
    /// The minor faults of the anchor. The anchor is readable in spite of these faults.
    pub anchor_notes: Vec<String>,
    /// The data directory. It has the anchor.
    data: PathBuf,
    /// The permission to accept replayed calls whose results differ from the logged results. `None`: such calls are
    /// refused.
    pub accept: Option<AcceptDivergence>,
    _locks: Locks,
}

impl Offline {
    /// Opens a database read-only.
    ///
    /// # Errors
    /// Fails for a directory without a database, an unknown version of the database, or a database that a server has
    /// open.
    pub fn open(directories: &Directories) -> Result<Offline> {
        Offline::opened(directories, Demand::All)
    }

    /// Opens a damaged database read-only, even if a restart would refuse the database.
    ///
    /// # Errors
    /// Fails without a readable anchor, and if a server has the database open.
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

    /// Returns the properties fixed at the creation of the database.
    pub fn geometry(&self) -> Geometry {
        self.anchor.geometry
    }

    /// Returns, for each stream, the first log position that a restart could need. The older image determines these
    /// positions.
    pub fn log_begin(&self) -> Vec<Pos> {
        log_begin(&self.anchor)
    }

    /// Scans one stream from a position to its end.
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

    /// Computes the cut: the part of the log that a restart keeps. Blocks that the disks lack do not count as damage if
    /// nodes may hold these blocks.
    ///
    /// # Errors
    /// Errors of [`Anchor::decide_cut`].
    pub fn decide_cut(&self, scans: &[StreamScan]) -> perdura::Result<Cut> {
        let may_lack = Tail::LookedAt.may_lack(&self.anchor);
        self.anchor.decide_cut(scans, may_lack)
    }

    /// Parses restart methods, and checks that this database allows the methods and the restart level. The level `None`
    /// means the highest allowed level.
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

    /// Restarts in memory with the default methods and level, without changing the disks. Returns the restarted
    /// database and its digest.
    pub fn restart(&self, pool: &Pool) -> Result<(Restarted, String)> {
        let (methods, level) = self.way("auto", None)?;
        self.restart_by(&methods, &Schedule::new(level, threads_or_cores(0)), pool)
    }

    /// Restarts in memory with the given methods and schedule. Returns the restarted database and its digest.
    pub fn restart_by(
        &self,
        methods: &Methods,
        schedule: &Schedule,
        pool: &Pool,
    ) -> Result<(Restarted, String)> {
        let options = self.overlaid_options(methods, schedule, pool)?;
        let mut restarted = self.restarted(&options)?;
        let described = described(&restarted);
        let (rows, digest) = described.with_context(|| self.disks.data.name())?;
        restarted.report.rows = rows;
        Ok((restarted, digest))
    }

    /// Restarts in memory by the default methods. Returns the numbers of keys and rows of each table. A database of
    /// interleaved transactions has no tables.
    pub fn counts(&self, pool: &Pool) -> Result<ByTable> {
        let (methods, level) = self.way("auto", None)?;
        let schedule = Schedule::new(level, threads_or_cores(0));
        let restarted = self.restarted(&self.overlaid_options(&methods, &schedule, pool)?)?;
        match restarted.record.scheme.has_tables() {
            true => Ok(summary(&restarted.data())?.tables),
            false => Ok(ByTable::new()),
        }
    }

    fn restarted(&self, options: &RestartOptions) -> Result<Restarted> {
        let restarted = restart(options).with_context(|| self.disks.data.name())?;
        restarted.context("there is no database")
    }

    /// Returns the options of a restart in memory by these methods.
    pub fn restart_options(&self, methods: &Methods, schedule: &Schedule) -> RestartOptions {
        RestartOptions {
            life: perdura_base::LifeId(0),
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

    /// Returns the options of a restart in memory by these methods. If the restart writes pages in place, its writes go
    /// to an overlay over the disks.
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

/// Returns the number of rows and the digest. A database of interleaved transactions has no index that counts its rows.
/// Its taken slots are counted instead.
pub fn described(restarted: &Restarted) -> perdura::Result<(u64, String)> {
    let heap = &restarted.heap;
    if restarted.record.scheme.has_tables() {
        let all = summary(&restarted.data())?;
        return Ok((restarted.report.rows + all.rows_of_trees, hex(all.digest)));
    }
    Ok((taken_slots(heap), perdura_steal::digest(heap)))
}

/// Returns the number of taken slots. If no index counts the rows of the database, this is the number of rows.
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

/// Returns `threads`, or the number of cores for `0`.
pub fn threads_or_cores(threads: usize) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        threads => threads,
    }
}

/// Returns `threads`, or for `0` the default of a restore.
pub fn restore_threads(threads: usize) -> usize {
    match threads {
        0 => default_threads(),
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

/// Converts an error of opening a database. Adds advice if a server has the database open.
fn stopped(error: Error) -> anyhow::Error {
    match error {
        locked @ Error::Locked { .. } => anyhow::Error::new(locked)
            .context("this verb works on a stopped database: stop the server first"),
        other => other.into(),
    }
}

/// Returns the anchor of the database in these directories. Returns `None` if no database exists yet.
///
/// # Errors
/// Errors of [`find`]: the directory has foreign files, or the database's anchor is missing or damaged.
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

/// Returns the anchor of the database in a directory. Returns `None` if there is no readable anchor.
pub fn peek(dir: &Path) -> Option<Anchor> {
    read_anchor(&ReadDisk::open(dir)).ok().flatten()
}
