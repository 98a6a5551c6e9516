//! The limits of a run, and the ways in which it may fail.

use std::time::Duration;

/// The limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The memory that the virtual machine may use beyond its size at the run's begin, bytes.
    pub memory_bytes: usize,
    /// The processor time that the run may take, in all of its attempts together.
    pub time: Duration,
    /// The longest reply, bytes.
    pub reply_bytes: usize,
    /// The longest source text, bytes. The compiler uses a multiple of this as memory, which nothing else limits.
    pub source_bytes: usize,
}

impl Default for Limits {
    /// Returns limits of 64 MiB of memory, a second, a reply of 64 MiB, and a source of 1 MiB.
    fn default() -> Self {
        Limits {
            memory_bytes: 64 << 20,
            time: Duration::from_secs(1),
            reply_bytes: 64 << 20,
            source_bytes: 1 << 20,
        }
    }
}

/// The reason why a run has no reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The script does not compile, or ended with an error that it did not catch. Contains the text of an error
    /// reply. The script's changes remain.
    Script(String),
    /// The script exceeded a limit. Contains the text of an error reply that names the limit. The script's changes
    /// must be undone.
    Limit(String),
    /// The host halted the script.
    Halted,
}

/// The reason for which a run must end, as the interrupt reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The run continues.
    No,
    /// The host halted the script.
    Host,
    /// The watchdog found the time used up.
    Time,
    /// The allocator found the memory used up, or a library's result would be too long.
    Memory,
    /// The script engine itself is at fault.
    Engine,
}

impl Limits {
    /// Returns the failure of a run that ended for this reason.
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

    /// Returns the failure of a run whose reply is too long.
    pub(crate) fn long_reply(&self) -> Failure {
        Failure::Limit(format!(
            "ERR the script was ended: its reply is longer than the {} bytes allowed. Nothing of it was kept",
            self.reply_bytes
        ))
    }
}
