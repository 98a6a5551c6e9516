//! Counters of searches and of steps in arrays. Only tests count. The counts measure the cost of an insertion order
//! better than a clock.

#[cfg(not(test))]
pub(super) fn step() {}

#[cfg(not(test))]
pub(super) fn search() {}

#[cfg(test)]
pub(super) use counted::{search, step};

#[cfg(test)]
pub(super) mod counted {
    use std::cell::Cell;

    std::thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
        static SEARCHES: Cell<u64> = const { Cell::new(0) };
    }

    pub(in super::super) fn search() {
        SEARCHES.set(SEARCHES.get() + 1);
    }

    /// Returns the number of searches that this thread has begun.
    pub(in super::super) fn searches() -> u64 {
        SEARCHES.get()
    }

    pub(in super::super) fn step() {
        STEPS.set(STEPS.get() + 1);
    }

    /// Returns the steps that `f` takes on this thread.
    pub(in super::super) fn during(f: impl FnOnce()) -> u64 {
        let before = STEPS.get();
        f();
        STEPS.get() - before
    }
}
