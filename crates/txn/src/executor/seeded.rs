//! Seeded bugs of the executor that need extra code; see [`perdura_base::flaw`].

use std::cell::RefCell;

use perdura_base::Epoch;
use perdura_heap::GroupBuilder;

use super::Ticket;
use crate::tx::Guards;

/// Releases the latches before the group is appended. The group is appended by the next call, perhaps much later. This
/// order is a bug. It is the order of Algorithm 1 in the paper (step 5 before step 6).
#[cold]
pub(super) fn late_append(
    mut guards: Guards<'_>,
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
    for (_, part) in &mut guards {
        part.set_last_write_epoch(epoch);
    }
    Ticket { epoch }
}
