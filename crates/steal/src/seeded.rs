//! Seeded bugs of algorithm 1 as the paper prints it; see [`perdura_base::flaw`].

use perdura_base::checksum::mix64;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{PartitionId, TxnId};

use crate::engine::Steal;
use crate::record::Change;
use crate::txn::{Recorder, Txn};

/// A change that the seeded bugs of the printed algorithm 1 leave unfinished until the
/// transaction's next action.
#[derive(Debug)]
pub(crate) enum Pending {
    /// The tag was read; the page has not been changed.
    Half {
        held: usize,
        row: Option<Vec<u8>>,
        tag: perdura_base::CkptEpoch,
    },
    /// The page was changed; the record has not been appended.
    Late {
        record: Vec<u8>,
        partition: PartitionId,
        tag: perdura_base::CkptEpoch,
    },
}

impl Steal {
    /// The seeded bug of step 2 as printed: outside a window the tag is read without the latch,
    /// and the page is changed later. Returns whether it took the change.
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

    /// Finishes what a seeded bug left unfinished: the transaction's next action.
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
            }) => self.append_record(txn.stream, &record, partition, tag),
        }
    }
}

/// The seeded bug of step 6 after step 5 as printed: the record is appended after the latch was
/// released. Returns whether it took the record.
pub(crate) fn defer_append(to: &mut Recorder<'_>, change: &Change<'_>) -> bool {
    let deferred = armed(Flaw::LateAppendSteal) && is_odd(to.id, change.at.slot);
    if deferred {
        *to.pending = Some(Pending::Late {
            record: to.record.clone(),
            partition: change.at.partition,
            tag: change.tag,
        });
    }
    deferred
}

/// Half of the changes, the same in every run: those that the seeded bugs of algorithm 1 strike.
fn is_odd(txn: TxnId, slot: u16) -> bool {
    mix64(txn.0 ^ u64::from(slot) << 40) & 1 == 1
}
