//! The limits of a run, and the ways in which it may fail.

use std::time::Duration;

/// The limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The memory of the virtual machine beyond its size at the run's begin, bytes.
    pub memory_bytes: usize,
    /// The time that it may run, all of its attempts together.
    pub time: Duration,
    /// The longest reply, bytes.
    pub reply_bytes: usize,
    /// The longest source text, bytes. The compiler's memory is a multiple of it and has no other limit.
    pub source_bytes: usize,
}

impl Default for Limits {
    /// Returns 64 MiB, a second, a reply of 64 MiB, and a source of 1 MiB.
    fn default() -> Self {
        Limits {
            memory_bytes: 64 << 20,
            time: Duration::from_secs(1),
            reply_bytes: 64 << 20,
            source_bytes: 1 << 20,
        }
    }
}

/// The reason for a run's missing reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// It does not compile, or has ended with an error that it did not catch. Contains the text of an error reply. Its
    /// changes remain.
    Script(String),
    /// It has passed a limit. Contains the text of an error reply that names it. Its changes must be undone.
    Limit(String),
    /// The host has halted it.
    Halted,
}

/// The reason for the end of a run, as the interrupt sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The run continues.
    No,
    /// The host.
    Host,
    /// The watchdog.
    Time,
    /// The allocator, or a library whose result would be too long.
    Memory,
    /// A fault of the engine itself.
    Engine,
}

impl Limits {
    /// Returns the failure of a run that was stopped.
    pub(crate) fn failure(&self, stop: Stop) -> Failure {
        let text = match stop {
            Stop::Host | Stop::No => return Failure::Halted,
            Stop::Time => format!(
                "it ran longer than the {} ms allowed",
                self.time.as_millis()
            ),
            Stop::Memory => format!(
                "it needs more memory than the {} bytes allowed",
                self.memory_bytes
            ),
            Stop::Engine => String::from("the script engine has failed"),
        };
        Failure::Limit(format!(
            "ERR the script was ended: {text}. Nothing of it was kept"
        ))
    }

    /// Returns the failure of a reply that is too long.
    pub(crate) fn long_reply(&self) -> Failure {
        Failure::Limit(format!(
            "ERR the script was ended: its reply is longer than the {} bytes allowed. Nothing of it was kept",
            self.reply_bytes
        ))
    }
}
