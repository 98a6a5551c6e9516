//! The database without a thread. A commit returns a ticket. Flushing, checkpointing, expiry and reclaiming are steps
//! that the caller takes. The callers are the threads of [`crate::Db`], or the simulator. In the simulator a seed
//! determines the order of the steps.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use perdura_base::checksum::mix64;
use perdura_base::{Epoch, Error, PartitionId, PartitionSet, Pos, Result, StreamId, TableId};
use perdura_device::{Clock, LogWayReport};
use perdura_heap::ahead::AHEAD_KEYS;
use perdura_recovery::demand::Loading;
use perdura_recovery::disks::Disks;
use perdura_recovery::indexing::ReadCatalog;
use perdura_recovery::{Catalog, ComponentKind, Life, Progress};
use perdura_txn::executor::ExecutorOptions;
use perdura_txn::{Executor, Loader, Manner, Says, Ticket, Tx};
use perdura_wal::Rung;

use smallvec::SmallVec;

use crate::catalog::{CATALOG, CatalogRows, tables_of};
use crate::digest::Summary;
use crate::named::{NamedTables, Renewal};
use crate::nodes::NodesInUse;
use crate::opening::{Opened, bring_back, check_scheme};
use crate::options::CoreOptions;
use crate::purge::Purge;
use crate::typed::TypedState;
use crate::yardstick::Yardstick;

mod archiving;
mod dropping;
mod purging;
mod typed;

pub use crate::env::Env;
pub use crate::purge::{ExpiredListener, Flushed};

/// A callback that is called each time the body of a transaction has run. The argument is the room in the log that the
/// transaction waits for, in bytes. `None`: the transaction does not wait.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(Option<usize>);

/// An open database that does nothing by itself.
pub struct Core {
    env: Env,
    options: CoreOptions,
    /// The parts below the transactions: log, pages, anchor, checkpoints.
    life: Life,
    executor: Executor,
    tables: NamedTables,
    /// The tables of the maps, by their names in the catalog.
    maps: Mutex<BTreeMap<String, TableId>>,
    /// Typed tables and procedures.
    typed: TypedState,
    purge: Purge,
    /// The nodes, if the database has some.
    nodes: Option<NodesInUse>,
    /// The checkpoint epoch of the oldest backup in the archive. 0: none is known.
    oldest_backup: AtomicU64,
}

/// The loader of the partitions that a restart has left absent.
struct AbsentLoader(Arc<Loading>);

impl Loader for AbsentLoader {
    fn load(&self, parts: &PartitionSet) -> Result<()> {
        self.0.load(parts)
    }

    fn ask(&self, parts: &PartitionSet) -> Result<()> {
        self.0.ask(parts)
    }
}

impl Deref for Core {
    type Target = Life;

    fn deref(&self) -> &Life {
        &self.life
    }
}

impl Core {
    /// Opens the database on these disks, or makes a new one.
    ///
    /// # Errors
    /// See [`perdura_recovery::restart::restart`]; if it fails before it updates the anchor, it has changed nothing.
    pub fn open(env: Env, options: CoreOptions, progress: Arc<Progress>) -> Result<Core> {
        Core::open_by(Yardstick::Product, env, options, progress)
    }

    /// Opens the database for a measurement. `yardstick` selects the part of each commit that the log and the archive
    /// get.
    ///
    /// # Errors
    /// As [`Core::open`].
    pub fn open_by(
        yardstick: Yardstick,
        env: Env,
        options: CoreOptions,
        progress: Arc<Progress>,
    ) -> Result<Core> {
        options.check()?;
        check_scheme(&env, yardstick)?;
        let forms = Arc::new(CatalogRows::default());
        let Opened { mut life, claimed } = bring_back(&env, &options, yardstick, &forms, progress)?;
        if let Some(archived) = &options.archived {
            life.checkpoints.set_archived(archived)?;
        }
        life.report.notes.extend(options.memory_fault.clone());
        let catalog = std::mem::take(&mut life.catalog);
        let mut core = Core::of(env, options, life, yardstick)?;
        core.attach_tables(&catalog, &forms);
        core.assert_resumed();
        core.name_trees()?;
        core.name_tables()?;
        #[cfg(feature = "flaws")]
        crate::typed::seeded::log_again(&core.wal);
        core.make_typed()?;
        core.start_reclaim();
        core.keep_divergences()?;
        core.checkpoints.shorten_chain()?;
        if let (Some(nodes), Some(claimed)) = (&core.env.nodes, claimed) {
            let notes = claimed.notes.iter().cloned();
            core.life.report.notes.extend(notes);
            core.nodes = Some(nodes.begin(claimed, &core.life.wal, &core.life.anchor)?);
        }
        Ok(core)
    }

    /// Assembles the core from the parts of a recovered database.
    fn of(env: Env, options: CoreOptions, life: Life, yardstick: Yardstick) -> Result<Core> {
        let (heap, wal) = (&life.heap, &life.wal);
        heap.set_snapshot_mode(options.snapshot_mode);
        heap.memory().set_kept_bound(options.kept_bound);
        let executor_options = ExecutorOptions {
            value_bytes_max: options.value_bytes_max,
            value_form: options.typed.form,
        };
        let sink = yardstick.sink(Arc::clone(wal));
        let life_number = u64::from(life.anchor.get().incarnation.0);
        let mut executor = Executor::new(Arc::clone(heap), sink, executor_options)
            .with_seed(mix64(env.seed) ^ life_number);
        if let Some(loading) = &life.loading {
            executor = executor.with_loader(Arc::new(AbsentLoader(Arc::clone(loading))));
        }
        let tables = NamedTables::new(options.tables);
        let catalog_heap = life.catalog_heap();
        let maps = tables_of(&catalog_heap)?
            .into_iter()
            .map(|(name, entry)| (name, entry.id))
            .collect();
        let typed = TypedState::new(&catalog_heap, &options.typed)?;
        Ok(Core {
            env,
            options,
            life,
            executor,
            tables,
            maps: Mutex::new(maps),
            typed,
            purge: Purge::default(),
            nodes: None,
            oldest_backup: AtomicU64::new(0),
        })
    }

    /// Finds the table of each name in the catalog. Makes a new table for a name that the catalog does not have.
    fn name_tables(&self) -> Result<()> {
        let unnamed = self.tables.load(&self.life.catalog_heap())?;
        if !unnamed.is_empty() {
            let _durable_with_the_first_write = self.renew(unnamed.iter().copied())?;
        }
        let named = self
            .tables
            .places()
            .all(|place| self.tables.at(place) != CATALOG);
        assert!(named, "each name has a table");
        Ok(())
    }

    /// Asserts, while the database is opened, that the log, the anchor and the heap agree.
    fn assert_resumed(&self) {
        assert_eq!(
            usize::from(self.wal.streams()),
            self.env.disks.logs.len(),
            "the log has a stream on each of its disks"
        );
        let ckpt_max = self.anchor.get().ckpt_max;
        assert!(
            ckpt_max <= self.heap.ckpt_epoch(),
            "I7: the next checkpoint has a number that the anchor does not know"
        );
    }

    /// Attaches to the heap all tables that a restart found, including tables without a page.
    fn attach_tables(&self, catalog: &Catalog, forms: &CatalogRows) {
        let anchored = self.anchor.get().geometry;
        assert_eq!(*self.heap.geometry(), anchored, "the heap is the anchor's");
        for id in (0..self.heap.geometry().partitions).map(PartitionId) {
            let mut part = self.heap.lock(id);
            part.set_orphan_limits(self.options.orphans);
            for (table, kind) in catalog {
                match kind.component {
                    ComponentKind::Heap => part.attach_table(*table, forms.form(*table, *kind)),
                    // The rows of a tree are in no partition.
                    ComponentKind::Tree => {}
                }
            }
        }
    }

    /// Returns the nodes that hold the newest part of the log, if the database has some.
    #[must_use]
    pub fn nodes(&self) -> Option<&NodesInUse> {
        self.nodes.as_ref()
    }

    /// Ends the current epoch if the nodes have acknowledged all earlier epochs. Otherwise the current epoch continues
    /// and gets the new frames. In both cases, passes frames of ended epochs to the nodes while the *tail* has room.
    /// The tail is the part of the log that is not on disk yet.
    ///
    /// # Errors
    /// As [`perdura_wal::Wal::ship_step`].
    pub fn ship(&self) -> Result<()> {
        let newest_closed = self.wal.current().0 - 1;
        if self.wal.durable(Rung::Mirror).0 >= newest_closed {
            self.close_epoch();
        }
        for stream in (0..self.wal.streams()).map(StreamId) {
            self.wal.ship_step(stream)?;
        }
        Ok(())
    }

    /// Returns the typed tables and procedures.
    pub(crate) fn typed(&self) -> &TypedState {
        &self.typed
    }

    /// Returns the executor of transactions.
    pub(crate) fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Runs a transaction; see [`Executor::run`].
    ///
    /// # Errors
    /// The error of `f`. If the log is full or the database has stopped, the first write in `f`
    /// fails and nothing is changed.
    pub fn transact<R, E: From<Error>>(
        &self,
        parts: &PartitionSet,
        f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<(R, Ticket), E> {
        self.transact_at(parts, self.env.clock.wall_us() / 1000, f)
    }

    /// Like [`transact`](Self::transact), but the caller passes the current time, `now_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn transact_at<R, E: From<Error>>(
        &self,
        parts: &PartitionSet,
        now_ms: u64,
        f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<(R, Ticket), E> {
        self.transact_then(parts, now_ms, f, |_, _| ())
    }

    /// Like [`transact_at`](Self::transact_at), but calls `settle` after the commit, before the latches are released;
    /// see [`Executor::run_then`].
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn transact_then<R, E: From<Error>>(
        &self,
        parts: &PartitionSet,
        now_ms: u64,
        f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
        settle: impl FnMut(&mut R, Ticket),
    ) -> Result<(R, Ticket), E> {
        let manner = Manner::new(now_ms, Says::Effects);
        self.transact_in_manner(parts, &manner, f, settle)
    }

    /// Like [`transact_then`](Self::transact_then), but `manner` determines the time and the patience; see
    /// [`Executor::run_as`].
    ///
    /// # Errors
    /// As [`transact`](Self::transact). [`Error::Undeclared`] if the caller's patience with a latch has
    /// ended.
    pub fn transact_in_manner<R, E: From<Error>>(
        &self,
        parts: &PartitionSet,
        manner: &Manner<'_>,
        f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
        settle: impl FnMut(&mut R, Ticket),
    ) -> Result<(R, Ticket), E> {
        let (value, ticket) = self.executor.run_then(parts, manner, f, settle)?;
        debug_assert!(
            ticket.epoch <= self.wal.current(),
            "a ticket names an epoch that has begun"
        );
        Ok((value, ticket))
    }

    /// Returns the age, in nanoseconds, of the oldest write that is not durable on a rung. Returns 0 if all writes are
    /// durable.
    #[must_use]
    pub fn age_ns(&self, rung: Rung) -> u64 {
        let since = self.wal.waiting_since_ns(rung);
        since.map_or(0, |at| self.env.clock.mono_ns().saturating_sub(at))
    }

    /// Checks that a transaction with about `bytes` of log may start now.
    ///
    /// # Errors
    /// [`perdura_base::Error::LogFull`] or [`perdura_base::Error::Stopped`].
    pub fn admit(&self, bytes: usize) -> Result<()> {
        self.wal.admit(self.wal.idlest(), bytes)
    }

    /// Returns the partition that a cursor of [`Tx::scan_keys`] points into; `None` if the cursor
    /// is after the last partition.
    #[must_use]
    pub fn partition_of_cursor(&self, cursor: u64) -> Option<PartitionId> {
        let geometry = self.heap.geometry();
        let found = geometry.partition_of_cursor(cursor);
        debug_assert!(found.is_none_or(|id| id.0 < geometry.partitions));
        found
    }

    /// Returns the partition of a key.
    #[must_use]
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        let geometry = self.heap.geometry();
        let partition = geometry.partition_of(geometry.hash(key));
        debug_assert!(partition.0 < geometry.partitions);
        partition
    }

    /// Prefetches the memory that transactions on these keys of a table will need soon; see
    /// [`perdura_heap::ahead`].
    pub fn look_ahead<'k>(&self, table: TableId, keys: impl Iterator<Item = &'k [u8]>) {
        let geometry = self.heap.geometry();
        let hashes: SmallVec<[_; AHEAD_KEYS]> = keys.map(|key| geometry.hash(key)).collect();
        self.heap.look_ahead(table, &hashes);
    }

    /// Returns all partitions.
    #[must_use]
    pub fn all_partitions(&self) -> PartitionSet {
        PartitionSet::all(self.heap.geometry().partitions)
    }

    /// Returns the table of `name`; `None` if the database was not opened with that name. Call this inside a
    /// transaction.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<TableId> {
        self.tables.table(name)
    }

    /// Returns the tables that are maps, by their names in the catalog.
    pub(crate) fn maps(&self) -> &Mutex<BTreeMap<String, TableId>> {
        &self.maps
    }

    /// Returns the tables that the database was opened with.
    #[must_use]
    pub fn tables(&self) -> &NamedTables {
        &self.tables
    }

    /// Starts or stops recording each key's time of last use; see [`Tx::idle_seconds`]. When recording starts, all
    /// existing keys count as just used. The times are kept only in memory. They take 4 bytes for each place in the
    /// index of keys.
    pub fn note_accesses(&self, on: bool) {
        let now_ms = self.env.clock.wall_us() / 1000;
        for id in self.all_partitions().iter() {
            self.heap.lock(id).note_accesses(on, now_ms);
        }
    }

    /// Gives each of these names a new, empty table. `places` are positions in the list of names; see [`NamedTables`].
    pub(crate) fn renew(&self, places: impl Iterator<Item = u8> + Clone) -> Result<Ticket> {
        let (flushed, ticket) = self.transact(&self.all_partitions(), |tx| {
            let mut flush = Renewal::default();
            self.tables.renew(tx, places.clone(), &mut flush)?;
            self.finish_flush(tx, &flush)
        })?;
        self.reclaim_flushed(flushed);
        Ok(ticket)
    }

    /// Gives names new, empty tables within a transaction that holds every partition. From here on this transaction
    /// finds a name's new table by [`Renewal::table`]. Other transactions see the new table only after
    /// [`finish_flush`](Self::finish_flush).
    ///
    /// # Errors
    /// The caller must return any error, so that the transaction is undone.
    pub fn begin_renewal(
        &self,
        tx: &mut Tx<'_>,
        places: impl Iterator<Item = u8>,
        renewal: &mut Renewal,
    ) -> Result<()> {
        tx.admit(4096)?;
        self.tables.renew(tx, places, renewal)
    }

    /// Exchanges the tables of two names within a transaction that holds every partition. Other transactions see the
    /// exchange only after [`finish_flush`](Self::finish_flush).
    ///
    /// # Errors
    /// The caller must return any error, so that the transaction is undone.
    pub fn swap_tables(&self, tx: &mut Tx<'_>, places: [u8; 2], swap: &mut Renewal) -> Result<()> {
        tx.admit(4096)?;
        self.tables.swap(tx, places, swap)
    }

    /// Publishes a renewal. This must be the last step of its transaction.
    ///
    /// # Errors
    /// If an earlier operation of this transaction failed and the closure ignored the error, this call returns an error
    /// too. The caller must return any error, so that the transaction is undone.
    pub fn finish_flush(&self, tx: &mut Tx<'_>, flush: &Renewal) -> Result<Flushed> {
        // These checks come first: after `install` nothing may fail before the commit, and the transaction cannot be
        // undone.
        tx.check_not_refused()?;
        tx.check_collections()?;
        Ok(Flushed::of(self.tables.install(tx, flush)?))
    }

    /// Passes to the purge the tables that a flush has detached. Call this after the transaction.
    pub fn reclaim_flushed(&self, flushed: Flushed) {
        self.purge.take_flushed(flushed);
        self.start_reclaim();
    }

    fn start_reclaim(&self) {
        let partitions = u32::from(self.heap.geometry().partitions);
        self.purge.start_reclaim(partitions);
    }

    /// Returns the disks.
    pub(crate) fn disks(&self) -> &Disks {
        &self.env.disks
    }

    /// Returns the settings.
    #[must_use]
    pub fn options(&self) -> &CoreOptions {
        &self.options
    }

    /// Returns the clock of this database.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.env.clock
    }

    /// Returns each log stream's method for durable writes, and the reason for the choice. Streams without a known
    /// method are left out.
    #[must_use]
    pub fn log_ways(&self) -> Vec<LogWayReport> {
        let logs = self.env.disks.logs.iter();
        logs.filter_map(|disk| disk.log_way()).collect()
    }

    /// Removes log segments and directories that the last checkpoint could not remove.
    ///
    /// # Errors
    /// The errors of the disk. The remaining files only take up space, so the caller can try again later.
    pub fn clear_away(&self) -> Result<()> {
        self.checkpoints.clear_away()
    }

    /// Returns whether a checkpoint should run: the log has grown enough, or a deferred checkpoint must continue. The
    /// anchor may already name the image of a deferred checkpoint, but the log is cut only when the checkpoint ends.
    #[must_use]
    pub fn checkpoint_is_due(&self) -> bool {
        if self.checkpoint_stats().running {
            return true;
        }
        let record = self.anchor.get();
        assert_eq!(
            record.streams,
            self.wal.streams(),
            "the anchor is of this log"
        );
        let from = match record.newest_image() {
            Some(slot) => record.image(slot).cover.begin.clone(),
            None => vec![Pos(0); usize::from(record.streams)],
        };
        assert_eq!(
            from.len(),
            usize::from(self.wal.streams()),
            "an image covers each stream"
        );
        self.wal.bytes_since(&from) >= self.options.checkpoint_log_bytes
    }

    /// Makes the restart's log record durable, and makes the anchor vouch for this record. This happens before the
    /// database acknowledges a write. Otherwise the loss of the only log segment since this restart could not be
    /// detected: the next restart would assume that nothing was written. If the log is short of room, or the disk is
    /// too full for the anchor, the voucher does this later.
    ///
    /// # Errors
    /// As [`Life::flush_all`] and [`Life::vouch`].
    pub fn vouch_for_life(&self) -> Result<()> {
        if self.flush_all().is_err() {
            return self.wal.check();
        }
        match self.vouch() {
            Ok(_) => {
                let vouched = self.anchor.get().vouched.epoch;
                assert!(
                    Epoch(self.report.durable_epoch) <= vouched,
                    "I13: the anchor vouches for what the restart found"
                );
                Ok(())
            }
            // The voucher tries again.
            Err(_) => self.wal.check(),
        }
    }

    /// Returns the logical digest. Databases with equal data have equal digests, whatever their histories; see
    /// [`crate::digest`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a row that cannot be read.
    pub fn digest(&self) -> Result<u64> {
        self.summary().map(|all| all.digest)
    }

    /// Reads all data; see [`crate::digest::summary`].
    ///
    /// # Errors
    /// As [`digest`](Self::digest), and those of loading what a restart has left absent. [`Error::LogFull`] if changed
    /// pages of a tree cannot leave memory until the log is written. A later call may succeed.
    pub fn summary(&self) -> Result<Summary> {
        self.load_all()?;
        crate::digest::summary(&self.life.data())
    }
}
