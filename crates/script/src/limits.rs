//! How much a run may take, and how it may fail.

use std::time::Duration;

/// What one run may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory of the virtual machine beyond what it has when the run begins, bytes.
    pub memory_bytes: usize,
    /// How long it may run, all of its attempts together.
    pub time: Duration,
    /// The longest reply, bytes.
    pub reply_bytes: usize,
    /// The longest source text, bytes: the compiler's memory is a multiple of it and not limited otherwise.
    pub source_bytes: usize,
}

impl Default for Limits {
    /// 64 MiB, a second, a reply of 64 MiB, a source of 1 MiB.
    fn default() -> Self {
        Limits {
            memory_bytes: 64 << 20,
            time: Duration::from_secs(1),
            reply_bytes: 64 << 20,
            source_bytes: 1 << 20,
        }
    }
}

/// Why a run has no reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The script does not compile, or has ended with an error that it did not catch: the text of an error reply. What it
    /// has done stands.
    Script(String),
    /// It has passed a limit: the text of an error reply that names it. What it has done must be undone.
    Limit(String),
    /// The host has halted it.
    Halted,
}

/// What stops a run, as the interrupt sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nothing.
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
    /// The failure of a run that was stopped.
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

    /// The failure of a reply that is too long.
    pub(crate) fn long_reply(&self) -> Failure {
        Failure::Limit(format!(
            "ERR the script was ended: its reply is longer than the {} bytes allowed. Nothing of it was kept",
            self.reply_bytes
        ))
    }
}
