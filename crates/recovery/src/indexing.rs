//! Builds the tables from the recovered pages: ends the replay in every partition, reads the catalog, and builds the
//! indexes of each partition. The schedule runs these steps as separate jobs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, ImageSlot, PartitionId, Result, TableId};
use perdura_heap::{Heap, Sidecar, TableForm};
use perdura_wal::scheme::Scheme;

use crate::heap_pages::check_replayed;
use crate::tables::{Catalog, TableKind};

/// Reads the catalog. The catalog is a table; only the layer above this crate knows the form of its rows.
pub trait ReadCatalog: Send + Sync {
    /// Reads the catalog from a heap whose table 0 is indexed.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) if the rows do not form a catalog.
    fn read_catalog(&self, heap: &Heap) -> Result<Catalog>;

    /// Returns the form of a table of the catalog. The default is the form of the table's kind; the layer above may
    /// complete it.
    fn form(&self, table: TableId, kind: TableKind) -> TableForm {
        let _ = table;
        kind.form()
    }

    /// Returns the form of a table that the catalog no longer has, if it is known. The image of checkpoint epoch `k`
    /// may still have rows of the table, and the log behind the image changes of such rows. So the second pass needs
    /// the form up to the record that drops the table.
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
    /// The checkpoint epoch of the image.
    pub k: CkptEpoch,
    /// The slot whose image holds exactly the pages that were loaded. `None`: neither slot does.
    pub slot: Option<ImageSlot>,
    /// The highest checkpoint epoch that is used up.
    pub ckpt_floor: CkptEpoch,
    /// The sidecar bytes of each partition: entries of its hash index. Empty if they must not be used.
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
    /// Rows that were not read, because the image's sidecar has their index entries.
    pub rows_from_sidecar: u64,
}

/// The building of the indexes, shared by the jobs that do it.
pub(crate) struct Indexer<'a> {
    with: Indexing<'a>,
    catalog: OnceLock<Catalog>,
    rows: AtomicU64,
    from_sidecar: AtomicU64,
    built: AtomicU64,
    /// The sidecar of each partition, between its reading and its use.
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

    /// Ends the replay in every partition and, if the scheme has tables, reads the catalog. Returns the number of
    /// partitions to index.
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
        // The tag is not k: an archive may keep a newer image than this one, and that image does not reflect the
        // changes to come.
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

    /// Builds the indexes of a partition. Reads the partition's sidecar first, unless that was done.
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

    /// Completes the indexes: joins data that lie in different partitions.
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
