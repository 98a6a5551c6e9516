//! The database: creating it, opening it, and what it has beside its log: a tree whose pages its caller writes in steps, and figures.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Error, Result};
use perdura_device::Clock;
use perdura_heap::Geometry;
use perdura_recovery::found::find;
use perdura_recovery::restart::{NewTree, create_with_tree, restart_with_tree};
use perdura_recovery::resume::LogMemory;
use perdura_recovery::tree::losers::Loser;
use perdura_recovery::tree::writer::{RecordBytes, TreeWriter};
use perdura_recovery::{Tail, read_anchor};
use perdura_tree::bulk::NewRow;
use perdura_tree::contract::{Answer, insist};
use perdura_tree::pool::Progress as Written;
use perdura_tree::tree::Tree;
use perdura_wal::{ActiveTxn, Mode, Rung};

use super::locks::Locks;
use super::options::KeyedOptions;
use super::txn::KeyTxn;
use crate::env::StealEnv;
use crate::running::Running;
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
    pub(super) writer: TreeWriter,
    pub(super) locks: Locks,
    pub(super) counters: CachePadded<Counters>,
    running: Running,
}

impl Deref for Keyed {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
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
        let is_there = find(env.disks.data.as_ref(), &env.disks.logs)?.is_some();
        let geometry = Geometry {
            partitions: 1,
            chunk_pages: 1,
            hash_seed: 0,
        };
        let logged = (options.scheme, options.segment_bytes);
        let new = env.new_database(is_there, geometry, logged)?;
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
    /// [`report`](Running::report) says what was done.
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
        let mut restart_options =
            env.restart_options(options.schedule, options.method, found.scheme)?;
        if options.accept_loss {
            restart_options.tail = Tail::GivenUp;
        }
        let restarted = restart_with_tree(&restart_options, Some(&options.means()))?;
        let restarted = restarted.expect("its anchor was read just now");
        let log_memory = LogMemory {
            block_bytes_max: options.block_bytes_max,
            queue_bytes_max: options.queue_bytes_max,
            mirror: options.mirror,
        };
        let (running, _, tree) = Running::resume(restarted, &restart_options, log_memory)?;
        let tree = tree.expect("a scheme with a tree");
        let mut keyed = Keyed {
            options,
            tree: tree.tree,
            writer: TreeWriter::new(Arc::clone(running.wal())),
            locks: Locks::new(),
            counters: CachePadded::default(),
            running,
        };
        keyed.take_back(tree.losers, env.clock.as_ref())?;
        assert!(
            keyed.durable() < keyed.wal.current(),
            "a log goes on behind what its restart kept"
        );
        keyed.checkpoints().shorten_chain()?;
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
        let undone = self.stats().compensations;
        let ns = clock.mono_ns().saturating_sub(begin);
        self.running.report.took_back(undone, ns);
        Ok(())
    }

    /// The tree.
    #[must_use]
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
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

    /// Whether a commit may be acknowledged: with a mirror as soon as that holds it.
    #[must_use]
    pub fn is_acked(&self, committed: &Committed) -> bool {
        self.wal.durable(Rung::Mirror) >= committed.epoch
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
        let eosl = self.wal.eosl(match armed(Flaw::PageOnMirror) {
            true => Rung::Mirror,
            false => Rung::Disk,
        });
        let written = self.tree.pool().write_step(eosl)?;
        self.cut_notes();
        Ok(written)
    }
}
