//! Builds tables from pages: ends the replay in every partition, reads the catalog, and builds the indexes
//! of each partition. The schedule runs these steps as separate jobs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, ImageSlot, PartitionId, Result, TableId};
use perdura_heap::{Heap, Sidecar, TableForm};
use perdura_wal::scheme::Scheme;

use crate::heap_pages::check_replayed;
use crate::tables::{Catalog, TableKind};

/// Reads the catalog, which is rows of a table like any other: the layer above knows their form.
pub trait ReadCatalog: Send + Sync {
    /// Reads it from a heap whose table 0 is indexed.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) if the rows do not form a catalog.
    fn read_catalog(&self, heap: &Heap) -> Result<Catalog>;

    /// Returns the form of a table of the catalog that was read: its kind's form, completed by the layer above.
    fn form(&self, table: TableId, kind: TableKind) -> TableForm {
        let _ = table;
        kind.form()
    }

    /// Returns the form of a table that the catalog no longer has. An image of checkpoint epoch `k` may have its rows,
    /// or the log behind the image their changes. So the second pass needs the form up to the table's drop.
    fn dropped(&self, table: TableId, k: CkptEpoch) -> Option<TableForm> {
        let _ = (table, k);
        None
    }
}

/// The catalog of a database that has no tables.
#[derive(Debug, Clone, Copy)]
pub struct NoTables;

impl ReadCatalog for NoTables {
    fn read_catalog(&self, _: &Heap) -> Result<Catalog> {
        Ok(Catalog::new())
    }
}

/// The inputs for building the indexes.
#[derive(Clone, Copy)]
pub struct Indexing<'a> {
    /// The scheme of the log's records.
    pub scheme: Scheme,
    /// The image's checkpoint epoch, which the pages are tagged with.
    pub k: CkptEpoch,
    /// The slot that holds the image's pages as they are. `None`: no slot does.
    pub slot: Option<ImageSlot>,
    /// No checkpoint epoch up to this one is used again.
    pub ckpt_floor: CkptEpoch,
    /// Entries of the hash indexes by partition; empty if they are not to be trusted.
    pub sidecars: &'a [Vec<u8>],
    /// The sequence numbers that the image reflects, by partition.
    pub pseq: &'a [u64],
    /// Reads the catalog.
    pub catalog: &'a dyn ReadCatalog,
}

/// The tables that were found.
#[derive(Debug, Default)]
pub struct Tables {
    /// The tables and their kinds.
    pub catalog: Catalog,
    /// Rows in the tables.
    pub rows: u64,
    /// Rows that were not read, because the image's sidecar has their entries.
    pub rows_from_sidecar: u64,
}

/// The indexes on their way.
pub(crate) struct Indexer<'a> {
    with: Indexing<'a>,
    catalog: OnceLock<Catalog>,
    rows: AtomicU64,
    from_sidecar: AtomicU64,
    built: AtomicU64,
    /// Sidecars that were read, by partition.
    read: Vec<Mutex<Option<Sidecar>>>,
}

impl<'a> Indexer<'a> {
    pub fn new(with: Indexing<'a>) -> Self {
        Indexer {
            with,
            catalog: OnceLock::new(),
            rows: AtomicU64::new(0),
            from_sidecar: AtomicU64::new(0),
            built: AtomicU64::new(0),
            read: with.sidecars.iter().map(|_| Mutex::default()).collect(),
        }
    }

    /// Ends the replay in every partition, and reads the catalog of a scheme that has tables.
    /// Returns the number of partitions to index.
    pub fn begin(&self, heap: &Heap, ckpt_max: CkptEpoch) -> Result<usize> {
        let with = &self.with;
        if with.scheme.counts_updates() {
            check_replayed(heap)?;
        }
        heap.set_ckpt_epoch(if armed(Flaw::CkptEpochReused) {
            with.k
        } else {
            ckpt_max.max(with.ckpt_floor)
        });
        assert!(
            heap.ckpt_epoch() >= with.k,
            "pages are not tagged with an epoch to come"
        );
        // Not k: an archive may keep a newer image than this one, which does not reflect the coming changes.
        let tag = if armed(Flaw::TagBelowKeptBackup) {
            with.k
        } else {
            heap.ckpt_epoch()
        };
        let partitions = heap.geometry().partitions;
        for id in (0..partitions).map(PartitionId) {
            heap.lock(id).finish_restart(tag, with.slot);
            if let Some(pseq) = with.pseq.get(usize::from(id.0))
                && !armed(Flaw::RowIdUsedTwice)
            {
                heap.lock(id).set_pseq(*pseq);
            }
            if with.scheme.has_tables() {
                heap.lock(id).build_catalog_index()?;
            }
        }
        if !with.scheme.has_tables() {
            return Ok(0);
        }
        let catalog = with.catalog.read_catalog(heap)?;
        assert!(
            self.catalog.set(catalog).is_ok(),
            "the catalog is read once"
        );
        Ok(usize::from(partitions))
    }

    /// Returns the number of sidecars to read.
    pub fn sidecars(&self) -> usize {
        self.read.len()
    }

    /// Reads the sidecar of a partition.
    pub fn read_sidecar(&self, heap: &Heap, number: usize) {
        let read = self.sidecar(heap, number);
        let before = std::mem::replace(&mut *self.read[number].lock(), read);
        assert!(before.is_none(), "a sidecar is read once");
    }

    fn sidecar(&self, heap: &Heap, number: usize) -> Option<Sidecar> {
        let bytes = self.with.sidecars.get(number)?;
        let id = partition(number);
        (!bytes.is_empty()).then(|| heap.read_sidecar(id, bytes))
    }

    /// Builds the indexes of a partition; its sidecar is read now unless it has been.
    pub fn build(&self, heap: &Heap, number: usize) -> Result<()> {
        let catalog = self.catalog.get().expect("the catalog is read first");
        let read = self.read.get(number).and_then(|read| read.lock().take());
        let sidecar = read.or_else(|| self.sidecar(heap, number));
        let form = |table: TableId| match catalog.get(&table) {
            Some(kind) => Some(self.with.catalog.form(table, *kind)),
            None => self.with.catalog.dropped(table, self.with.k),
        };
        let stats = heap.lock(partition(number)).build_indexes(&form, sidecar)?;
        self.rows.fetch_add(stats.rows, Ordering::Relaxed);
        self.from_sidecar
            .fetch_add(stats.from_sidecar, Ordering::Relaxed);
        self.built.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Joins data that lie in different partitions.
    pub fn end(&self, heap: &Heap) -> Result<()> {
        let due = match self.catalog.get() {
            Some(_) => u64::from(heap.geometry().partitions),
            None => 0,
        };
        let built = self.built.load(Ordering::Relaxed);
        assert_eq!(built, due, "each partition is indexed once");
        if due == 0 {
            return Ok(());
        }
        heap.settle_collections().map(drop)
    }

    pub fn into_tables(self) -> Tables {
        let tables = Tables {
            catalog: self.catalog.into_inner().unwrap_or_default(),
            rows: self.rows.into_inner(),
            rows_from_sidecar: self.from_sidecar.into_inner(),
        };
        assert!(
            tables.rows_from_sidecar <= tables.rows,
            "a sidecar lists rows"
        );
        tables
    }
}

fn partition(number: usize) -> PartitionId {
    PartitionId(u16::try_from(number).expect("a partition's number"))
}
