//! The seeded bug of algorithm 1, step 6, as the paper prints it; see [`perdura_base::flaw`].

use perdura_base::flaw::{Flaw, armed};

use super::Change;
use crate::txn::Recorder;
use crate::txn::seeded::{Pending, is_odd};

/// The seeded bug of step 6 after step 5, as printed: the record is appended after the latch is released. Returns
/// whether the record was deferred.
pub(super) fn defer_append(to: &mut Recorder<'_>, change: &Change<'_>) -> bool {
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
