//! A user's snapshot: all pages and rows as of one instant, while writers continue.
//!
//! A snapshot is a [cut](crate::cuts) that a caller may read for any length of time. Commits keep the bytes that they
//! overwrite. If the kept bytes exceed the bound, the heap ends the oldest snapshot, and reading that snapshot fails. A
//! snapshot never delays a checkpoint and never cancels a sweep.
//!
//! The latch is released after every sixteen pages. Rows are copied under the latch, and passed to the caller's closure
//! without it. Pages are passed to the closure under the latch. A page read from a snapshot has its present checkpoint
//! epoch, not the epoch at the cut. The epoch is not data: it only says which images hold the page.

use std::sync::Arc;

use perdura_base::{Error, PageId, PartitionId, Result, TableId};
use perdura_page::layout::{self, CHAIN_BYTES, HEADER_BYTES};
use perdura_page::{Kind, PageKind, Place, Row};

use crate::cuts::{Cut, Reader};
use crate::damage::damaged;
use crate::latches::Heap;
use crate::partition::Partition;
use crate::pools::Extent;

/// The number of pages read under one latch.
const BATCH_PAGES: u32 = 16;

/// All pages as of one instant. Dropping it ends the snapshot.
#[derive(Debug)]
pub struct Snapshot {
    cut: Cut,
}

impl Heap {
    /// Returns a snapshot of the present state. The caller holds no latch.
    #[must_use]
    pub fn snapshot(self: &Arc<Self>) -> Snapshot {
        let (cut, ()) = self.cut(Reader::Snapshot, || ());
        Snapshot { cut }
    }
}

/// The keys and values of a batch of pages. Each key is followed by its value.
#[derive(Default)]
struct Rows {
    bytes: Vec<u8>,
    /// For each row, the ends of key and value in `bytes`.
    ends: Vec<(usize, usize)>,
}

impl Snapshot {
    /// Returns the sequence number of each partition at the snapshot's instant.
    #[must_use]
    pub fn pseq(&self) -> &[u64] {
        self.cut.pseq()
    }

    /// Passes `n` pages of a partition to `take`, beginning with page `from`. The pages are as of the snapshot. Returns
    /// the next page to pass; `None` if no later page was in use.
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`] if the heap has ended the snapshot because too much was kept for it.
    pub fn for_each_page(
        &self,
        partition: PartitionId,
        from: u32,
        n: u32,
        mut take: impl FnMut(u32, &[u8]),
    ) -> Result<Option<u32>> {
        let (mut next, end) = (from, from.saturating_add(n));
        let mut copy = Vec::new();
        while next < end {
            let part = self.cut.heap().lock(partition);
            let used = self.used(&part)?;
            let last = used.end();
            let batch = next..end.min(last).min(next.saturating_add(BATCH_PAGES));
            for local in batch.clone().filter(|local| used.holds(*local)) {
                take(local, self.page(&part, local, &mut copy));
            }
            next = next.max(batch.end);
            if next >= last {
                return Ok(None);
            }
        }
        Ok(Some(next))
    }

    /// Passes the key and value of each row of a table to `take`, in no particular order. Rows without a plain value
    /// are left out.
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`] if the heap has ended the snapshot because too much was kept for it. [`Error::Corrupt`]
    /// if a row cannot be read. Otherwise the first error that `take` returns.
    pub fn each_row(
        &self,
        table: TableId,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut partitions = (0..self.cut.heap().geometry().partitions).map(PartitionId);
        partitions.try_for_each(|partition| self.each_row_of(partition, table, &mut take))
    }

    /// Like [`each_row`](Self::each_row), for the rows of one partition.
    ///
    /// # Errors
    /// Like [`each_row`](Self::each_row).
    pub fn each_row_of(
        &self,
        partition: PartitionId,
        table: TableId,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut rows = Rows::default();
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.read_rows(table, partition, from, &mut rows)?;
            let mut at = 0;
            for (key, value) in rows.ends.drain(..) {
                take(&rows.bytes[at..key], &rows.bytes[key..value])?;
                at = value;
            }
            rows.bytes.clear();
        }
        Ok(())
    }

    /// Reads the rows of a batch of pages. Returns the first page of the next batch.
    fn read_rows(
        &self,
        table: TableId,
        partition: PartitionId,
        from: u32,
        rows: &mut Rows,
    ) -> Result<Option<u32>> {
        let part = self.cut.heap().lock(partition);
        let used = self.used(&part)?;
        let end = used.end().min(from.saturating_add(BATCH_PAGES));
        let (mut copy, mut piece) = (Vec::new(), Vec::new());
        for local in (from..end).filter(|local| used.holds(*local)) {
            let page = self.page(&part, local, &mut copy);
            if layout::kind(page) != Some(PageKind::Slotted) || layout::table(page) != table {
                continue;
            }
            let bad = |slot| damaged(&part.pages, local, slot, "a row", "other bytes");
            let class = layout::class(page).ok_or_else(|| bad(None))?;
            for slot in layout::taken(page, class) {
                let bytes = (slot < class.slots()).then(|| layout::slot(page, class, slot));
                let row = bytes.and_then(Row::decode);
                let row = row.ok_or_else(|| bad(Some(slot)))?;
                if row.kind == Kind::String {
                    let read = self.read_row(&part, &row, &mut piece, rows);
                    read.ok_or_else(|| bad(Some(slot)))?;
                }
            }
        }
        Ok((end < used.end()).then_some(end))
    }

    fn read_row(
        &self,
        part: &Partition,
        row: &Row<'_>,
        piece: &mut Vec<u8>,
        rows: &mut Rows,
    ) -> Option<()> {
        let begin = rows.bytes.len();
        match row.place {
            Place::Inline { key, value } => {
                rows.bytes.extend_from_slice(key);
                rows.bytes.extend_from_slice(value);
            }
            Place::Large { first, key, .. } => {
                rows.bytes.extend_from_slice(key.unwrap_or_default());
                let (mut next, mut left) = (Some(first), row.chain_bytes());
                while left > 0 {
                    let page = self.page(part, self.local(part, next?)?, piece);
                    let used = left.min(CHAIN_BYTES);
                    let is_next = layout::kind(page) == Some(PageKind::Large)
                        && usize::try_from(layout::used(page)) == Ok(used);
                    if !is_next {
                        return None;
                    }
                    let content = &page[HEADER_BYTES..HEADER_BYTES + used];
                    rows.bytes.extend_from_slice(content);
                    left -= used;
                    next = layout::next(page);
                }
            }
        }
        let key = begin + row.key_bytes;
        rows.ends.push((key, key + row.value_bytes));
        assert_eq!(
            rows.bytes.len(),
            key + row.value_bytes,
            "a row has the bytes that its head says"
        );
        Some(())
    }

    /// Returns the local index of a page that was in use at the snapshot's instant.
    fn local(&self, part: &Partition, page: PageId) -> Option<u32> {
        let local = part.pages.local(page)?;
        let used = part.cuts.extent_at(self.cut.number())?;
        used.holds(local).then_some(local)
    }

    /// Returns a page as of the snapshot.
    fn page<'a>(&self, part: &'a Partition, local: u32, copy: &'a mut Vec<u8>) -> &'a [u8] {
        let live = part.pages.page(local);
        match part.cuts.page_at(self.cut.number(), local, live, copy) {
            true => copy,
            false => live,
        }
    }

    /// Returns the pages that were in use at the snapshot's instant.
    fn used(&self, part: &Partition) -> Result<Extent> {
        let used = part.cuts.extent_at(self.cut.number());
        used.ok_or(Error::SnapshotEnded)
    }
}
