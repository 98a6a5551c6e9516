//! The events of a piece of code, kept as lines in memory for tests of the log.

use std::sync::Arc;

use crate::queue::Queue;
use crate::subscriber::Lines;
use crate::{LogFormat, LogLevel};

/// Lines in memory.
#[derive(Clone, Default)]
pub struct Capture(Arc<Queue>);

impl Capture {
    /// Runs `f` and keeps the events of this thread as lines. Events of a thread started by `f` are kept only if the
    /// thread uses this thread's subscriber.
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        let lines = Lines::new(Arc::clone(&self.0), LogLevel::Debug, LogFormat::Text);
        tracing::subscriber::with_default(lines, f)
    }

    /// Returns all lines so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.0.texts()
    }
}
