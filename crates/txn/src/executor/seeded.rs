//! Seeded bugs of the executor that need code; see [`perdura_base::flaw`].

use std::cell::RefCell;

use perdura_base::Epoch;
use perdura_heap::GroupBuilder;

use super::Ticket;
use crate::tx::Guards;

/// Makes the mistake of Algorithm 1 as printed (step 6 after step 5). The latches are released, and only then, perhaps
/// much later, is the group appended.
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
