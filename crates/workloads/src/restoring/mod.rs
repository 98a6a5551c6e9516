//! Compares restoring an archive with copying the archive's backup, on the same modelled disks.
//!
//! The archive and the new database are in two directories. Directories in memory (`/dev/shm`) are best. Each directory
//! is accessed through a modelled disk. The *source* has the backup and the runs, and the *target* gets the new
//! database. The copier reads the backup's file, writes the bytes to the target, and syncs at the end. The copier and
//! the restore have equal numbers of threads and equal sizes of pieces. Without the log, the restored database would
//! equal the copy. Each round measures copy and restore in turn.
//!
//! | module | one idea |
//! |---|---|
//! | [`mod@bench`] | rounds of copies and restores, and their medians |
//! | [`counting`] | a disk that counts the pages that are read |

pub mod bench;
pub mod counting;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use perdura_archive::backup::HEADER_BYTES;
use perdura_archive::{Run, Store};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Epoch, ImageSlot, Uuid};
use perdura_device::{Access, AlignedBuf, Clock, Disk, FileDisk, SystemClock};
use perdura_recovery::Disks;
use perdura_recovery::image::{PAGES_HEADER_BYTES, pages_path};
use perdura_restore::{
    Deadlines, ReplayReport, RestoreMeans, RestorePlan, RestoreProgress, RestoreReport, restore,
    restore_in_log_order, restore_within,
};

use self::counting::{CountingDisk, Pages};
use crate::drive::ModelledDisk;

/// The size of the copier's reads and writes, bytes. A restore's reads and writes also have this size.
const PIECE_BYTES: usize = 1 << 20;
/// Files that several threads read, with their lengths.
type Files = Vec<(Arc<dyn perdura_device::File>, u64)>;

/// An archive, and the disks and settings of its restore.
#[derive(Debug, Clone)]
pub struct Restoring {
    /// The archive's directory.
    pub from: PathBuf,
    /// The uuid of the archived database.
    pub uuid: Uuid,
    /// The epoch to restore. `None`: the archive's last epoch.
    pub at: Option<Epoch>,
    /// The directory for the new databases. A missing directory is made. Each database is removed after its
    /// measurement.
    pub work: PathBuf,
    /// The disk of the backup and the runs.
    pub source: ModelledDisk,
    /// The disk of the new database.
    pub target: ModelledDisk,
    /// The number of threads that restore, copy and read.
    pub threads: usize,
}

/// The parts of an archive that a restore reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Inputs {
    /// The size of the backup, bytes.
    pub backup_bytes: u64,
    /// The number of pages in the backup.
    pub backup_pages: u64,
    /// The size of the runs, bytes.
    pub log_bytes: u64,
    /// The number of runs.
    pub runs: usize,
}

/// The numbers of pages that a restore read, counted at the disks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageReads {
    /// Pages of the backup.
    pub backup: u64,
    /// Pages of the new database.
    pub database: u64,
}

impl PageReads {
    /// Returns the sum.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.backup + self.database
    }
}

impl Restoring {
    /// Returns the parts of the archive that a restore reads.
    ///
    /// # Errors
    /// Errors of [`RestorePlan::from_archive`].
    pub fn inputs(&self) -> Result<Inputs> {
        let (store, plan) = self.plan(ModelledDisk::default())?;
        let runs = self.runs(&store, &plan)?;
        let log_bytes = runs.iter().map(|run| run.bytes()).sum();
        let inputs = Inputs {
            backup_bytes: plan.bytes() - log_bytes,
            backup_pages: store.open_backup(plan.backup())?.pages(),
            log_bytes,
            runs: runs.len(),
        };
        Ok(inputs)
    }

    /// Restores the archive. Returns the duration in seconds and the restore's report. The duration begins when the
    /// archive is opened and ends after the last sync.
    ///
    /// # Errors
    /// Errors of the restore.
    pub fn restore(&self) -> Result<(f64, RestoreReport)> {
        self.with_new(|means, begin| {
            let (_, plan) = self.plan(self.source)?;
            let report = restore(&plan, means)?;
            Ok((begin.elapsed().as_secs_f64(), report))
        })
    }

    /// Restores the archive with at most `buffer_pages` pages in memory. Returns the time as
    /// [`restore`](Self::restore) does, the report, and the pages that were read.
    ///
    /// # Errors
    /// Errors of the restore.
    pub fn restore_within(&self, buffer_pages: usize) -> Result<(f64, RestoreReport, PageReads)> {
        self.counted(|plan, means| Ok(restore_within(plan, means, buffer_pages)?))
    }

    /// Restores by replaying the log in its own order, not page by page. The pool has `buffer_pages` pages. Returns the
    /// report and the pages that were read, with those that the copying of the backup read.
    ///
    /// # Errors
    /// Errors of the restore.
    pub fn replay(&self, buffer_pages: usize) -> Result<(ReplayReport, PageReads)> {
        let by_log = |plan: &RestorePlan, means: &RestoreMeans<'_>| {
            Ok(restore_in_log_order(plan, means, buffer_pages)?)
        };
        let (_, report, reads) = self.counted(by_log)?;
        Ok((report, reads))
    }

    /// Runs `f` with the plan and the disks of a new database. Returns the time with that of planning, seconds, and the
    /// pages that were read.
    fn counted<R>(
        &self,
        f: impl FnOnce(&RestorePlan, &RestoreMeans<'_>) -> Result<R>,
    ) -> Result<(f64, R, PageReads)> {
        let (store, plan) = self.plan(ModelledDisk::default())?;
        let backup = store.open_backup(plan.backup())?;
        let head = to_u64(HEADER_BYTES);
        let in_backup = Pages {
            path: plan.backup().path(&store.backups_dir()),
            at: head..head + backup.pages() * to_u64(PAGE_BYTES),
        };
        let in_database = Pages {
            path: pages_path(ImageSlot::A),
            at: PAGES_HEADER_BYTES..u64::MAX,
        };
        let source = CountingDisk::new(self.source.over(self.archive()?), in_backup);
        let source = Arc::new(source);
        self.in_work(|work| {
            let begin = Instant::now();
            let target = self.target.over(Arc::new(FileDisk::new(work)?));
            let target = Arc::new(CountingDisk::new(target, in_database));
            let (_, plan) = self.plan_on(Arc::<CountingDisk>::clone(&source))?;
            let disks = Disks::on_one(Arc::<CountingDisk>::clone(&target), plan.streams());
            let done = self.with_disks(disks, |means| f(&plan, means))?;
            let reads = PageReads {
                backup: source.pages_read(),
                database: target.pages_read(),
            };
            Ok((begin.elapsed().as_secs_f64(), done, reads))
        })
    }

    /// Copies the backup's file. Returns the time until the end of the last sync, seconds.
    ///
    /// # Errors
    /// Errors of the disks.
    pub fn copy(&self) -> Result<f64> {
        let (store, plan) = self.plan(ModelledDisk::default())?;
        let path = plan.backup().path(&store.backups_dir());
        self.in_work(|work| {
            let begin = Instant::now();
            let source = self.source.over(self.archive()?);
            let target = self.target.over(Arc::new(FileDisk::new(work)?));
            let from = source.open(&path, Access::Direct)?;
            let len = from.len()?;
            let to = target.create("copy", Access::Direct)?;
            self.each_piece(&vec![(from, len)], |offset, bytes| {
                Ok(to.write_at(offset, bytes)?)
            })?;
            to.sync()?;
            target.sync_dir("")?;
            Ok(begin.elapsed().as_secs_f64())
        })
    }

    /// Reads the files of the runs that a restore would read. Returns the time, seconds.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn read_log(&self) -> Result<f64> {
        let (store, plan) = self.plan(ModelledDisk::default())?;
        let runs = self.runs(&store, &plan)?;
        let begin = Instant::now();
        let source = self.source.over(self.archive()?);
        let open = |run: &Arc<Run>| {
            let path = run.id().path(&store.runs_dir());
            let file = source.open(&path, Access::Direct)?;
            Ok((file, run.bytes()))
        };
        let files: Files = runs.iter().map(open).collect::<Result<_>>()?;
        self.each_piece(&files, |_, _| Ok(()))?;
        Ok(begin.elapsed().as_secs_f64())
    }

    fn archive(&self) -> Result<Arc<dyn Disk>> {
        Ok(Arc::new(FileDisk::new(&self.from)?))
    }

    fn plan(&self, source: ModelledDisk) -> Result<(Arc<Store>, RestorePlan)> {
        self.plan_on(source.over(self.archive()?))
    }

    fn plan_on(&self, source: Arc<dyn Disk>) -> Result<(Arc<Store>, RestorePlan)> {
        let store = Store::read_only(source, &self.uuid)?;
        let plan = RestorePlan::from_archive(&store, self.at, |_, _| {})
            .with_context(|| self.from.display().to_string())?;
        Ok((store, plan))
    }

    /// Returns the runs of the archive that the plan reads.
    fn runs(&self, store: &Store, plan: &RestorePlan) -> Result<Vec<Arc<Run>>> {
        let open = |id| Ok(store.open_run(id)?);
        let all: Vec<Arc<Run>> = store.manifest().runs().map(open).collect::<Result<_>>()?;
        let ids: Vec<_> = plan.run_ids().collect();
        Ok(all
            .into_iter()
            .filter(|run| ids.contains(&run.id()))
            .collect())
    }

    /// Reads files piece by piece. Each thread takes the next piece and passes it to `each` with its offset.
    fn each_piece(
        &self,
        files: &Files,
        each: impl Fn(u64, &[u8]) -> Result<()> + Sync,
    ) -> Result<()> {
        let piece = to_u64(PIECE_BYTES);
        let pieces: Vec<(usize, u64)> = files
            .iter()
            .enumerate()
            .flat_map(|(nth, (_, len))| (0..len.div_ceil(piece)).map(move |at| (nth, at * piece)))
            .collect();
        let next = AtomicU64::new(0);
        let work = || -> Result<()> {
            let mut buf = AlignedBuf::zeroed(PIECE_BYTES);
            while let Some((nth, offset)) =
                pieces.get(to_usize(next.fetch_add(1, Ordering::Relaxed)))
            {
                let (file, len) = &files[*nth];
                let want = to_usize(piece.min(len - offset));
                let got = file.read_at(*offset, &mut buf[..want])?;
                anyhow::ensure!(got == want, "{} became shorter", file.path());
                each(*offset, &buf[..want])?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| match thread.join() {
                    Ok(done) => done,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
        })
    }

    /// Runs `f` with the disks of a new database, and removes the database afterwards.
    fn with_new<R>(&self, f: impl FnOnce(&RestoreMeans<'_>, Instant) -> Result<R>) -> Result<R> {
        let streams = self.plan(ModelledDisk::default())?.1.streams();
        self.in_work(|work| {
            let begin = Instant::now();
            let target = self.target.over(Arc::new(FileDisk::new(work)?));
            self.with_disks(Disks::on_one(target, streams), |means| f(means, begin))
        })
    }

    /// Runs `f` with the means of a restore onto these disks.
    fn with_disks<R>(
        &self,
        disks: Disks,
        f: impl FnOnce(&RestoreMeans<'_>) -> Result<R>,
    ) -> Result<R> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let progress = RestoreProgress::default();
        let mut uuid = Uuid([0; 16]);
        fastrand::fill(&mut uuid.0);
        f(&RestoreMeans {
            disks,
            uuid,
            threads: self.threads,
            clock: &clock,
            progress: &progress,
            deadlines: Deadlines::Keep,
        })
    }

    /// Runs `f` with a new directory, and removes the directory afterwards.
    fn in_work<R>(&self, f: impl FnOnce(&Path) -> Result<R>) -> Result<R> {
        let work = self.work.join("perdura-bench-restore");
        std::fs::create_dir_all(&self.work)
            .and_then(|()| std::fs::create_dir(&work))
            .with_context(|| format!("making {}", work.display()))?;
        let done = f(&work);
        std::fs::remove_dir_all(&work).with_context(|| format!("removing {}", work.display()))?;
        done
    }
}
