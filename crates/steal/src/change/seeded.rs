//! The seeded bug that follows the paper's text of algorithm 1, step 2; see [`perdura_base::flaw`].

use perdura_base::flaw::{Flaw, armed};

use crate::engine::Steal;
use crate::txn::Txn;
use crate::txn::seeded::{Pending, is_odd};

impl Steal {
    /// Follows the paper's step 2 if the seeded bug is armed and no checkpoint's window is open. Reads the page's tag
    /// and releases the latch before the page is changed. Returns whether the change was deferred.
    /// [`settle`](Self::settle) makes a deferred change.
    pub(crate) fn defer_change(&self, txn: &mut Txn, held: usize, row: Option<&[u8]>) -> bool {
        let at = txn.buffers.held[held].at;
        if !armed(Flaw::FlagOutsideLatch) || *self.streams.gate() || !is_odd(txn.id, at.slot) {
            return false;
        }
        let part = self.heap.lock(at.partition);
        let Some(tag) = part.slot(at.local, at.slot).map(|slot| slot.tag) else {
            return false;
        };
        let row = row.map(<[u8]>::to_vec);
        txn.pending = Some(Pending::Half { held, row, tag });
        true
    }

    /// Finishes the change that a seeded bug left unfinished. Each action of the transaction calls this first.
    pub fn settle(&self, txn: &mut Txn) {
        match txn.pending.take() {
            None => {}
            Some(Pending::Half { held, row, tag }) => {
                self.change(txn, held, row.as_deref(), Some(tag));
            }
            Some(Pending::Late {
                record,
                partition,
                tag,
            }) => {
                self.append_record(txn.stream, &record, partition, tag);
            }
        }
    }
}
