//! New pages, and the initial load.
//!
//! A logged change of the header turns a page into a page of slots. The transaction of this change commits at once.
//! Transactions that use the new slots commit later. So no restart keeps a row but loses the row's page.
//!
//! The initial load is not logged; the first checkpoint makes it durable.

use std::sync::atomic::Ordering;

use perdura_base::num::to_u64;
use perdura_base::{Error, PartitionId, Result, TableId};
use perdura_page::layout::{self, HEADER_BYTES, META_BYTES, ZERO_PAGE};

use crate::engine::Steal;
use crate::record::Change;
use crate::space::SlotKey;
use crate::txn::{Committed, Slotted};

/// The table that all pages belong to. Table 0 is the product's catalog.
pub const TABLE: TableId = TableId(1);

impl Steal {
    /// Adds a page of free slots to a partition.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::LogFull`] and [`Error::Stopped`].
    pub fn grow(&self, partition: PartitionId) -> Result<Committed> {
        let mut txn = self.begin();
        self.wal.admit(txn.stream, 4096)?;
        let mut part = self.heap.lock(partition);
        let local = part.unused_page()?;
        let end = HEADER_BYTES + 8 * self.class.bitmap_words();
        let page = part.page_bytes(local).unwrap_or(&ZERO_PAGE);
        let tag = layout::epoch(page);
        let before = page[META_BYTES..end].to_vec();
        part.format_slots(local, TABLE, self.class);
        let page = part.page_bytes(local).unwrap_or(&ZERO_PAGE);
        let at = Slotted {
            partition,
            local,
            slot: 0,
        };
        let header = Change {
            at,
            page: self.page_id(at),
            offset: META_BYTES,
            tag,
            before: &before,
            after: &page[META_BYTES..end],
            taken: (false, false),
            compensation: false,
            whole: false,
        };
        let recorded = self.record(&mut txn.split().0, &header);
        assert!(recorded > 0, "an unused page is not one of slots");
        assert_eq!(
            part.slotted(local),
            Some(self.class),
            "a new page has the slots that the database was opened for"
        );
        drop(part);
        let committed = self.commit(txn);
        self.offer(partition, local);
        Ok(committed)
    }

    /// Adds all slots of a new page to the free list, so that the lowest slot is handed out first.
    fn offer(&self, partition: PartitionId, local: u32) {
        let slots = u16::try_from(self.class.slots()).expect("at most 1024 slots");
        let keys = (0..slots).rev().map(|slot| SlotKey::new(local, slot));
        self.space(partition).add_free(keys);
        self.free.fetch_add(u64::from(slots), Ordering::Relaxed);
    }

    /// Loads rows into new pages without logging them. The pages are assigned to the partitions in turn. The last page
    /// may have free slots. Returns how many rows were loaded. The caller must then take a checkpoint
    /// ([`checkpoint_now`](perdura_recovery::Life::checkpoint_now)). A crash before the end of this checkpoint loses
    /// the rows.
    ///
    /// The load is refused if an image already exists. Such a load could lose the rows after damage to the first image
    /// that has the rows. A restart would then use the older image and the log since that image. Neither the older
    /// image nor this log has the rows.
    ///
    /// # Errors
    /// [`Error::Usage`] if a row is longer than `slot_bytes`, an image exists, a checkpoint runs or a transaction is
    /// open; [`Error::OutOfMemory`].
    pub fn fill<R: AsRef<[u8]>>(&self, rows: impl IntoIterator<Item = R>) -> Result<u64> {
        let anchor = self.anchor().get();
        let images = &anchor.images;
        let refused = if self.checkpoint_is_running() {
            Some("a checkpoint is running")
        } else if images.iter().any(|i| i.is_complete()) {
            Some("an image has been taken, and a load that is not logged must be in every image")
        } else if self.spaces.iter().any(|space| space.lock().is_locked()) {
            Some("a transaction is open")
        } else {
            None
        };
        if let Some(why) = refused {
            return Err(Error::Usage(format!("no initial load now: {why}")));
        }
        let partitions = self.heap.geometry().partitions;
        let slots = u16::try_from(self.class.slots()).expect("at most 1024 slots");
        let mut rows = rows.into_iter();
        let mut bytes = Vec::new();
        let mut count = 0;
        let mut next = rows.next();
        let mut turn = 0u16;
        while next.is_some() {
            let partition = PartitionId(turn % partitions);
            turn = (turn + 1) % partitions;
            let mut part = self.heap.lock(partition);
            let local = part.unused_page()?;
            part.format_slots(local, TABLE, self.class);
            let mut slot = 0;
            while let Some(row) = next.as_ref().filter(|_| slot < slots) {
                let row = row.as_ref();
                self.options.check_row(row.len())?;
                bytes.clear();
                bytes.extend_from_slice(row);
                bytes.resize(self.class.bytes(), 0);
                part.put_slot(local, slot, &bytes, true);
                slot += 1;
                count += 1;
                next = rows.next();
            }
            drop(part);
            let keys = (slot..slots).rev().map(|slot| SlotKey::new(local, slot));
            self.free.fetch_add(to_u64(keys.len()), Ordering::Relaxed);
            self.space(partition).add_free(keys);
        }
        Ok(count)
    }
}
