//! The log of a process for its operators: events of `tracing`, one line each, on stderr.
//!
//! No thread that serves clients ever writes to stderr. An event becomes a line in a bounded queue, and one thread
//! writes the lines (`writer`). While stderr accepts nothing (a full disk, a pipe that is not read), lines are dropped
//! and counted. The next line that can be written says how many were lost. No failure of stderr reaches the process.
//!
//! Messages to the service manager ([`notify`]) are in this crate because these messages must not delay a thread.
//!
//! The macros of `tracing` are used everywhere above the storage crates. A program that embeds the database chooses its
//! own subscriber or has none. Only `perdura`'s long-running verbs call [`start`].

mod capture;
mod line;
mod manager;
mod panics;
mod queue;
mod settings;
mod subscriber;
mod writer;

pub use capture::Capture;
pub use manager::notify;
pub use settings::{LogFormat, LogLevel};

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use queue::Queue;
use subscriber::Lines;
use writer::{Stderr, Writer};

/// The longest time that a process waits for stderr before it ends.
const FAREWELL: Duration = Duration::from_millis(1000);

/// The log of this process.
static LOG: OnceLock<Lines> = OnceLock::new();

/// Counts of lines since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogFigures {
    /// Lines that stderr has accepted.
    pub written: u64,
    /// The number of lines dropped because the queue was full or stderr refused them.
    pub lost: u64,
}

/// Begins to write events of this workspace's crates to stderr, and reports panics as events.
///
/// # Errors
/// Returns the system's error if the writer's thread cannot be started. Also returns an error if a log or a different
/// subscriber of `tracing` is active already.
pub fn start(level: LogLevel, format: LogFormat) -> io::Result<()> {
    let queue = Arc::new(Queue::default());
    let lines = Lines::new(Arc::clone(&queue), level, format);
    tracing::subscriber::set_global_default(lines.clone()).map_err(io::Error::other)?;
    Writer::new(queue, Stderr, format).spawn()?;
    panics::report();
    LOG.set(lines)
        .map_err(|_| io::Error::other("the log was started already"))
}

/// Returns whether [`start`] has succeeded. After that, a program should send its messages to the log.
#[must_use]
pub fn is_running() -> bool {
    LOG.get().is_some()
}

/// Changes the least severe level of events that are written.
pub fn set_level(level: LogLevel) {
    if let Some(log) = LOG.get() {
        log.set_level(level);
    }
}

/// Returns the counts of lines; zeros if no log was started.
#[must_use]
pub fn figures() -> LogFigures {
    LOG.get().map(Lines::figures).unwrap_or_default()
}

/// Waits until stderr has accepted all lines. Waits at most one second.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.flush(FAREWELL);
    }
}

/// A guard that flushes the log when it is dropped. A panic of the main thread drops it, too.
#[derive(Debug, Default)]
pub struct FlushAtEnd;

impl Drop for FlushAtEnd {
    fn drop(&mut self) {
        flush();
    }
}
