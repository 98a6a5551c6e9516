//! The database of keyed rows: creation and opening, and access to the tree and the transactions.

use std::ops::Deref;
use std::sync::Arc;

use perdura_base::{Error, Result};
use perdura_heap::Geometry;
use perdura_recovery::found::find;
use perdura_recovery::restart::{NewTree, create, restart};
use perdura_recovery::{ExecutorWindow, Life, LogMemory, Tail, read_anchor};
use perdura_tree::bulk::NewRow;
use perdura_tree::tree::Tree;
use perdura_wal::{Rung, Scheme};

use super::options::KeyedOptions;
use super::txn::KeyTxns;
use crate::env::StealEnv;
use crate::txn::Committed;

/// The fill percentage of leaves in a table created with rows.
const FILL_PERCENT: usize = 90;

/// An open database of transactions over keys. All methods take `&self`; a [`KeyTxn`](super::KeyTxn) belongs to one
/// thread at a time. A `Keyed` dereferences to its [`Life`].
pub struct Keyed {
    options: KeyedOptions,
    txns: KeyTxns,
    life: Life,
}

impl Deref for Keyed {
    type Target = Life;

    fn deref(&self) -> &Life {
        &self.life
    }
}

impl Keyed {
    /// Creates a database and opens it. Puts `rows` into the first table; their keys must ascend. The other tables are
    /// empty. The rows are durable once the database exists.
    ///
    /// # Errors
    /// [`Error::Usage`] if the disks already have a database, an option is out of its range, or rows do not ascend;
    /// errors of the disks.
    pub fn create(
        env: StealEnv,
        options: KeyedOptions,
        rows: Option<&mut dyn Iterator<Item = NewRow>>,
    ) -> Result<Keyed> {
        options.check(&env)?;
        // A database that has lost its anchor still has its log. It must not be replaced by a new database.
        let is_there = find(env.disks.data.as_ref(), &env.disks.logs)?.is_some();
        let geometry = Geometry {
            partitions: 1,
            chunk_pages: 1,
            hash_seed: 0,
        };
        let logged = (Scheme::Differential, options.segment_bytes);
        let new = env.new_database(is_there, geometry, logged)?;
        let mut none = std::iter::empty();
        let tree = NewTree {
            scheme: options.scheme,
            page_bytes: options.page_bytes,
            tables: &options.tables,
            rows: rows.unwrap_or(&mut none),
            percent: FILL_PERCENT,
        };
        create(&env.disks, env.clock.as_ref(), &new, Some(tree))?;
        let opened = Keyed::open(env, options)?;
        Ok(opened.expect("the database was made just now"))
    }

    /// Restarts the database on these disks. `Ok(None)`: the disks have no database. The restart undoes the
    /// transactions left open by the last stop. [`report`](Life::report) describes the restart.
    ///
    /// # Errors
    /// Errors of [`restart`] and of the disks.
    pub fn open(env: StealEnv, options: KeyedOptions) -> Result<Option<Keyed>> {
        let Some(found) = read_anchor(env.disks.data.as_ref())? else {
            return Ok(None);
        };
        if found.tree.is_none() {
            return Err(Error::Usage(format!(
                "the database in {} is of the logging scheme {}, and has no tree",
                env.disks.data.name(),
                found.scheme.name()
            )));
        }
        options.check_open()?;
        let mut restart_options = env.restart_options(options.schedule, options.method)?;
        restart_options.tree = options.means();
        if options.accept_loss {
            restart_options.tail = Tail::GivenUp;
        }
        let restarted = restart(&restart_options)?;
        let restarted = restarted.expect("its anchor was read just now");
        let log_memory = LogMemory {
            block_bytes_max: options.block_bytes_max,
            queue_bytes_max: options.queue_bytes_max,
            lanes: 1,
            mirror: options.mirror,
        };
        let window = Arc::new(ExecutorWindow::default());
        let life = Life::begin(restarted, &restart_options, log_memory, window)?;
        let txns = KeyTxns::over(&life, options.route).expect("the anchor names a tree");
        assert!(
            txns.live().tree().tables().len() >= options.tables.len().min(1),
            "a tree has tables"
        );
        life.checkpoints.shorten_chain()?;
        Ok(Some(Keyed {
            options,
            txns,
            life,
        }))
    }

    /// Returns the object that runs transactions.
    #[must_use]
    pub fn txns(&self) -> &KeyTxns {
        &self.txns
    }

    /// Returns the tree.
    #[must_use]
    pub fn tree(&self) -> &Arc<Tree> {
        self.txns.live().tree()
    }

    /// Returns the database's settings.
    #[must_use]
    pub fn options(&self) -> &KeyedOptions {
        &self.options
    }

    /// Returns whether a commit may be acknowledged. With a mirror of the log, a commit may be acknowledged once the
    /// mirror has the commit.
    #[must_use]
    pub fn is_acked(&self, committed: &Committed) -> bool {
        debug_assert!(
            committed.epoch <= self.wal.current(),
            "no commit is of an epoch that has not begun"
        );
        self.wal.durable(Rung::Mirror) >= committed.epoch
    }

    /// Returns whether more pages are dirty than [`KeyedOptions::dirty_max`] allows.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.tree().pool().monitor().lock().dirty_count() > self.options.dirty_max()
    }
}
