//! A user's snapshot: all pages and rows as of one instant, while writers continue.
//!
//! A snapshot is a [cut](crate::cuts) that a caller reads for as long as it likes. The bytes that commits keep for it
//! take memory. Past the bound the oldest snapshot ends, and reading it fails. A snapshot neither delays a checkpoint
//! nor cancels a sweep.
//!
//! Sixteen pages are read under one latch. The caller's closure runs without the latch for rows, which are copied, and
//! under it for pages. A page's checkpoint epoch is today's and not the cut's: it says what images hold and is no part
//! of the data.

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

/// All pages as of one instant. Dropping it ends it.
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

/// Keys and values that were read under one latch, one after the other.
#[derive(Default)]
struct Rows {
    bytes: Vec<u8>,
    /// The ends of each row's key and value.
    ends: Vec<(usize, usize)>,
}

impl Snapshot {
    /// Returns the sequence number of each partition at the instant.
    #[must_use]
    pub fn pseq(&self) -> &[u64] {
        self.cut.pseq()
    }

    /// Passes `n` pages of a partition from `from` on to `take`, as they were. Returns the first page
    /// not passed; `None` behind the last one that was in use.
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`] if the snapshot was ended because too much was kept for it.
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

    /// Passes every row of a table that has a plain value to `take`, key and value, in no order.
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`] if the snapshot was ended because too much was kept for it. [`Error::Corrupt`] if a row
    /// cannot be read. The first error of `take`.
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

    /// Reads the rows of a batch of pages. Returns the begin of the next batch.
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

    /// Returns the local index of a page that was in use.
    fn local(&self, part: &Partition, page: PageId) -> Option<u32> {
        let local = part.pages.local(page)?;
        let used = part.cuts.extent_at(self.cut.number())?;
        used.holds(local).then_some(local)
    }

    /// Returns a page as it was.
    fn page<'a>(&self, part: &'a Partition, local: u32, copy: &'a mut Vec<u8>) -> &'a [u8] {
        let live = part.pages.page(local);
        match part.cuts.page_at(self.cut.number(), local, live, copy) {
            true => copy,
            false => live,
        }
    }

    /// Returns the pages that were used.
    fn used(&self, part: &Partition) -> Result<Extent> {
        let used = part.cuts.extent_at(self.cut.number());
        used.ok_or(Error::SnapshotEnded)
    }
}
