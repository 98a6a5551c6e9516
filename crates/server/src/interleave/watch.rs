//! Clients of several loops that increment a number under WATCH.

use super::{must_fail, search};
use crate::engine::Epoch;
use crate::watch::{Own, Watches};
use shuttle::sync::Mutex;
use shuttle::thread;
use std::sync::Arc;

/// The time at which EXEC compares the watched keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compares {
    /// Under the latch of the key.
    Inside,
    /// Before it takes the latch.
    Before,
}

/// A number under its latch, with the clients that watch it.
#[derive(Default)]
struct Number {
    latch: Mutex<u64>,
    watches: Watches,
}

impl Number {
    /// Increments the number as INCR does.
    fn increment(&self) -> u64 {
        let mut number = self.latch.lock().expect("the latch");
        *number += 1;
        self.watches.touch(0, b"k", Epoch(*number));
        1
    }

    /// Increments the number with WATCH, GET, MULTI, SET and EXEC. Returns 0 if EXEC was refused.
    fn increment_under_watch(&self, compares: Compares) -> u64 {
        let mut own = Own::new();
        {
            let _latch = self.latch.lock().expect("the latch");
            self.watches.add(&mut own, 0, b"k", None);
        }
        let seen = *self.latch.lock().expect("the latch");
        let early = self.watches.changed(&own);
        let mut number = self.latch.lock().expect("the latch");
        let changed = match compares {
            Compares::Inside => self.watches.changed(&own),
            Compares::Before => early,
        };
        let made = changed.is_none();
        if made {
            *number = seen + 1;
            self.watches.touch(0, b"k", Epoch(*number));
        }
        drop(number);
        self.watches.forget(&mut own);
        u64::from(made)
    }
}

fn increments(compares: Compares) {
    let number = Arc::new(Number::default());
    let mut threads = Vec::new();
    for _ in 0..2 {
        let number = Arc::clone(&number);
        threads.push(thread::spawn(move || {
            (0..2).map(|_| number.increment_under_watch(compares)).sum()
        }));
    }
    let plain = Arc::clone(&number);
    threads.push(thread::spawn(move || plain.increment()));
    let made: u64 = threads
        .into_iter()
        .map(|t| t.join().expect("a client"))
        .sum();
    assert_eq!(*number.latch.lock().expect("the latch"), made);
    assert!(number.watches.is_empty(), "no client watches any more");
}

#[test]
fn no_increment_under_watch_is_lost() {
    search(|| increments(Compares::Inside));
}

#[test]
fn a_comparison_before_the_latch_loses_an_increment() {
    must_fail(|| increments(Compares::Before));
}
