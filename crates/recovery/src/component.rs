//! Data components: what restart, checkpoint, digest and verify use of whatever holds the rows.
//!
//! [`Contract`] names the verbs, and [`Component`] is the closed set of components that have them.
//! Callers hold a `Component`; the one `match` of this module forwards each verb to a component's
//! type, so that a sweep over sixteen pages is compiled for the pages that it visits.
//!
//! | verb | in |
//! |---|---|
//! | `load_pages` | restart: a part of the image has been read |
//! | `check_replayed`, `end_replay` | restart: image and log are in memory |
//! | `read_sidecar` | restart: at any time |
//! | `index_catalog`, `index`, `settle` | restart: from pages to tables |
//! | `visit`, `mark_dirty`, `copy_page` | checkpoint |
//! | `contents` | digest: every key with what a client reads of it |
//! | `check_page` | verify: a page of an image that no restart may ever load |
//! | `ckpt_epoch`, `set_ckpt_epoch` | both |
//!
//! Redo is not among them. The kind of a frame chooses the player, and a player replays into the
//! component whose records it reads, through that component's own batches.
//!
//! # A second component
//! It implements [`Contract`], gets a variant of [`Component`] and an arm of `forward!`, a code in
//! [`tables::ComponentKind`](crate::tables::ComponentKind), and a player for the kind of frames that
//! it writes. The conformance suite below runs for it with one more line.

use std::ops::Range;
use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, ImageSlot, PageId, PartitionId, Result, TableId};
use perdura_heap::{Geometry, Heap, IndexStats, MemoryAccount, Sidecar, TableForm, Visit};

/// Of which form each table is; `None` if there is no such table.
pub type Forms<'a> = dyn Fn(TableId) -> Option<TableForm> + 'a;

/// What restart, checkpoint, digest and verify use of a data component. Every verb takes the latches that it
/// needs itself and releases them before it returns.
pub trait Contract {
    /// How pages are dealt out to partitions.
    fn geometry(&self) -> &Geometry;

    /// The account of its memory.
    fn memory(&self) -> &Arc<MemoryAccount>;

    /// The epoch that pages born now are tagged with.
    fn ckpt_epoch(&self) -> CkptEpoch;

    /// Publishes the epoch of a checkpoint that begins, or of the one before the next at restart.
    fn set_ckpt_epoch(&self, k: CkptEpoch);

    /// Puts pages of the image in place, before or after records of them were played.
    fn load_pages(&self, partition: PartitionId, pages: &[(u32, &[u8])]);

    /// Checks that every page has seen each of its updates once. Call it after the image and all
    /// records, before [`end_replay`](Self::end_replay).
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) names a page whose updates have a gap or a duplicate.
    fn check_replayed(&self) -> Result<()>;

    /// Tags a partition's pages with the image's epoch, and marks those dirty that image `slot`
    /// does not hold as they are; all of them, without one.
    fn end_replay(&self, partition: PartitionId, k: CkptEpoch, slot: Option<ImageSlot>);

    /// Builds the index of table 0, so that the catalog can be read.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) names a page and a slot.
    fn index_catalog(&self, partition: PartitionId) -> Result<()>;

    /// Reads a partition's sidecar, while image and log are on their way.
    fn read_sidecar(&self, partition: PartitionId, bytes: &[u8]) -> Sidecar;

    /// Builds a partition's indexes; a sidecar of the image spares reading rows that no record touched.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) names a page and a slot.
    fn index(
        &self,
        partition: PartitionId,
        forms: &Forms<'_>,
        sidecar: Option<Sidecar>,
    ) -> Result<IndexStats>;

    /// Joins what lies in different partitions, after all of them are indexed.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) names what has no counterpart.
    fn settle(&self) -> Result<()>;

    /// Visits some pages of a partition for checkpoint `k` into `slot`, under one latch, which is
    /// held while `take` copies. Returns the first page not visited. Behind the last page it
    /// returns `None` and has appended the sidecar and closed the checkpoint's cut in the partition, still
    /// under that latch.
    fn visit(
        &self,
        partition: PartitionId,
        pages: Range<u32>,
        sweep: (ImageSlot, CkptEpoch),
        sidecar: &mut Vec<u8>,
        take: impl FnMut(u32, PageId, Visit<'_>),
    ) -> Option<u32>;

    /// Notes that an image slot does not hold a page as it is: its write failed.
    fn mark_dirty(&self, partition: PartitionId, local: u32, slot: ImageSlot);

    /// Copies a page as it is now; `false` beyond the partition's pages.
    fn copy_page(&self, partition: PartitionId, local: u32, out: &mut [u8]) -> bool;

    /// Passes every key of every table to `take`, with what a client reads of it, at one moment: every latch
    /// is held. Tables come in ascending order, so that table 0, the catalog, is first.
    ///
    /// # Errors
    /// The first error of `take`; [`Error::Corrupt`](perdura_base::Error::Corrupt) if a row that an index names cannot be read.
    fn contents(&self, take: impl FnMut(TableId, KeyContent<'_>) -> Result<()>) -> Result<()>;

    /// Checks the structure of a page that an image holds, without loading it. The caller has
    /// checked the page's checksum.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) names the page and what is wrong in it.
    fn check_page(&self, id: PageId, bytes: &[u8]) -> Result<()>;
}

/// The data components.
#[derive(Clone)]
pub enum Component {
    /// Slotted pages in memory.
    Heap(Arc<Heap>),
    /// The conformance suite's: pages of one number each.
    #[cfg(test)]
    Dummy(Arc<dummy::Dummy>),
}

impl Component {
    /// The heap, if checkpoints of it must be cuts: it has, or had, a typed table, or the caller wants
    /// `always` one.
    #[must_use]
    pub fn to_cut(&self, always: bool) -> Option<&Arc<Heap>> {
        if armed(Flaw::FuzzyUnderOrdered) {
            return None;
        }
        match self {
            Component::Heap(heap) => Some(heap).filter(|heap| always || heap.has_typed()),
            #[cfg(test)]
            Component::Dummy(_) => None,
        }
    }
}

/// Forwards a verb to the type of a component.
macro_rules! forward {
    ($component:expr, $verb:ident ( $($argument:expr),* )) => {
        match $component {
            Component::Heap(heap) => Contract::$verb(heap.as_ref(), $($argument),*),
            #[cfg(test)]
            Component::Dummy(dummy) => Contract::$verb(dummy.as_ref(), $($argument),*),
        }
    };
}

impl Contract for Component {
    fn geometry(&self) -> &Geometry {
        forward!(self, geometry())
    }

    fn memory(&self) -> &Arc<MemoryAccount> {
        forward!(self, memory())
    }

    fn ckpt_epoch(&self) -> CkptEpoch {
        forward!(self, ckpt_epoch())
    }

    fn set_ckpt_epoch(&self, k: CkptEpoch) {
        forward!(self, set_ckpt_epoch(k));
    }

    fn load_pages(&self, partition: PartitionId, pages: &[(u32, &[u8])]) {
        forward!(self, load_pages(partition, pages));
    }

    fn check_replayed(&self) -> Result<()> {
        forward!(self, check_replayed())
    }

    fn end_replay(&self, partition: PartitionId, k: CkptEpoch, slot: Option<ImageSlot>) {
        forward!(self, end_replay(partition, k, slot));
    }

    fn index_catalog(&self, partition: PartitionId) -> Result<()> {
        forward!(self, index_catalog(partition))
    }

    fn read_sidecar(&self, partition: PartitionId, bytes: &[u8]) -> Sidecar {
        forward!(self, read_sidecar(partition, bytes))
    }

    fn index(
        &self,
        partition: PartitionId,
        forms: &Forms<'_>,
        sidecar: Option<Sidecar>,
    ) -> Result<IndexStats> {
        forward!(self, index(partition, forms, sidecar))
    }

    fn settle(&self) -> Result<()> {
        forward!(self, settle())
    }

    fn visit(
        &self,
        partition: PartitionId,
        pages: Range<u32>,
        sweep: (ImageSlot, CkptEpoch),
        sidecar: &mut Vec<u8>,
        take: impl FnMut(u32, PageId, Visit<'_>),
    ) -> Option<u32> {
        forward!(self, visit(partition, pages, sweep, sidecar, take))
    }

    fn mark_dirty(&self, partition: PartitionId, local: u32, slot: ImageSlot) {
        forward!(self, mark_dirty(partition, local, slot));
    }

    fn copy_page(&self, partition: PartitionId, local: u32, out: &mut [u8]) -> bool {
        forward!(self, copy_page(partition, local, out))
    }

    fn contents(&self, take: impl FnMut(TableId, KeyContent<'_>) -> Result<()>) -> Result<()> {
        forward!(self, contents(take))
    }

    fn check_page(&self, id: PageId, bytes: &[u8]) -> Result<()> {
        forward!(self, check_page(id, bytes))
    }
}

mod contents;
mod heap;

pub use contents::{Element, Elements, KeyContent, Value};

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod dummy;
