//! Aborts. A rollback is logged only if a checkpoint could copy pages between the rollback's undos.
//!
//! A *window* is the phase of a checkpoint that visits the pages. Outside a window a rollback need not be logged. The
//! rollback holds the gate's read lock, so no window begins before the rollback ends. So an image has all undos of the
//! rollback, or no undo. The checkpoint epoch in the abort record shows which.
//!
//! Within a window, the checkpoint may have visited some of the transaction's pages and not yet others. So each undo
//! is logged as an ordinary change, a *compensation*. A rollback that begins within a window stays compensated after
//! the window's end.
//!
//! DL2P and PL2P always compensate, because their restart first repeats history and then undoes the losers.
//!
//! # Source
//! *Differential Logging* (000), section 3.4, which has no compensation records.
//!
//! # Deviations
//! The gate, and compensation within windows. Without them, a checkpoint could visit a page after an update and before
//! the undo of the update. The image would contain the update, and nothing in the log would show whether the update was
//! undone.

use std::sync::atomic::Ordering;

use perdura_base::flaw::{Flaw, armed};
use perdura_page::txn_record::encode_abort;
use perdura_wal::Scheme;

use crate::engine::Steal;
use crate::options::Records;
use crate::record::Change;
use crate::txn::{Rollback, Txn};

impl Steal {
    /// Rolls a transaction back completely.
    pub fn abort(&self, mut txn: Txn) {
        self.abort_begin(&mut txn);
        while !self.abort_step(&mut txn) {}
        self.recycle(txn.buffers);
    }

    /// Begins a rollback. If the rollback needs no compensation, also completes it.
    pub fn abort_begin(&self, txn: &mut Txn) {
        if txn.rollback.is_some() {
            return;
        }
        #[cfg(feature = "flaws")]
        self.settle(txn);
        if txn.first.is_none() {
            txn.rollback = Some(Rollback::Done);
            self.end_abort(txn, false);
            return;
        }
        if self.scheme != Scheme::Dl1p {
            txn.rollback = Some(Rollback::Compensated);
            return;
        }
        if armed(Flaw::NoClr) || armed(Flaw::PrintedRule) {
            txn.rollback = Some(Rollback::Silent);
            return;
        }
        let window = self.streams.gate();
        if *window {
            txn.rollback = Some(Rollback::Compensated);
            return;
        }
        self.undo_unlogged(txn, &window);
        drop(window);
        txn.rollback = Some(Rollback::Done);
        self.end_abort(txn, false);
    }

    /// Undoes all changes without logging each undo, and appends the abort record. The caller holds the gate's read
    /// lock.
    ///
    /// # Panics
    /// If a window is open, or begins before the rollback ends (invariant I11). A checkpoint could then visit some
    /// pages before the rollback and other pages after it.
    fn undo_unlogged(&self, txn: &mut Txn, window: &bool) {
        let epoch = self.heap.ckpt_epoch();
        while self.undo_one(txn, false) {}
        self.append_abort(txn, false);
        let now = self.heap.ckpt_epoch();
        assert!(
            !*window && now == epoch,
            "I11: an unlogged rollback that began at checkpoint {epoch} ends at {now}"
        );
    }

    /// Takes one step of a rollback that has begun: undoes one change, or ends the rollback if no change is left.
    /// Returns whether the rollback has ended. The caller then drops the transaction.
    pub fn abort_step(&self, txn: &mut Txn) -> bool {
        let Some(rollback) = txn.rollback else {
            self.abort_begin(txn);
            return txn.rollback == Some(Rollback::Done);
        };
        #[cfg(feature = "flaws")]
        self.settle(txn);
        let compensated = rollback == Rollback::Compensated;
        if rollback == Rollback::Done {
            return true;
        }
        if self.undo_one(txn, compensated) {
            return false;
        }
        self.append_abort(txn, compensated);
        txn.rollback = Some(Rollback::Done);
        self.end_abort(txn, compensated);
        true
    }

    /// Undoes the latest change that is not yet undone. Returns false if there was none.
    fn undo_one(&self, txn: &mut Txn, compensated: bool) -> bool {
        let (mut to, images) = txn.split();
        let Some(last) = images.undo.pop() else {
            return false;
        };
        let at = images.held[last.held].at;
        let before = &images.arena[last.from..];
        let page = self.page_id(at);
        let mut part = self.heap.lock(at.partition);
        let slot = part.slot(at.local, at.slot);
        let slot = slot.expect("a slot that is locked exists");
        assert_eq!(
            (before.len(), images.held[last.held].taken),
            (slot.bytes.len(), slot.taken),
            "what the page holds is what the transaction left there"
        );
        let mut bytes = 0;
        if compensated {
            let change = Change {
                at,
                page,
                offset: slot.offset,
                tag: slot.tag,
                before: slot.bytes,
                after: before,
                taken: (slot.taken, last.taken),
                compensation: true,
                whole: self.options.records == Records::Full,
            };
            bytes = self.record(&mut to, &change);
        }
        part.put_slot(at.local, at.slot, before, last.taken);
        drop(part);
        images.arena.truncate(last.from);
        images.held[last.held].taken = last.taken;
        txn.compensations += u64::from(bytes > 0);
        txn.compensation_bytes += bytes;
        true
    }

    fn append_abort(&self, txn: &mut Txn, compensated: bool) {
        // A seeded bug may have deferred the record of the last compensation. It is appended here.
        #[cfg(feature = "flaws")]
        self.settle(txn);
        let record = &mut txn.buffers.record;
        record.clear();
        encode_abort(record, txn.routed.id, compensated, self.heap.ckpt_epoch());
        self.append_end(txn, &txn.buffers.record);
    }

    fn end_abort(&self, txn: &mut Txn, compensated: bool) {
        self.release(txn);
        let counters = &self.counters;
        let add = |counter: &std::sync::atomic::AtomicU64, n: u64| {
            counter.fetch_add(n, Ordering::Relaxed);
        };
        add(&counters.aborts, 1);
        add(&counters.aborts_compensated, u64::from(compensated));
        add(&counters.updates, txn.updates);
        add(&counters.update_bytes, txn.record_bytes);
        add(&counters.compensations, txn.compensations);
        add(&counters.compensation_bytes, txn.compensation_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_base::PartitionId;
    use perdura_device::{Disk, ManualClock, MemDisk};
    use perdura_recovery::Disks;

    use super::*;
    use crate::env::StealEnv;
    use crate::options::StealOptions;

    #[test]
    #[should_panic(expected = "I11")]
    fn an_unlogged_rollback_within_a_window_is_noticed() {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let env = StealEnv {
            disks: Disks::on_one(disk, 1),
            clock: Arc::new(ManualClock::at(1)),
            seed: 7,
        };
        let options = StealOptions::new(Scheme::Dl1p, 64);
        let steal = Steal::create(env, options).expect("a new database");
        steal.checkpoint_now().expect("no disk fails");
        let grown = steal.grow(PartitionId(0)).expect("a page");
        steal.flush_all().expect("no disk fails");
        assert!(steal.is_acked(&grown));
        let mut txn = steal.begin();
        let inserted = steal.insert(&mut txn, b"row").expect("no limit");
        assert!(inserted.is_some());
        steal.checkpoint_begin().expect("no disk fails");
        let window = steal.streams.gate();
        steal.undo_unlogged(&mut txn, &window);
    }
}
