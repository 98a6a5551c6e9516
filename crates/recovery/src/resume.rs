//! Turns a restarted database into a running one: opens the log of the new life, sets up the checkpointer,
//! and logs the restart. The layer above adds the transactions.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::{Epoch, Pos, Result, StreamId};
use perdura_heap::Heap;
use perdura_wal::segment::SegmentId;
use perdura_wal::{
    ChainLink, EpochEnds, FlushProgress, RestartRecord, Rung, TailOptions, Wal, WalOptions,
};

use crate::anchor_cell::AnchorCell;
use crate::checkpoint::{CheckpointParts, CheckpointProgress, CheckpointStats, Checkpointer, Pin};
use crate::component::Component;
use crate::report::RestartReport;
use crate::restart::{Catalog, RestartOptions, Restarted};
use crate::sweep_digest::SweepDigest;
use crate::tree::RestartedTree;
use crate::tree::checkpoint::TreeCheckpoint;
use crate::window::Window;

/// Past this many closed incarnations in the anchor that checkpoints can leave behind, a restart checkpoints before
/// it serves.
const CHAIN_LONG: usize = 32;

/// A database that may take transactions.
pub struct Resumed {
    /// The pages.
    pub heap: Arc<Heap>,
    /// The log of the new life.
    pub wal: Arc<Wal>,
    /// The anchor.
    pub anchor: Arc<AnchorCell>,
    /// The checkpointer.
    pub checkpoints: Checkpoints,
    /// The tables.
    pub catalog: Catalog,
    /// The tree, and what is to be taken back in it before work begins.
    pub tree: Option<RestartedTree>,
    /// What the restart did.
    pub report: RestartReport,
}

/// The bounds of a stream's memory, which creation does not fix.
#[derive(Debug, Clone, Copy)]
pub struct LogMemory {
    /// The longest log block, bytes.
    pub block_bytes_max: usize,
    /// Bytes that may wait for a stream's flusher before appends are refused.
    pub queue_bytes_max: u64,
    /// Set if other memories hold the log too.
    pub mirror: Option<TailOptions>,
}

/// What a restart hands over comes from one database.
///
/// # Panics
/// If it does not.
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

/// Opens the log of a database that is back. It continues where the restart has cut it.
fn open_log(
    restarted: &Restarted,
    options: &RestartOptions<'_>,
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

/// Opens the log and the checkpointer of a database that is back.
///
/// # Errors
/// The log disks'.
///
/// # Panics
/// After a dry run.
pub fn resume(
    restarted: Restarted,
    options: &RestartOptions<'_>,
    memory: LogMemory,
    window: Arc<dyn Window>,
) -> Result<Resumed> {
    let record = &restarted.record;
    assert_one_database(&restarted);
    let wal = open_log(&restarted, options, memory)?;
    let anchor = Arc::new(restarted.anchor.expect("a dry run resumes nothing"));
    assert_eq!(
        restarted.tree.is_some(),
        record.tree.is_some(),
        "the tree that the anchor names is there"
    );
    let parts = CheckpointParts {
        component: Component::Heap(Arc::clone(&restarted.heap)),
        tree: restarted
            .tree
            .as_ref()
            .map(|tree| TreeCheckpoint::new(Arc::clone(&tree.tree), Arc::clone(&wal))),
        wal: Arc::clone(&wal),
        anchor: Arc::clone(&anchor),
        disks: options.disks.clone(),
        window,
        clock: Arc::clone(&options.clock),
    };
    let machine = Checkpointer::new(parts, restarted.directories);
    // Lives that the archive does not hold stay in the chain, whatever is checkpointed.
    let archived = options.archived.as_ref().or(record.archived.as_ref());
    let is_archived = |link: &&ChainLink| {
        archived.is_none_or(|archived| {
            let mut cuts = link.cut.iter().zip(&archived.ends);
            cuts.all(|(cut, end)| cut <= end)
        })
    };
    let droppable = record.chain.iter().filter(is_archived).count();
    let report = restarted.report;
    wal.append_restart(&RestartRecord {
        incarnation: record.incarnation,
        durable: Epoch(report.durable_epoch),
        ckpt_max: record.ckpt_max,
        cut: report.cut.iter().map(|pos| Pos(*pos)).collect(),
    });
    Ok(Resumed {
        heap: restarted.heap,
        checkpoints: Checkpoints {
            wal: Arc::clone(&wal),
            figures: machine.published(),
            newest: machine.newest_digest(),
            machine: Mutex::new(machine),
            chain_is_long: droppable > CHAIN_LONG,
        },
        wal,
        anchor,
        catalog: restarted.catalog,
        tree: restarted.tree,
        report,
    })
}

/// The checkpoint machine, stepped by one caller at a time.
pub struct Checkpoints {
    wal: Arc<Wal>,
    /// A step holds it for one latch or one I/O.
    machine: Mutex<Checkpointer>,
    figures: Arc<Mutex<CheckpointStats>>,
    newest: Arc<Mutex<Option<Arc<SweepDigest>>>>,
    chain_is_long: bool,
}

impl Checkpoints {
    /// Begins a checkpoint unless one is running.
    ///
    /// # Errors
    /// See [`Checkpointer::begin`].
    pub fn begin(&self) -> Result<()> {
        self.machine.lock().begin()
    }

    /// Holds the newest image, so that no checkpoint overwrites it; see [`Checkpointer::pin_newest`].
    #[must_use]
    pub fn pin_newest(&self) -> Option<Pin> {
        self.machine.lock().pin_newest()
    }

    /// Whether the image that the next checkpoint is to overwrite is held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.machine.lock().is_held()
    }

    /// One step of the running checkpoint.
    ///
    /// # Errors
    /// See [`Checkpointer::step`].
    pub fn step(&self) -> Result<CheckpointProgress> {
        self.machine.lock().step()
    }

    /// Removes what the last checkpoint could not; see [`Checkpointer::clear_away`].
    ///
    /// # Errors
    /// The disk's; try again later.
    pub fn clear_away(&self) -> Result<()> {
        match self.machine.try_lock() {
            Some(mut machine) => machine.clear_away(),
            None => Ok(()),
        }
    }

    /// Notes how far an archive holds the log: no checkpoint cuts it ahead of that. See
    /// [`AnchorCell::set_archived`].
    ///
    /// # Errors
    /// As there.
    pub fn set_archived(&self, end: &EpochEnds) -> Result<()> {
        self.machine.lock().set_archived(end)
    }

    /// Gives the running checkpoint up, unless its image is being named already. Returns whether
    /// one was given up.
    pub fn abandon(&self) -> bool {
        self.machine.lock().abandon()
    }

    /// To be called once the first key-addressed table is attached and before its first ordered frame is
    /// logged: gives a running fuzzy sweep up. Later checkpoints are cuts.
    pub fn require_cuts(&self) {
        self.machine.lock().require_cuts();
    }

    /// Whether a checkpoint is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.machine.lock().is_running()
    }

    /// Runs one whole checkpoint, flushing as it goes: for callers without threads.
    ///
    /// # Errors
    /// See [`step`](Self::step).
    pub fn now(&self) -> Result<()> {
        self.begin()?;
        loop {
            match self.step()? {
                CheckpointProgress::Idle | CheckpointProgress::Done => return Ok(()),
                CheckpointProgress::Working(_) => {}
                CheckpointProgress::Waiting => flush_all(&self.wal)?,
            }
        }
    }

    /// After a restart, before work is taken: if the anchor's chain has grown long, two checkpoints,
    /// so that both images and with them the log leave the old incarnations behind. One that a
    /// disk cancels is no reason not to serve: the next restart tries again.
    ///
    /// # Errors
    /// The log has stopped.
    pub fn shorten_chain(&self) -> Result<()> {
        if self.chain_is_long {
            let _cancelled = self.now().and_then(|()| self.now());
            self.wal.check()?;
        }
        Ok(())
    }

    /// The digest of the newest image; `None` as long as it is not known. Reading it never waits for a step.
    #[must_use]
    pub fn newest_digest(&self) -> Option<Arc<SweepDigest>> {
        self.newest.lock().clone()
    }

    /// Figures; reading them never waits for a step.
    #[must_use]
    pub fn stats(&self) -> CheckpointStats {
        *self.figures.lock()
    }
}

/// Closes the open epoch and flushes until everything is durable: for callers without threads.
///
/// # Errors
/// See [`Wal::flush_step`].
pub fn flush_all(wal: &Wal) -> Result<()> {
    wal.close_epoch();
    for stream in (0..wal.streams()).map(StreamId) {
        while wal.flush_step(stream)? != FlushProgress::Idle {}
    }
    Ok(())
}
