//! The lane of the log that each thread appends to.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The value of a thread that has no lane yet.
const NONE: usize = usize::MAX;

/// The lane of the next thread that has none.
static NEXT: AtomicUsize = AtomicUsize::new(0);

std::thread_local! {
    static LANE: Cell<usize> = const { Cell::new(NONE) };
}

/// Sets the lane of this thread. Threads that append much and run at the same time should have different lanes. A thread
/// that sets none gets the next number at its first commit. The log takes the number modulo its count of lanes.
pub fn set_lane(lane: usize) {
    debug_assert!(lane < NONE, "the number of a thread");
    LANE.set(lane);
}

/// Returns the lane of this thread.
#[inline]
pub(crate) fn lane() -> usize {
    match LANE.get() {
        NONE => first(),
        lane => lane,
    }
}

#[cold]
fn first() -> usize {
    let lane = NEXT.fetch_add(1, Ordering::Relaxed) % NONE;
    LANE.set(lane);
    lane
}
