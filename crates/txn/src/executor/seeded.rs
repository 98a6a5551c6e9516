//! Seeded bugs of the executor that need extra code; see [`perdura_base::flaw`].

use std::cell::RefCell;

use perdura_base::Epoch;
use perdura_heap::GroupBuilder;

use super::Ticket;
use crate::tx::Guards;

/// Keeps the group for the next call, which appends it, perhaps much later. So the latches are released before the
/// group is appended. This order is a bug. It is the order of Algorithm 1 in the paper (step 5 before step 6).
#[cold]
pub(super) fn late_append(
    guards: &mut Guards<'_>,
    group: &mut GroupBuilder,
    append: impl Fn(&[u8]) -> Epoch,
) -> Ticket {
    std::thread_local! {
        static LATE: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    }
    let earlier = LATE.replace(Some(group.finish().to_vec()));
    let epoch = match earlier {
        Some(payload) => append(&payload),
        None => Epoch(0),
    };
    for (_, part) in guards.iter_mut() {
        part.set_last_write_epoch(epoch);
    }
    Ticket { epoch }
}
