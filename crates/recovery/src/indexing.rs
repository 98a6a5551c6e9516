//! Builds the tables from the recovered pages, in *jobs*. A job is a piece of work that the restart's schedule gives to
//! a thread. The first job ends the replay in every partition and reads the catalog. Each further job builds the
//! indexes of one partition. The last job completes the indexes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, ImageSlot, PartitionId, Result, TableId};
use perdura_heap::{Heap, IndexStats, Sidecar, TableForm};
use perdura_wal::scheme::Scheme;

use crate::heap_pages::check_replayed;
use crate::tables::{Catalog, TableKind};

/// A reader of the catalog. The catalog is table 0. Only the layer above this crate knows the form of its rows.
pub trait ReadCatalog: Send + Sync {
    /// Reads the catalog from a heap with an indexed table 0.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) if the rows do not form a catalog.
    fn read_catalog(&self, heap: &Heap) -> Result<Catalog>;

    /// Returns the form of a table that the catalog lists. The default is the form of the table's kind. The layer above
    /// may add to it.
    fn form(&self, table: TableId, kind: TableKind) -> TableForm {
        let _ = table;
        kind.form()
    }

    /// Returns the form of a table that the catalog no longer lists; `None` if the form is not known. The image of
    /// checkpoint epoch `k` may still have rows of the table, and later records of the log may change these rows. So
    /// the second pass needs the form until it plays the record that drops the table.
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
    /// The checkpoint epoch of the image's key-addressed rows.
    pub rows: CkptEpoch,
    /// A slot with an image that is equal to the loaded pages. `None`: no slot has such an image.
    pub slot: Option<ImageSlot>,
    /// The highest checkpoint epoch of any image. New checkpoints must have higher epochs.
    pub ckpt_floor: CkptEpoch,
    /// The bytes of each partition's sidecar, a copy of its hash index. Empty: the sidecar must not be used.
    pub sidecars: &'a [Vec<u8>],
    /// Each partition's highest sequence number that the image reflects.
    pub pseq: &'a [u64],
    /// The reader of the catalog.
    pub catalog: &'a dyn ReadCatalog,
}

impl Indexing<'_> {
    /// Sets the heap's checkpoint epoch, above that of every image. `ckpt_max` is the highest one in the log. Returns
    /// the tag of new changes.
    pub(crate) fn begin(&self, heap: &Heap, ckpt_max: CkptEpoch) -> CkptEpoch {
        heap.set_ckpt_epoch(if armed(Flaw::CkptEpochReused) {
            self.k
        } else {
            ckpt_max.max(self.ckpt_floor)
        });
        assert!(
            heap.ckpt_epoch() >= self.k,
            "pages are not tagged with an epoch to come"
        );
        // The tag of new changes is not k, because an archive may keep an image that is newer than the loaded image.
        // The newer image lacks the new changes, so their tag must not be below the newer image's checkpoint epoch.
        if armed(Flaw::TagBelowKeptBackup) {
            self.k
        } else {
            heap.ckpt_epoch()
        }
    }

    /// Ends the replay in a partition: its image and all records behind the image were played.
    pub(crate) fn end_replay(&self, heap: &Heap, id: PartitionId, tag: CkptEpoch) {
        let mut part = heap.lock(id);
        part.finish_restart(tag, self.slot);
        if let Some(pseq) = self.pseq.get(usize::from(id.0))
            && !armed(Flaw::RowIdUsedTwice)
        {
            part.set_pseq(*pseq);
        }
    }

    /// Decodes the sidecar of a partition. `None`: the image has none that may be used.
    pub(crate) fn sidecar(&self, heap: &Heap, id: PartitionId) -> Option<Sidecar> {
        let bytes = self.sidecars.get(usize::from(id.0))?;
        (!bytes.is_empty()).then(|| heap.read_sidecar(id, bytes))
    }

    /// Builds the indexes of a partition.
    pub(crate) fn build(
        &self,
        heap: &Heap,
        id: PartitionId,
        catalog: &Catalog,
        sidecar: Option<Sidecar>,
    ) -> Result<IndexStats> {
        let form = |table: TableId| match catalog.get(&table) {
            Some(kind) => Some(self.catalog.form(table, *kind)),
            None => self.catalog.dropped(table, self.rows),
        };
        heap.lock(id).build_indexes(&form, sidecar)
    }
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

/// The state of building the indexes, shared by the jobs that build them.
pub(crate) struct Indexer<'a> {
    with: Indexing<'a>,
    catalog: OnceLock<Catalog>,
    rows: AtomicU64,
    from_sidecar: AtomicU64,
    built: AtomicU64,
    /// The decoded sidecar of each partition. A job puts it here, and [`build`](Self::build) takes it.
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

    /// Ends the replay in every partition and, if the scheme has tables, reads the catalog. Returns how many partitions
    /// are to be indexed: all, or 0 if the scheme has no tables.
    pub fn begin(&self, heap: &Heap, ckpt_max: CkptEpoch) -> Result<usize> {
        let with = &self.with;
        if with.scheme.counts_updates() {
            check_replayed(heap)?;
        }
        let tag = with.begin(heap, ckpt_max);
        for id in heap.ids() {
            with.end_replay(heap, id, tag);
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
        Ok(usize::from(heap.geometry().partitions))
    }

    /// Returns the number of sidecars to read.
    pub fn sidecars(&self) -> usize {
        self.read.len()
    }

    /// Decodes the sidecar of partition `number` and keeps it for [`build`](Self::build).
    pub fn read_sidecar(&self, heap: &Heap, number: usize) {
        let read = self.with.sidecar(heap, partition(number));
        let before = std::mem::replace(&mut *self.read[number].lock(), read);
        assert!(before.is_none(), "a sidecar is read once");
    }

    /// Builds the indexes of partition `number`. Reads the partition's sidecar first if no job has read it.
    pub fn build(&self, heap: &Heap, number: usize) -> Result<()> {
        let catalog = self.catalog.get().expect("the catalog is read first");
        let read = self.read.get(number).and_then(|read| read.lock().take());
        let id = partition(number);
        let sidecar = read.or_else(|| self.with.sidecar(heap, id));
        let stats = self.with.build(heap, id, catalog, sidecar)?;
        self.rows.fetch_add(stats.rows, Ordering::Relaxed);
        self.from_sidecar
            .fetch_add(stats.from_sidecar, Ordering::Relaxed);
        self.built.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Completes the indexes after all partitions are built: matches each collection's header with the collection's
    /// rows, which may lie in other partitions.
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
