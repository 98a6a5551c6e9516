//! The seeded bug of algorithm 1, step 2, as the paper prints it; see [`perdura_base::flaw`].

use perdura_base::flaw::{Flaw, armed};

use crate::engine::Steal;
use crate::txn::Txn;
use crate::txn::seeded::{Pending, is_odd};

impl Steal {
    /// The seeded bug of step 2 as printed: outside a window it reads the tag without the latch and defers the
    /// change. Returns whether the change was deferred.
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

    /// Finishes the change that a seeded bug left unfinished, at the transaction's next action.
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
