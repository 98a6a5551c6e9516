//! Compares restoring an archive with copying its backup: the same bytes on the same modelled disks.
//!
//! The archive and the new database are in directories, best in memory (`/dev/shm`). In front of each is a modelled
//! disk: the *source*, which has the backup and the runs, and the *target*. The copier reads the backup's file,
//! writes the bytes to the target, and syncs at the end. It has as many threads as the restore, and its reads and
//! writes have the same length. The copy is the same database as a restore without the log would make. Each round
//! measures copy and restore in turn.
//!
//! | module | one idea |
//! |---|---|
//! | [`mod@bench`] | rounds of all that is measured, and medians |

pub mod bench;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use perdura_archive::{Run, Store};
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Epoch, Uuid};
use perdura_device::{Access, AlignedBuf, Disk, FileDisk, SystemClock};
use perdura_recovery::Disks;
use perdura_restore::{
    ReplayReport, RestoreMeans, RestorePlan, RestoreProgress, RestoreReport, restore,
    restore_in_log_order,
};

use crate::drive::ModelledDisk;

/// The size of the copier's reads and writes, bytes. A restore's are as long.
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
    /// The epoch to restore. `None`: the last one that the archive has.
    pub at: Option<Epoch>,
    /// The directory in which the new databases are made. It is made, and each database is removed after its
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
    /// The size of the runs, bytes.
    pub log_bytes: u64,
    /// The number of runs.
    pub runs: usize,
}

impl Restoring {
    /// Returns the parts of the archive that a restore reads.
    ///
    /// # Errors
    /// Those of [`RestorePlan::from_archive`].
    pub fn inputs(&self) -> Result<Inputs> {
        let (store, plan) = self.plan(ModelledDisk::default())?;
        let runs = self.runs(&store, &plan)?;
        let log_bytes = runs.iter().map(|run| run.bytes()).sum();
        let inputs = Inputs {
            backup_bytes: plan.bytes() - log_bytes,
            log_bytes,
            runs: runs.len(),
        };
        Ok(inputs)
    }

    /// Restores the archive. Returns the time from the opening of the archive to the last sync, seconds, and the
    /// restore's report.
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

    /// Restores by replaying the log in its order, through a pool of `buffer_pages` pages.
    ///
    /// # Errors
    /// Errors of the restore.
    pub fn replay(&self, buffer_pages: usize) -> Result<ReplayReport> {
        self.with_new(|means, _| {
            let (_, plan) = self.plan(self.source)?;
            Ok(restore_in_log_order(&plan, means, buffer_pages)?)
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
        let store = Store::read_only(source.over(self.archive()?), &self.uuid)?;
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

    /// Runs `f` with the disks of a new database, and removes them afterwards.
    fn with_new<R>(&self, f: impl FnOnce(&RestoreMeans<'_>, Instant) -> Result<R>) -> Result<R> {
        let streams = self.plan(ModelledDisk::default())?.1.streams();
        self.in_work(|work| {
            let begin = Instant::now();
            let target = self.target.over(Arc::new(FileDisk::new(work)?));
            let (clock, progress) = (SystemClock::new(), RestoreProgress::default());
            let mut uuid = Uuid([0; 16]);
            fastrand::fill(&mut uuid.0);
            let means = RestoreMeans {
                disks: Disks::on_one(target, streams),
                uuid,
                threads: self.threads,
                clock: &clock,
                progress: &progress,
            };
            f(&means, begin)
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
