//! Threads of a node. A thread uses the log of the thread that started it, because a program may have several nodes,
//! each with its log.

use std::io;
use std::thread::{Builder, JoinHandle};

use tracing::dispatcher::{get_default, with_default};

/// Starts a thread.
///
/// # Errors
/// Fails with the system's error if the thread cannot be started.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let log = get_default(Clone::clone);
    let thread = Builder::new().name(name.into());
    thread.spawn(move || with_default(&log, run))
}
