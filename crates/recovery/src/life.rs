//! A life of a database: an open database without its transactions. It works with any kind of transaction.
//!
//! A life begins after a restart. The life opens the log at the restart's cut, logs the begin of the life, and undoes
//! the last life's open transactions. The layer above runs the transactions. That layer is the product's engine, or a
//! test harness with transactions that interleave over slots or over keys. A life has no threads: its caller closes
//! epochs, flushes blocks and takes checkpoints in steps.

mod checkpoints;

use std::sync::Arc;

use perdura_base::{Epoch, Pos, Result, StreamId};
use perdura_device::Clock;
use perdura_heap::Heap;
use perdura_wal::segment::SegmentId;
use perdura_wal::{FlushProgress, RestartRecord, Rung, Scheme, TailOptions, Wal, WalOptions};

use crate::anchor_cell::AnchorCell;
use crate::checkpoint::{CheckpointParts, CheckpointProgress, CheckpointStats, Checkpointer};
use crate::close::is_chain_long;
use crate::component::{Data, shares};
use crate::demand::Loading;
use crate::flush::flush_all;
use crate::footing::Footing;
use crate::owner::{OWNERS, Open};
use crate::report::RestartReport;
use crate::restart::{Catalog, RestartOptions, Restarted};
use crate::tree::live::LiveTree;
use crate::tree::losers::Loser;
use crate::vouch::{mark_clean, vouch, vouch_last};
use crate::window::Window;

pub use checkpoints::Checkpoints;

/// An open database that can take transactions.
pub struct Life {
    /// The pages in memory.
    pub heap: Arc<Heap>,
    /// The trees.
    pub trees: Vec<Arc<LiveTree>>,
    /// The log.
    pub wal: Arc<Wal>,
    /// The anchor.
    pub anchor: Arc<AnchorCell>,
    /// The state machine that takes checkpoints.
    pub checkpoints: Checkpoints,
    /// The tables that the restart found.
    pub catalog: Catalog,
    /// The restart's report.
    pub report: RestartReport,
    /// The partitions that the restart has left absent. `None`: it has loaded everything.
    pub loading: Option<Arc<Loading>>,
    /// The files and directories that this life uses.
    footing: Footing,
}

/// The bounds of a log stream's memory. Each life may set other bounds.
#[derive(Debug, Clone, Copy)]
pub struct LogMemory {
    /// The longest log block, bytes.
    pub block_bytes_max: usize,
    /// Bytes that may wait for a stream's flusher before appends are refused.
    pub queue_bytes_max: u64,
    /// The number of lanes of each stream; see [`perdura_wal::WalOptions`].
    pub lanes: usize,
    /// The options of mirroring the log to the memory of nodes. `None`: the log is not mirrored.
    pub mirror: Option<TailOptions>,
}

/// Checks that the pages, the log and the anchor of a restart belong to one database.
///
/// # Panics
/// If they do not.
fn assert_one_database(restarted: &Restarted) {
    let record = &restarted.record;
    assert_eq!(
        *restarted.heap.geometry(),
        record.geometry,
        "pages lie where the anchor says"
    );
    assert_eq!(
        restarted.report.durable_epoch, restarted.wal_start.durable.0,
        "the log goes on where it was cut"
    );
    assert_eq!(
        restarted.report.cut.len(),
        restarted.wal_start.start.len(),
        "the log goes on in each stream that was cut"
    );
}

/// Opens the log of a restarted database. Appends begin at the position where the restart has cut the log.
fn open_log(
    restarted: &Restarted,
    options: &RestartOptions,
    memory: LogMemory,
) -> Result<Arc<Wal>> {
    let record = &restarted.record;
    let chain = record.chain.clone();
    let is_live = |id: &SegmentId| {
        chain.iter().any(|link| {
            link.incarnation == id.incarnation && id.start < link.cut[usize::from(id.stream.0)]
        })
    };
    let wal = Arc::new(Wal::open(
        &options.disks.logs,
        Arc::clone(&options.clock),
        WalOptions {
            segments: record.segments,
            block_bytes_max: memory.block_bytes_max,
            queue_bytes_max: memory.queue_bytes_max,
            lanes: memory.lanes,
            mirror: memory.mirror,
        },
        restarted.wal_start.clone(),
        is_live,
    )?);
    assert_eq!(
        usize::from(wal.streams()),
        options.disks.logs.len(),
        "a stream for each log directory"
    );
    assert_eq!(
        wal.durable(Rung::Disk).0,
        restarted.report.durable_epoch,
        "nothing becomes durable before the restart is noted"
    );
    Ok(wal)
}

/// Checks that the log of a new life continues after the last epoch that the restart kept.
fn assert_begun(life: &Life) {
    let (kept, durable) = (Epoch(life.report.durable_epoch), life.durable());
    assert!(
        kept <= durable && durable < life.wal.current(),
        "I7: a log continues behind the epoch {kept} that its restart kept"
    );
}

impl Life {
    /// Begins the life of a restarted database: opens the log, makes the checkpoint machine, and makes every owner undo
    /// the last life's open transactions.
    ///
    /// # Errors
    /// Errors of the log disks, and of the disks that hold trees. The next start undoes the transactions that were not
    /// undone before the error.
    ///
    /// # Panics
    /// After a dry run.
    pub fn begin(
        restarted: Restarted,
        options: &RestartOptions,
        memory: LogMemory,
        window: Arc<dyn Window>,
    ) -> Result<Life> {
        assert_one_database(&restarted);
        let wal = open_log(&restarted, options, memory)?;
        let Restarted {
            heap,
            anchor,
            record,
            directories,
            catalog,
            tree,
            report,
            loading,
            mut footing,
            ..
        } = restarted;
        // If the restart noted a path, that note stays. So `check` detects a directory that was replaced after the
        // restart noted it.
        footing.note(&options.disks);
        let anchor = Arc::new(anchor.expect("a dry run resumes nothing"));
        let (trees, losers) = LiveTree::all(tree, &record, &wal);
        let parts = CheckpointParts {
            shares: shares(),
            heap: Arc::clone(&heap),
            trees: trees.clone(),
            wal: Arc::clone(&wal),
            anchor: Arc::clone(&anchor),
            disks: options.disks.clone(),
            window,
            clock: Arc::clone(&options.clock),
            threads: options.schedule.inline.is_none(),
        };
        let machine = Checkpointer::new(parts, directories);
        let chain_is_long = is_chain_long(&record, options);
        wal.append_restart(&RestartRecord {
            incarnation: record.incarnation,
            durable: Epoch(report.durable_epoch),
            ckpt_max: record.ckpt_max,
            cut: report.cut.iter().map(|pos| Pos(*pos)).collect(),
        });
        let mut life = Life {
            heap,
            trees,
            checkpoints: Checkpoints::new(
                Arc::clone(&wal),
                machine,
                chain_is_long,
                loading.clone(),
            ),
            loading,
            wal,
            anchor,
            catalog,
            report,
            footing,
        };
        life.settle(losers, options.clock.as_ref())?;
        assert_begun(&life);
        Ok(life)
    }

    /// Returns whether all partitions are loaded.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.loading
            .as_ref()
            .is_none_or(|loading| loading.is_done())
    }

    /// Loads the next partition that the restart has left absent. Returns whether there was one.
    ///
    /// # Errors
    /// As [`Loading::load`].
    pub fn load_next(&self) -> Result<bool> {
        self.loading
            .as_ref()
            .map_or(Ok(false), |loading| loading.load_next())
    }

    /// Loads all partitions that the restart has left absent.
    ///
    /// # Errors
    /// As [`Loading::load`].
    pub fn load_all(&self) -> Result<()> {
        self.loading
            .as_ref()
            .map_or(Ok(()), |loading| loading.load_all())
    }

    /// Returns the heap to read the catalog from. While partitions are absent, it has only the catalog, as of the
    /// restart.
    #[must_use]
    pub fn catalog_heap(&self) -> Arc<Heap> {
        let loading = self.loading.as_ref();
        let catalog = loading.and_then(|loading| loading.catalog_heap());
        catalog.unwrap_or_else(|| Arc::clone(&self.heap))
    }

    /// Returns the pages. All partitions must be loaded.
    ///
    /// # Panics
    /// If a partition is absent.
    #[must_use]
    pub fn data(&self) -> Data<'_> {
        assert!(self.is_loaded(), "all data is read before all is loaded");
        Data {
            heap: &self.heap,
            trees: self.trees.iter().map(|live| &**live.tree()).collect(),
            eosl: self.wal.eosl(Rung::Disk),
        }
    }

    /// Undoes the transactions that the last life left open. The owners work one after another, in the owners' order.
    fn settle(&mut self, losers: Vec<Loser>, clock: &dyn Clock) -> Result<()> {
        let begin = clock.mono_ns();
        let mut open = Open {
            trees: &self.trees,
            losers,
        };
        let mut undone = 0;
        for owner in OWNERS {
            undone += owner.settle(&mut open)?;
        }
        assert!(open.losers.is_empty(), "what was open is undone");
        let ns = clock.mono_ns().saturating_sub(begin);
        self.report.took_back(undone, ns);
        Ok(())
    }

    /// Returns the log.
    #[must_use]
    pub fn wal(&self) -> &Arc<Wal> {
        &self.wal
    }

    /// Returns the pages in memory.
    #[must_use]
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// Returns the anchor.
    #[must_use]
    pub fn anchor(&self) -> &Arc<AnchorCell> {
        &self.anchor
    }

    /// Returns the restart's report.
    #[must_use]
    pub fn report(&self) -> &RestartReport {
        &self.report
    }

    /// Returns the scheme of page records, from the anchor.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.anchor.get().scheme
    }

    /// Returns the durable epoch: transactions up to this epoch survive a crash.
    #[must_use]
    pub fn durable(&self) -> Epoch {
        self.wal.durable(Rung::Disk)
    }

    /// Closes the open epoch and returns it. If the open epoch has no record, it stays open, and `None` is returned.
    pub fn close_epoch(&self) -> Option<Epoch> {
        let closed = self.wal.close_epoch();
        assert!(
            closed.is_none_or(|epoch| epoch < self.wal.current()),
            "no commit joins an epoch that is closed"
        );
        closed
    }

    /// Takes one step of a stream's flusher.
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

    /// Fails, and stops the log, if a directory, a lock, the anchor or a segment that is being written is no longer at
    /// its path.
    ///
    /// # Errors
    /// [`Error::Displaced`](perdura_base::Error::Displaced); if the log has stopped, its error.
    pub fn check_files(&self) -> Result<()> {
        self.wal.check()?;
        let checked = self.footing.check();
        let Err(error) = checked.and_then(|()| self.wal.check_segments()) else {
            return Ok(());
        };
        self.wal.stop("the database's files", &error);
        self.wal.check()
    }

    /// Makes the anchor vouch for everything that is durable now; see [`vouch()`]. Returns whether the anchor had to be
    /// written.
    ///
    /// # Errors
    /// The log has stopped. Or the database's files are gone, which stops the log. Or the anchor cannot be written. A
    /// failed write of the anchor also stops the log, but a lack of space does not stop it.
    pub fn vouch(&self) -> Result<bool> {
        if self.anchor.get().vouched.epoch < self.wal.durable(Rung::Disk) {
            self.check_files()?;
        }
        vouch(&self.anchor, &self.wal)
    }

    /// Makes the anchor, at the end of a life, vouch for everything that is durable. Syncs the anchor only once. See
    /// [`vouch_last()`].
    ///
    /// # Errors
    /// The log has stopped, or the anchor cannot be written.
    pub fn vouch_last(&self) -> Result<()> {
        vouch_last(&self.anchor, &self.wal)
    }

    /// Returns the checkpoint machine.
    #[must_use]
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Begins a checkpoint unless one is running.
    ///
    /// # Errors
    /// See [`Checkpoints::begin`]. An error cancels the checkpoint. [`Wal::failure`] says whether it has also stopped
    /// the database.
    pub fn checkpoint_begin(&self) -> Result<()> {
        self.checkpoints.begin()
    }

    /// Takes one step of the running checkpoint.
    ///
    /// # Errors
    /// See [`Checkpoints::step`]. An error cancels the checkpoint. [`Wal::failure`] says whether it has also stopped
    /// the database.
    pub fn checkpoint_step(&self) -> Result<CheckpointProgress> {
        self.checkpoints.step()
    }

    /// Gives up the running checkpoint, unless the anchor may already name the checkpoint's image. Returns whether a
    /// checkpoint was given up.
    pub fn checkpoint_cancel(&self) -> bool {
        self.checkpoints.abandon()
    }

    /// Returns whether a checkpoint is running.
    #[must_use]
    pub fn checkpoint_is_running(&self) -> bool {
        self.checkpoints.is_running()
    }

    /// Runs one whole checkpoint, and flushes the log as needed. For callers without threads.
    ///
    /// # Errors
    /// See [`checkpoint_step`](Self::checkpoint_step).
    pub fn checkpoint_now(&self) -> Result<()> {
        self.checkpoints.now()
    }

    /// Returns the statistics of the checkpoints.
    #[must_use]
    pub fn checkpoint_stats(&self) -> CheckpointStats {
        self.checkpoints.stats()
    }

    /// Marks the anchor clean. The caller has taken a checkpoint and flushed the log, and nothing is running.
    ///
    /// # Errors
    /// [`perdura_base::Error::Stopped`] with the error of the anchor's disk.
    pub fn mark_clean(&self) -> Result<()> {
        mark_clean(&self.anchor, &self.wal)
    }

    /// Ends the life: takes a checkpoint, flushes, and marks the anchor clean. No transaction may be running.
    ///
    /// # Errors
    /// See [`checkpoint_step`](Self::checkpoint_step) and [`mark_clean`](Self::mark_clean).
    pub fn close(&self) -> Result<()> {
        self.checkpoint_now()?;
        self.flush_all()?;
        self.mark_clean()
    }
}
