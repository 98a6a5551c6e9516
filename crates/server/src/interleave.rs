//! Schedules of threads over the tables that loops share: mailbox and gate, watched keys, and clients that wait for keys.
//!
//! Each test plays the steps that loops and transactions make around the real tables. A mutex of the test replaces the
//! latch of a partition. A random search chooses the orders in which the threads run. Each test also shows that its
//! search notices mistakes in those steps. Run with `cargo test -p perdura-server --features shuttle --lib interleave`.

mod flights;
mod hand_over;
mod mail;
mod watch;

use crate::gate::Gate;
use std::sync::Arc;
use std::time::Duration;

/// Searches schedules of `test` in two ways.
fn search(test: fn()) {
    shuttle::check_random(test, 5000);
    shuttle::check_pct(test, 2000, 3);
}

/// Fails if no schedule makes `test` fail.
fn must_fail(test: fn()) {
    let ran = std::panic::catch_unwind(|| search(test));
    assert!(ran.is_err(), "no schedule shows the mistake");
}

/// Sleeps until the gate of this poll wakes it. Fails if `is_alone` is true while it sleeps.
fn sleep(poll: &mut mio::Poll, is_alone: impl Fn() -> bool) {
    let mut events = mio::Events::with_capacity(1);
    loop {
        // A thread that has ended may have woken this one before.
        let is_alone = is_alone();
        poll.poll(&mut events, Some(Duration::ZERO))
            .expect("a look");
        if !events.is_empty() {
            return;
        }
        assert!(!is_alone, "the loop sleeps, and nobody wakes it");
        shuttle::thread::yield_now();
    }
}

/// Returns a gate, and the poll that it wakes.
fn gate() -> (Arc<Gate>, mio::Poll) {
    let poll = mio::Poll::new().expect("a poll");
    let waker = mio::Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
    (Arc::new(Gate::new(waker)), poll)
}
