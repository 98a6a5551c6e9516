//! Changes of slots, and commits.
//!
//! A change happens in one critical section under the partition's latch. It reads the tag, appends the record, and
//! overwrites the slot. A checkpoint visits the page before or after this critical section. So an image of checkpoint k
//! contains a change exactly if the change's tag is below k.
//!
//! # Source
//! *Differential Logging* (000), algorithm 1.
//!
//! # Deviations
//! The paper's step 2 takes the latch only while a checkpoint runs; here it always does. The append of step 6
//! precedes the release of the latch, step 5.

#[cfg(feature = "flaws")]
mod seeded;

use std::sync::atomic::Ordering;

use perdura_base::{CkptEpoch, Error, PageId, PartitionId, Result};
use perdura_page::txn_record::encode_commit;

use crate::engine::Steal;
use crate::options::Records;
use crate::record::Change;
use crate::space::{Holder, SlotKey, Space};
use crate::txn::{Buffers, Committed, Held, Place, Slotted, Txn, Undo};

/// The approximate size of a change's record, in bytes. The old row and the new row in the record are not counted.
const RECORD_BYTES: usize = 64;
/// The maximum number of buffers kept for later transactions.
const POOL_MAX: usize = 64;

impl Steal {
    /// Opens a transaction and routes it to a stream. The transaction's begin record is appended with its first
    /// change.
    pub fn begin(&self) -> Txn {
        Txn {
            routed: self.txns.route(self.options.route, &self.wal),
            first: None,
            rollback: None,
            #[cfg(feature = "flaws")]
            pending: None,
            buffers: self.pool.lock().pop().unwrap_or_default(),
            updates: 0,
            record_bytes: 0,
            compensations: 0,
            compensation_bytes: 0,
        }
    }

    /// Appends the row at a place to `out`. The appended row has at most the database's slot size. Returns true if the
    /// slot is taken. Returns false and appends nothing if the slot is free. Takes no slot lock, so the row may be an
    /// uncommitted write of an open transaction.
    pub fn read(&self, place: Place, out: &mut Vec<u8>) -> bool {
        let at = self.locate(place);
        let part = self.heap.lock(at.partition);
        match part.slot(at.local, at.slot) {
            Some(slot) if slot.taken => {
                let bytes = slot.bytes.len().min(self.options.slot_bytes);
                out.extend_from_slice(&slot.bytes[..bytes]);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Puts a row, padded with zeros, into a free slot. Returns `None` if no slot is free; then see
    /// [`grow`](Self::grow).
    ///
    /// # Errors
    /// [`Error::Usage`] for a row longer than a slot; [`Error::LogFull`] and [`Error::Stopped`].
    pub fn insert(&self, txn: &mut Txn, row: &[u8]) -> Result<Option<Place>> {
        self.admit(txn, row.len())?;
        let partitions = u64::from(self.heap.geometry().partitions);
        let turn = self.next_partition.fetch_add(1, Ordering::Relaxed);
        if self.free.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        for i in 0..partitions {
            let id = turn.wrapping_add(i) % partitions;
            let partition = PartitionId(u16::try_from(id).expect("at most 256 partitions"));
            let mut space = self.space(partition);
            let Some(key) = space.pop_free() else {
                continue;
            };
            self.free.fetch_sub(1, Ordering::Relaxed);
            let at = Slotted {
                partition,
                local: key.local(),
                slot: key.slot(),
            };
            let held = hold(txn, &mut space, at, false);
            self.change(txn, held, Some(row), None);
            let page = self.page_id(at);
            let slot = at.slot;
            return Ok(Some(Place { page, slot }));
        }
        Ok(None)
    }

    /// Locks the row at a place without changing it. [`read`](Self::read) then returns an unchanged row until the
    /// transaction ends. Returns false if the slot is free or another transaction has locked the slot.
    pub fn lock(&self, txn: &mut Txn, place: Place) -> bool {
        #[cfg(feature = "flaws")]
        self.settle(txn);
        self.hold_at(txn, place).is_some()
    }

    /// Overwrites the row at a place. Returns false, and does nothing, if the slot is free or another transaction has
    /// locked the slot.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn update(&self, txn: &mut Txn, place: Place, row: &[u8]) -> Result<bool> {
        self.admit(txn, row.len())?;
        Ok(self.change_at(txn, place, Some(row)))
    }

    /// Removes the row at a place. Returns false, and does nothing, if the slot is free or another transaction has
    /// locked the slot.
    ///
    /// # Errors
    /// [`Error::LogFull`] and [`Error::Stopped`].
    pub fn delete(&self, txn: &mut Txn, place: Place) -> Result<bool> {
        self.admit(txn, 0)?;
        Ok(self.change_at(txn, place, None))
    }

    /// Commits a transaction. Other transactions then see its changes. The client may get its reply once
    /// [`is_acked`](Self::is_acked) returns true.
    ///
    /// # Panics
    /// If the transaction's rollback has begun.
    pub fn commit(&self, mut txn: Txn) -> Committed {
        assert!(
            txn.rollback.is_none(),
            "a transaction rolls back or commits"
        );
        #[cfg(feature = "flaws")]
        self.settle(&mut txn);
        let mut committed = Committed::empty(txn.id(), txn.stream());
        if txn.first.is_some() {
            let record = &mut txn.buffers.record;
            record.clear();
            encode_commit(record, txn.routed.id);
            // The commit epoch is read while this transaction holds all its slot locks. Any transaction that locks
            // one of these slots later gets this epoch or a greater one.
            let appended = self.append_end(&txn, &txn.buffers.record);
            assert!(
                txn.first <= Some(appended.pos),
                "a commit record lies behind the transaction's first"
            );
            committed.epoch = appended.epoch;
            committed.pos = appended.pos;
        } else if !txn.buffers.held.is_empty() {
            // This transaction only read rows, or wrote bytes that were already there. The rows may not be durable
            // yet. Each slot's last writer has appended its commit already, in the epoch of `last_appended` or an
            // earlier one.
            committed.epoch = self.wal.last_appended();
        }
        self.release(&mut txn);
        let counters = &self.counters;
        counters.commits.fetch_add(1, Ordering::Relaxed);
        counters.updates.fetch_add(txn.updates, Ordering::Relaxed);
        let bytes = txn.record_bytes;
        counters.update_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.recycle(txn.buffers);
        committed
    }

    /// Releases all locks of a transaction. Other transactions may then use the slots that it freed.
    pub(crate) fn release(&self, txn: &mut Txn) {
        let mut freed = 0;
        for held in &txn.buffers.held {
            let key = SlotKey::new(held.at.local, held.at.slot);
            let mut space = self.space(held.at.partition);
            space.release(key, txn.id, held.taken);
            freed += u64::from(!held.taken);
        }
        if freed > 0 {
            self.free.fetch_add(freed, Ordering::Relaxed);
        }
        txn.buffers.held.clear();
    }

    pub(crate) fn recycle(&self, mut buffers: Buffers) {
        buffers.clear();
        let mut pool = self.pool.lock();
        if pool.len() < POOL_MAX {
            pool.push(buffers);
        }
    }

    pub(crate) fn space(&self, partition: PartitionId) -> parking_lot::MutexGuard<'_, Space> {
        self.spaces[usize::from(partition.0)].lock()
    }

    pub(crate) fn page_id(&self, at: Slotted) -> PageId {
        let page = self.heap.geometry().page_id(at.partition, at.local);
        page.expect("a page there is has an id")
    }

    fn locate(&self, place: Place) -> Slotted {
        let geometry = self.heap.geometry();
        Slotted {
            partition: geometry.partition_of_page(place.page),
            local: geometry.local_index(place.page),
            slot: place.slot,
        }
    }

    /// Checks that a change is allowed and has room in the log.
    fn admit(&self, txn: &mut Txn, row_bytes: usize) -> Result<()> {
        self.options.check_row(row_bytes)?;
        if txn.rollback.is_some() {
            return Err(Error::Usage("the transaction is being rolled back".into()));
        }
        #[cfg(feature = "flaws")]
        self.settle(txn);
        self.wal
            .admit(txn.stream, 2 * self.class.bytes() + RECORD_BYTES)
    }

    fn change_at(&self, txn: &mut Txn, place: Place, row: Option<&[u8]>) -> bool {
        let Some(held) = self.hold_at(txn, place) else {
            return false;
        };
        self.change(txn, held, row, None);
        true
    }

    /// Locks the taken slot at a place. Returns the slot's index in the transaction's list of locked slots. Returns
    /// `None` if the slot is free or another transaction has locked the slot.
    fn hold_at(&self, txn: &mut Txn, place: Place) -> Option<usize> {
        let at = self.locate(place);
        let key = SlotKey::new(at.local, at.slot);
        let mut space = self.space(at.partition);
        match space.holder(key, txn.id) {
            Holder::Other => None,
            Holder::Me(held) => txn.buffers.held[held].taken.then_some(held),
            Holder::Nobody => {
                let part = self.heap.lock(at.partition);
                let taken = part.slot(at.local, at.slot)?.taken;
                drop(part);
                taken.then(|| hold(txn, &mut space, at, true))
            }
        }
    }

    /// Changes a slot that the transaction has locked. `row` is the new row; `None` frees the slot. `tag` is set only
    /// by a seeded bug, which reads the tag too early.
    pub(crate) fn change(
        &self,
        txn: &mut Txn,
        held: usize,
        row: Option<&[u8]>,
        tag: Option<CkptEpoch>,
    ) {
        let Held { at, taken } = txn.buffers.held[held];
        txn.buffers.held[held].taken = row.is_some();
        #[cfg(feature = "flaws")]
        if tag.is_none() && self.defer_change(txn, held, row) {
            return;
        }
        let page = self.page_id(at);
        let (mut to, images) = txn.split();
        let after = images.after;
        let mut part = self.heap.lock(at.partition);
        let slot = part.slot(at.local, at.slot);
        let slot = slot.expect("a slot that is locked exists");
        debug_assert!(
            slot.taken == taken || tag.is_some(),
            "the bitmap says of a locked slot what its transaction does"
        );
        debug_assert!(
            slot.tag <= self.heap.ckpt_epoch(),
            "no page is visited by a checkpoint that has not begun"
        );
        after.clear();
        match (row, self.options.records) {
            (Some(row), _) => {
                after.extend_from_slice(row);
                after.resize(slot.bytes.len(), 0);
            }
            (None, Records::Full) => after.resize(slot.bytes.len(), 0),
            (None, Records::Sparse) => after.extend_from_slice(slot.bytes),
        }
        let change = Change {
            at,
            page,
            offset: slot.offset,
            tag: tag.unwrap_or(slot.tag),
            before: slot.bytes,
            after,
            taken: (slot.taken, row.is_some()),
            compensation: false,
            whole: self.options.records == Records::Full,
        };
        let bytes = self.record(&mut to, &change);
        if bytes == 0 {
            return;
        }
        images.undo.push(Undo {
            held,
            taken: slot.taken,
            from: images.arena.len(),
        });
        images.arena.extend_from_slice(slot.bytes);
        part.put_slot(at.local, at.slot, after, row.is_some());
        txn.updates += 1;
        txn.record_bytes += bytes;
    }
}

/// Locks a slot that no transaction has locked, and returns its index in the transaction's list.
fn hold(txn: &mut Txn, space: &mut Space, at: Slotted, taken: bool) -> usize {
    let held = txn.buffers.held.len();
    txn.buffers.held.push(Held { at, taken });
    space.lock(SlotKey::new(at.local, at.slot), txn.id, held);
    held
}
