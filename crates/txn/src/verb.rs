//! Marks that the verbs of a running transaction leave for the executor.
//!
//! The closure of a transaction is the caller's code: it may return any error, ignore an error of a verb, or panic. So
//! the executor does not rely on the closure's result. A verb that meets a missing latch, a full log or a panic leaves
//! a mark here, and the marks determine the outcome of the attempt.
//!
//! # Two kinds of panic
//! If the closure panics outside a verb, pages and before-images are consistent. The transaction is undone as after an
//! error, and the panic continues in the caller. A panic inside a verb may have left a page half changed, so the log is
//! stopped for good, and with it the database. A [`Verb`] is alive while a verb runs. If its destructor runs during a
//! panic, the panic came from inside the verb.

use std::cell::Cell;
use std::thread::panicking;

use perdura_base::{PartitionId, PartitionSet};

/// The marks of one attempt.
#[derive(Default)]
pub(crate) struct Marks {
    /// Partitions touched without their latch.
    missing: Cell<PartitionSet>,
    /// True if a verb panicked.
    in_engine: Cell<bool>,
    /// True if a write was refused because the log has no room.
    log_full: Cell<bool>,
    /// True if a write was refused and waiting for the log does not help.
    log_stuck: Cell<bool>,
    /// The largest number of bytes for which room was refused.
    refused: Cell<usize>,
}

impl Marks {
    #[cold]
    pub(crate) fn miss(&self, partition: PartitionId) {
        let mut missing = self.missing.get();
        missing.insert(partition);
        self.missing.set(missing);
    }

    pub(crate) fn missing(&self) -> PartitionSet {
        self.missing.get()
    }

    /// Returns whether a panic came from inside a verb. Such a panic is the engine's and not the caller's.
    pub(crate) fn panic_is_the_engines(&self) -> bool {
        self.in_engine.get()
    }

    #[cold]
    pub(crate) fn meet_full_log(&self, passes: bool, bytes: usize) {
        self.log_full.set(true);
        self.refused.set(self.refused.get().max(bytes));
        self.log_stuck.set(self.log_stuck.get() || !passes);
    }

    pub(crate) fn met_full_log(&self) -> bool {
        self.log_full.get()
    }

    /// Returns the largest number of bytes for which room was refused. `None`: no write was refused, or waiting for the
    /// log does not help.
    pub(crate) fn awaits_log(&self) -> Option<usize> {
        let waits = self.log_full.get() && !self.log_stuck.get();
        waits.then(|| self.refused.get())
    }
}

/// A guard that is alive while a verb runs.
pub(crate) struct Verb<'a> {
    marks: &'a Marks,
    /// True if the thread was already unwinding when the verb began, because a destructor called
    /// the verb.
    unwinding: bool,
}

impl<'a> Verb<'a> {
    pub(crate) fn enter(marks: &'a Marks) -> Verb<'a> {
        let unwinding = panicking();
        Verb { marks, unwinding }
    }
}

impl Drop for Verb<'_> {
    fn drop(&mut self) {
        if panicking() && !self.unwinding {
            self.marks.in_engine.set(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use super::*;

    fn panic_is_the_engines(run: impl FnOnce(&Marks)) -> bool {
        let marks = Marks::default();
        let ended = catch_unwind(AssertUnwindSafe(|| run(&marks)));
        assert!(ended.is_err());
        marks.panic_is_the_engines()
    }

    /// Panics without printing a message on stderr.
    fn panics() {
        resume_unwind(Box::new("a bug"));
    }

    /// A value of the caller, such as a scope guard. Its destructor uses the transaction.
    struct OnDrop<'a>(&'a Marks);

    impl Drop for OnDrop<'_> {
        fn drop(&mut self) {
            let _verb = Verb::enter(self.0);
        }
    }

    #[test]
    fn a_panic_inside_a_verb_is_the_engines_and_one_between_verbs_the_callers() {
        assert!(panic_is_the_engines(|marks| {
            let _verb = Verb::enter(marks);
            panics();
        }));
        assert!(panic_is_the_engines(|marks| {
            let _outer = Verb::enter(marks);
            drop(Verb::enter(marks));
            panics();
        }));
        assert!(!panic_is_the_engines(|marks| {
            drop(Verb::enter(marks));
            panics();
        }));
    }

    #[test]
    fn a_verb_in_a_destructor_that_unwinding_runs_is_not_blamed() {
        assert!(!panic_is_the_engines(|marks| {
            let _guard = OnDrop(marks);
            panics();
        }));
    }
}
