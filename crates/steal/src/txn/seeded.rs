//! Changes that two seeded bugs leave unfinished. The bugs follow the paper's text of algorithm 1; see
//! [`perdura_base::flaw`].

use perdura_base::checksum::mix64;
use perdura_base::{CkptEpoch, PartitionId, TxnId};

/// A change that a seeded bug of algorithm 1 leaves unfinished until the transaction's next action.
#[derive(Debug)]
pub(crate) enum Pending {
    /// The tag was read; the page has not been changed.
    Half {
        held: usize,
        row: Option<Vec<u8>>,
        tag: CkptEpoch,
    },
    /// The page was changed; the record has not been appended.
    Late {
        record: Vec<u8>,
        partition: PartitionId,
        tag: CkptEpoch,
    },
}

/// Returns whether the seeded bugs of algorithm 1 affect this change. The bugs affect half of all changes; the choice
/// is the same in every run.
pub(crate) fn is_odd(txn: TxnId, slot: u16) -> bool {
    mix64(txn.0 ^ u64::from(slot) << 40) & 1 == 1
}
