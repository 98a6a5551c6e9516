//! The seeded bug that follows the paper's text of algorithm 1, step 6; see [`perdura_base::flaw`].

use perdura_base::flaw::{Flaw, armed};

use super::Change;
use crate::txn::Recorder;
use crate::txn::seeded::{Pending, is_odd};

/// If the seeded bug is armed, defers the record until the latch is released, as in the paper: step 5 releases the
/// latch, step 6 appends the record. Returns whether the record was deferred.
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
