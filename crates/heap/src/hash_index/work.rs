//! Steps taken in arrays, counted for tests alone: what an order of insertion costs is told by
//! them, not by a clock.

#[cfg(not(test))]
pub(super) fn step() {}

#[cfg(test)]
pub(super) use counted::step;

#[cfg(test)]
pub(super) mod counted {
    use std::cell::Cell;

    std::thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    pub(in super::super) fn step() {
        STEPS.set(STEPS.get() + 1);
    }

    /// The steps that `f` takes on this thread.
    pub(in super::super) fn during(f: impl FnOnce()) -> u64 {
        let before = STEPS.get();
        f();
        STEPS.get() - before
    }
}
