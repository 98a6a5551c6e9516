//! The database: creating it, opening it, and everything around its transactions. It has no threads: its caller closes epochs,
//! flushes blocks, writes pages and takes checkpoints in steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, Result, StreamId};
use perdura_device::Clock;
use perdura_heap::{Geometry, MemoryAccount};
use perdura_recovery::found::find;
use perdura_recovery::indexing::NoTables;
use perdura_recovery::read_anchor;
use perdura_recovery::restart::{
    NewDatabase, NewTree, RestartOptions, create_with_tree, restart_with_tree,
};
use perdura_recovery::resume::{Checkpoints, LogMemory, flush_all, resume};
use perdura_recovery::tree::losers::Loser;
use perdura_recovery::tree::writer::{RecordBytes, TreeWriter};
use perdura_recovery::{
    AnchorCell, CheckpointProgress, CheckpointStats, Method, Progress, RestartReport, vouch,
};
use perdura_tree::bulk::NewRow;
use perdura_tree::contract::{Answer, insist};
use perdura_tree::pool::Progress as Written;
use perdura_tree::tree::Tree;
use perdura_wal::{ActiveTxn, FlushProgress, Mode, Rung, Scheme, SegmentSizes, Wal};

use super::locks::Locks;
use super::options::KeyedOptions;
use super::txn::KeyTxn;
use crate::engine::{NUMBER_SHIFT, new_uuid};
use crate::options::StealEnv;
use crate::streams::Streams;
use crate::txn::Committed;

/// The error of a call that finds no room in memory: once the log is flushed it has some.
pub(super) fn pages_wait() -> Error {
    Error::LogFull(String::from(
        "the pages in memory are dirty, and wait for the log before they can be written",
    ))
}

/// How full the leaves of a table are that a database is made with, percent.
const FILL_PERCENT: usize = 90;

/// Figures since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyedStats {
    /// Transactions committed.
    pub commits: u64,
    /// Transactions rolled back, those of the life before included.
    pub aborts: u64,
    /// Changes made, compensations not included.
    pub updates: u64,
    /// Changes taken back.
    pub compensations: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub commits: AtomicU64,
    pub aborts: AtomicU64,
    pub updates: AtomicU64,
    pub compensations: AtomicU64,
}

/// An open database of transactions over keys. All methods take `&self`; a [`KeyTxn`] belongs to one thread at a time.
pub struct Keyed {
    pub(super) options: KeyedOptions,
    pub(super) tree: Arc<Tree>,
    pub(super) wal: Arc<Wal>,
    pub(super) writer: TreeWriter,
    pub(super) streams: Arc<Streams>,
    pub(super) locks: Locks,
    pub(super) next_txn: CachePadded<AtomicU64>,
    pub(super) counters: CachePadded<Counters>,
    scheme: Scheme,
    anchor: Arc<AnchorCell>,
    checkpoints: Checkpoints,
    report: RestartReport,
}

impl Keyed {
    /// Makes a database and opens it. Its tables are empty, but for the first of them if there are `rows`, which ascend by their keys:
    /// they are there as soon as the database is.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is a database already, an option is out of its range, or rows do not ascend; the disks'.
    pub fn create(
        env: StealEnv,
        options: KeyedOptions,
        rows: Option<&mut dyn Iterator<Item = NewRow>>,
    ) -> Result<Keyed> {
        options.check(&env)?;
        // One that has lost its anchor is not made anew: its log tells.
        if find(env.disks.data.as_ref(), &env.disks.logs)?.is_some() {
            return Err(Error::Usage(format!(
                "there is a database in {} already",
                env.disks.data.name()
            )));
        }
        let new = NewDatabase {
            uuid: new_uuid(env.seed),
            geometry: Geometry {
                partitions: 1,
                chunk_pages: 1,
                hash_seed: 0,
            },
            streams: u8::try_from(env.disks.logs.len()).expect("at most 16 streams"),
            segments: SegmentSizes::fixed(options.segment_bytes),
            scheme: options.scheme,
        };
        let mut none = std::iter::empty();
        let tree = NewTree {
            page_bytes: options.page_bytes,
            tables: &options.tables,
            rows: rows.unwrap_or(&mut none),
            percent: FILL_PERCENT,
        };
        create_with_tree(&env.disks, env.clock.as_ref(), &new, tree)?;
        let opened = Keyed::open(env, options)?;
        Ok(opened.expect("the database was made just now"))
    }

    /// Brings the database on these disks back; `Ok(None)` if there is none. What its last life left open is taken back.
    /// [`report`](Self::report) says what was done.
    ///
    /// # Errors
    /// See [`restart_with_tree`]; the disks'.
    pub fn open(env: StealEnv, options: KeyedOptions) -> Result<Option<Keyed>> {
        let Some(found) = read_anchor(env.disks.data.as_ref())? else {
            return Ok(None);
        };
        if found.scheme.mode() != Mode::Keyed {
            return Err(Error::Usage(format!(
                "the database in {} is of the logging scheme {}, and has no tree",
                env.disks.data.name(),
                found.scheme.name()
            )));
        }
        options.check_open()?;
        let method = Method::by_name(options.method, found.scheme).map_err(Error::Usage)?;
        let restart_options = RestartOptions {
            disks: env.disks.clone(),
            clock: Arc::clone(&env.clock),
            schedule: options.schedule,
            method,
            supplied: &[],
            ordered: None,
            archived: None,
            dry_run: false,
            memory: Arc::new(MemoryAccount::new(u64::MAX)),
            catalog: Arc::new(NoTables),
            progress: Arc::new(Progress::default()),
        };
        let restarted = restart_with_tree(&restart_options, Some(&options.means()))?;
        let restarted = restarted.expect("its anchor was read just now");
        let incarnation = restarted.record.incarnation;
        let log_memory = LogMemory {
            block_bytes_max: options.block_bytes_max,
            queue_bytes_max: options.queue_bytes_max,
        };
        let streams = Arc::new(Streams::new(restarted.record.streams));
        let resumed = resume(restarted, &restart_options, log_memory, streams.clone())?;
        let tree = resumed.tree.expect("a scheme with a tree");
        let mut keyed = Keyed {
            writer: TreeWriter::new(Arc::clone(&resumed.wal)),
            tree: tree.tree,
            wal: resumed.wal,
            streams,
            locks: Locks::new(),
            next_txn: CachePadded::new(AtomicU64::new(u64::from(incarnation.0) << NUMBER_SHIFT)),
            counters: CachePadded::default(),
            scheme: found.scheme,
            anchor: resumed.anchor,
            checkpoints: resumed.checkpoints,
            report: resumed.report,
            options,
        };
        keyed.take_back(tree.losers, env.clock.as_ref())?;
        assert!(
            keyed.durable() < keyed.wal.current(),
            "a log goes on behind what its restart kept"
        );
        assert_eq!(
            usize::from(keyed.wal.streams()),
            keyed.streams.count(),
            "each stream of the log has its active list"
        );
        keyed.checkpoints.shorten_chain()?;
        Ok(Some(keyed))
    }

    /// Takes back what the last life left open, in this one, which the anchor names by now.
    fn take_back(&mut self, losers: Vec<Loser>, clock: &dyn Clock) -> Result<()> {
        if armed(Flaw::LosersForgotten) {
            return Ok(());
        }
        let begin = clock.mono_ns();
        for loser in losers {
            let listed = ActiveTxn {
                txn: loser.txn,
                first: loser.first,
            };
            self.streams.active(loser.stream).lock().push(listed);
            let mut txn = KeyTxn::of_loser(loser);
            for row in txn.rows() {
                let taken = self.locks.take(row, txn.id());
                assert_eq!(taken, Some(true), "a row belonged to one transaction");
            }
            // One that is refused again when the log is flushed has no space: the next start goes on.
            let mut was_refused = false;
            loop {
                match self.abort_step(&mut txn) {
                    Ok(true) => break,
                    Ok(false) => was_refused = false,
                    Err(Error::LogFull(_)) if !was_refused => {
                        was_refused = true;
                        self.flush_all()?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        self.report.records.undone = self.stats().compensations;
        let ns = clock.mono_ns().saturating_sub(begin);
        self.report.seconds.undo = std::time::Duration::from_nanos(ns).as_secs_f64();
        self.report.seconds.total += self.report.seconds.undo;
        Ok(())
    }

    /// The log.
    #[must_use]
    pub fn wal(&self) -> &Arc<Wal> {
        &self.wal
    }

    /// The tree.
    #[must_use]
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The anchor.
    #[must_use]
    pub fn anchor(&self) -> &Arc<AnchorCell> {
        &self.anchor
    }

    /// What the restart did.
    #[must_use]
    pub fn report(&self) -> &RestartReport {
        &self.report
    }

    /// The logging scheme, as the anchor has it.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The settings it was opened with.
    #[must_use]
    pub fn options(&self) -> &KeyedOptions {
        &self.options
    }

    /// Figures since it was opened.
    #[must_use]
    pub fn stats(&self) -> KeyedStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        KeyedStats {
            commits: load(&self.counters.commits),
            aborts: load(&self.counters.aborts),
            updates: load(&self.counters.updates),
            compensations: load(&self.counters.compensations),
        }
    }

    /// Bytes of the tree's records since it was opened, but for those of checkpoints.
    #[must_use]
    pub fn record_bytes(&self) -> RecordBytes {
        self.writer.bytes()
    }

    /// Every transaction up to this epoch survives a crash.
    #[must_use]
    pub fn durable(&self) -> Epoch {
        self.wal.durable(Rung::Disk)
    }

    /// Whether a commit may be acknowledged.
    #[must_use]
    pub fn is_acked(&self, committed: &Committed) -> bool {
        self.durable() >= committed.epoch
    }

    /// Repeats a call whose pages find no frame, with steps of the writer in between.
    pub(super) fn insist<T>(&self, call: impl FnMut() -> Result<Answer<T>>) -> Result<T> {
        if let Some(value) = insist(call, || self.write_step())? {
            return Ok(value);
        }
        self.wal.check()?;
        Err(pages_wait())
    }

    /// Cuts the notes of pages if they are due.
    pub(super) fn cut_notes(&self) {
        // Read before the monitor's mutex is taken: see its module.
        let eosl = self.wal.eosl(Rung::Disk);
        self.tree.cut_notes(eosl, &self.writer);
    }

    /// Whether so many pages are dirty that the writer should work.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.tree.pool().monitor().lock().dirty_count() > self.options.dirty_max()
    }

    /// One step of the writer of pages.
    ///
    /// # Errors
    /// The disk's, after which nothing more is written.
    pub fn write_step(&self) -> Result<Written> {
        let written = self.tree.pool().write_step(self.wal.eosl(Rung::Disk))?;
        self.cut_notes();
        Ok(written)
    }

    /// Closes the open epoch, if it has anything.
    pub fn close_epoch(&self) -> Option<Epoch> {
        self.wal.close_epoch()
    }

    /// The first half of closing an epoch; see [`Wal::close_begin`].
    pub fn close_begin(&self) -> Option<Epoch> {
        self.wal.close_begin()
    }

    /// Visits one stream of a closing that was begun; see [`Wal::close_visit`].
    pub fn close_visit(&self, stream: StreamId) {
        self.wal.close_visit(stream);
    }

    /// One step of a stream's flusher.
    ///
    /// # Errors
    /// See [`Wal::flush_step`].
    pub fn flush_step(&self, stream: StreamId) -> Result<FlushProgress> {
        self.wal.flush_step(stream)
    }

    /// Closes the open epoch and flushes until everything is durable.
    ///
    /// # Errors
    /// See [`Wal::flush_step`].
    pub fn flush_all(&self) -> Result<()> {
        flush_all(&self.wal)
    }

    /// Makes the anchor vouch for what is durable now.
    ///
    /// # Errors
    /// See [`vouch()`].
    pub fn vouch(&self) -> Result<bool> {
        vouch(&self.anchor, &self.wal)
    }

    /// The checkpoint machine.
    #[must_use]
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Begins a checkpoint unless one is running.
    ///
    /// # Errors
    /// See [`Checkpoints::begin`].
    pub fn checkpoint_begin(&self) -> Result<()> {
        self.checkpoints.begin()
    }

    /// One step of the running checkpoint.
    ///
    /// # Errors
    /// See [`Checkpoints::step`].
    pub fn checkpoint_step(&self) -> Result<CheckpointProgress> {
        self.checkpoints.step()
    }

    /// Gives the running checkpoint up, unless it is being named already. Returns whether one was given up.
    pub fn checkpoint_cancel(&self) -> bool {
        self.checkpoints.abandon()
    }

    /// Figures of the checkpointer.
    #[must_use]
    pub fn checkpoint_stats(&self) -> CheckpointStats {
        self.checkpoints.stats()
    }

    /// Runs one whole checkpoint, flushing as it goes.
    ///
    /// # Errors
    /// See [`Checkpoints::step`].
    pub fn checkpoint_now(&self) -> Result<()> {
        self.checkpoints.now()
    }
}
