//! Runs threads in parallel and waits until all have ended.

use std::thread::{Builder, Scope, ScopedJoinHandle};

use perdura_base::{Error, Result};

/// A guard that calls its function if the thread panics while the guard is in scope.
pub(crate) struct OnPanic<F: Fn()>(pub F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Starts a thread of a scope.
///
/// # Errors
/// [`Error::Io`] if the system cannot start a thread. Then `work` is not called.
pub fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let started = Builder::new().spawn_scoped(scope, work);
    started.map_err(|error| Error::io("start", "a thread", error))
}

/// Runs `work` on the caller's thread and on `threads - 1` new threads. If the system cannot start all of these, runs
/// `work` on fewer threads.
///
/// # Errors
/// The error of the caller's thread. If that thread did not fail, the error of the failed thread that was started
/// first.
pub fn run_threads(threads: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    if threads <= 1 {
        return work();
    }
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map_while(|_| start(scope, &work).ok())
            .collect();
        let mut result = work();
        for other in others {
            let ended = other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(ended);
        }
        result
    })
}
