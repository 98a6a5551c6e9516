//! The state under one latch.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use perdura_base::{CkptEpoch, Epoch, ImageSlot, PageId, PartitionId, Result, TableId, Useq};
use perdura_page::PageRecord;

use crate::geometry::{Geometry, KeyHash};
use crate::group::GroupBuilder;
use crate::memory::MemoryAccount;
use crate::undo::Undo;

/// A share of the pages and rows, by key hash. All methods run under its latch.
pub struct Partition {
    id: PartitionId,
    last_write_epoch: Epoch,
}

/// A row as it lies in its page.
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    partition: &'a Partition,
}

impl<'a> RowRef<'a> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> Cow<'a, [u8]> {
        todo!()
    }
    /// Bytes of the value.
    #[must_use]
    pub fn value_len(&self) -> usize {
        todo!()
    }
    /// Appends the value to `out`.
    pub fn copy_value(&self, out: &mut Vec<u8>) {
        let _ = out;
        todo!()
    }
    /// The value where it lies; `None` if it is in a chain of pages.
    #[must_use]
    pub fn value_slice(&self) -> Option<&'a [u8]> {
        let _ = self.partition;
        todo!()
    }
    /// When the row expires, milliseconds since 1970.
    #[must_use]
    pub fn expiry_ms(&self) -> Option<u64> {
        todo!()
    }
}

/// What a checkpoint's visit found.
#[derive(Debug, PartialEq, Eq)]
pub enum Visit<'a> {
    /// Born within this sweep: not in the image, which has zeros there.
    Born,
    /// Never used: zeros, in memory and in the image.
    Untouched,
    /// The image slot holds the page as it is.
    Clean,
    /// The page, to be copied before the latch is released. Its dirty bit is cleared.
    Dirty(&'a [u8]),
}

/// A page whose replayed records are not exactly `image + 1 ..= last`, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseqGap {
    /// The page.
    pub page: PageId,
    /// The update number in its image.
    pub image_useq: Useq,
    /// Records applied.
    pub seen: u64,
    /// The lowest update number applied, counted from the image's.
    pub first: Useq,
    /// The highest update number applied, counted from the image's.
    pub last: Useq,
}

/// What building the indexes did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Rows in all tables.
    pub rows: u64,
    /// Index entries taken from the sidecar.
    pub from_sidecar: u64,
    /// Index entries built by reading rows.
    pub from_rows: u64,
    /// Pages that hold something.
    pub pages: u64,
    /// Pages of tables that are not in the catalog.
    pub orphan_pages: u64,
    /// Whether a sidecar was given and could not be used.
    pub sidecar_refused: bool,
}

/// The indexes of a table that was detached, to be dropped outside the latch.
pub struct DetachedTable {}

impl Partition {
    pub(crate) fn new(
        id: PartitionId,
        geometry: Geometry,
        memory: Arc<MemoryAccount>,
        ckpt_epoch: Arc<AtomicU64>,
    ) -> Self {
        let _ = (geometry, memory, ckpt_epoch);
        Partition { id, last_write_epoch: Epoch(0) }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// The row with this key.
    #[must_use]
    pub fn get(&self, table: TableId, key: &[u8], hash: KeyHash) -> Option<RowRef<'_>> {
        let _ = (table, key, hash);
        todo!()
    }

    /// Inserts or overwrites a row.
    ///
    /// # Errors
    /// `Usage` if the table is not attached or a length is over its limit, `OutOfMemory`; then
    /// nothing has changed.
    #[expect(clippy::too_many_arguments)]
    pub fn put(
        &mut self,
        undo: &mut Undo,
        table: TableId,
        key: &[u8],
        hash: KeyHash,
        value: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<()> {
        let _ = (undo, table, key, hash, value, expiry_ms);
        todo!()
    }

    /// Sets or removes a row's expiry; false if there is no such row.
    pub fn set_expiry(
        &mut self,
        undo: &mut Undo,
        table: TableId,
        key: &[u8],
        hash: KeyHash,
        expiry_ms: Option<u64>,
    ) -> Result<bool> {
        let _ = (undo, table, key, hash, expiry_ms);
        todo!()
    }

    /// Removes a row; false if there is none.
    pub fn delete(&mut self, undo: &mut Undo, table: TableId, key: &[u8], hash: KeyHash) -> bool {
        let _ = (undo, table, key, hash);
        todo!()
    }

    /// Rows of a table in this partition.
    #[must_use]
    pub fn len(&self, table: TableId) -> u64 {
        let _ = table;
        todo!()
    }

    /// Rows of a table that have an expiry.
    #[must_use]
    pub fn expiring(&self, table: TableId) -> u64 {
        let _ = table;
        todo!()
    }

    /// Keys that are due at `now_ms`, the longest overdue first, at most `max`.
    #[must_use]
    pub fn expired(&self, table: TableId, now_ms: u64, max: usize) -> Vec<Vec<u8>> {
        let _ = (table, now_ms, max);
        todo!()
    }

    /// Every row of a table, in no order.
    pub fn for_each(&self, table: TableId, f: impl FnMut(RowRef<'_>)) {
        let _ = (table, f);
        todo!()
    }

    /// Rows of an ordered table by key, at most `limit`; nothing for other tables.
    #[must_use]
    pub fn scan(
        &self,
        table: TableId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        limit: usize,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let _ = (table, range, limit);
        todo!()
    }

    /// A row chosen by the random number `r`.
    #[must_use]
    pub fn random_row(&self, table: TableId, r: u64) -> Option<RowRef<'_>> {
        let _ = (table, r);
        todo!()
    }

    /// Makes a table known, empty, unless it is.
    pub fn attach_table(&mut self, table: TableId, ordered: bool) {
        let _ = (table, ordered);
        todo!()
    }

    /// Forgets a table. Its pages wait for [`reclaim`](Self::reclaim).
    pub fn detach_table(&mut self, table: TableId) -> Option<DetachedTable> {
        let _ = table;
        todo!()
    }

    /// Frees up to `max_pages` pages whose table is not attached. 0: a full pass found none.
    pub fn reclaim(&mut self, undo: &mut Undo, max_pages: usize) -> usize {
        let _ = (undo, max_pages);
        todo!()
    }

    /// Appends this partition's records of a transaction that commits.
    pub fn encode(&mut self, undo: &Undo, group: &mut GroupBuilder) {
        let _ = (undo, group);
        todo!()
    }

    /// Takes back this partition's changes of a transaction, latest first.
    pub fn rollback(&mut self, undo: &Undo) {
        let _ = undo;
        todo!()
    }

    /// The commit epoch of the last write to this partition.
    #[must_use]
    pub fn last_write_epoch(&self) -> Epoch {
        self.last_write_epoch
    }

    /// Notes the commit epoch of a write.
    pub fn set_last_write_epoch(&mut self, epoch: Epoch) {
        self.last_write_epoch = epoch;
    }

    /// Local pages: those of all its chunks, used or not.
    #[must_use]
    pub fn pages(&self) -> u32 {
        todo!()
    }

    /// Visits one page for checkpoint `k` into `slot`.
    pub fn visit(&mut self, local: u32, slot: ImageSlot, k: CkptEpoch) -> Visit<'_> {
        let _ = (local, slot, k);
        todo!()
    }

    /// Notes that the image slot does not hold the page: its write failed.
    pub fn mark_dirty(&mut self, local: u32, slot: ImageSlot) {
        let _ = (local, slot);
        todo!()
    }

    /// Appends the hash indexes as they stand. For an image: after its last visit of a page here.
    pub fn sidecar(&self, out: &mut Vec<u8>) {
        let _ = out;
        todo!()
    }

    /// Assigns a page from an image, before any record of it is applied.
    pub fn load_page(&mut self, local: u32, bytes: &[u8]) {
        let _ = (local, bytes);
        todo!()
    }

    /// XORs a record into its page.
    ///
    /// # Errors
    /// `Corrupt` if the page cannot be one of this partition's.
    pub fn apply(&mut self, record: &PageRecord<'_>) -> Result<()> {
        let _ = record;
        todo!()
    }

    /// The pages whose applied records have a gap or a duplicate. To be asked before
    /// [`finish_restart`](Self::finish_restart).
    #[must_use]
    pub fn useq_gaps(&self) -> Vec<UseqGap> {
        todo!()
    }

    /// Ends the replay: `epoch := image_epoch`, update numbers, dirty bits.
    pub fn finish_restart(&mut self, image_epoch: CkptEpoch, image_slot: Option<ImageSlot>) {
        let _ = (image_epoch, image_slot);
        todo!()
    }

    /// Builds the index of table 0 alone, so that the catalog can be read.
    ///
    /// # Errors
    /// `Corrupt`, as [`build_indexes`](Self::build_indexes).
    pub fn build_catalog_index(&mut self) -> Result<()> {
        todo!()
    }

    /// Builds all that is derived from pages. `ordered` says whether a table has an ordered
    /// index; `None`: it is not in the catalog, its pages wait for [`reclaim`](Self::reclaim).
    /// Entries of pages that no record touched come from `sidecar` if it is sound, all others
    /// from rows.
    ///
    /// # Errors
    /// `Corrupt` names the page and slot of a malformed row or a duplicate key.
    pub fn build_indexes(
        &mut self,
        ordered: &dyn Fn(TableId) -> Option<bool>,
        sidecar: Option<&[u8]>,
    ) -> Result<IndexStats> {
        let _ = (ordered, sidecar);
        todo!()
    }

    /// The bytes of a page; `None` beyond [`pages`](Self::pages).
    #[must_use]
    pub fn page_bytes(&self, local: u32) -> Option<&[u8]> {
        let _ = local;
        todo!()
    }
}
