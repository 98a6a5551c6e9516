//! The limits of a run, and the reasons for failures.

use std::time::Duration;

/// The limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The number of bytes by which the virtual machine's memory may grow during the run.
    pub memory_bytes: usize,
    /// The processor time that the run may take, in all of its attempts together.
    pub time: Duration,
    /// The greatest length of a reply, in bytes.
    pub reply_bytes: usize,
    /// The greatest length of a source text, in bytes. The compiler's memory is a multiple of the text's length, and
    /// nothing else limits it.
    pub source_bytes: usize,
}

impl Default for Limits {
    /// Returns these limits: 64 MiB of memory, one second, a reply of 64 MiB, and a source of 1 MiB.
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
    /// The script does not compile, or ended with an uncaught error. Contains the text of an error reply. The script's
    /// changes remain.
    Script(String),
    /// The script exceeded a limit. Contains the text of an error reply that names the limit. The script's changes
    /// must be undone.
    Limit(String),
    /// The host halted the script.
    Halted,
}

/// The reason why a run must end. The interrupt reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The run continues.
    No,
    /// The host halted the script.
    Host,
    /// The watchdog found that the time limit was exceeded.
    Time,
    /// The allocator found that the memory limit would be exceeded, or a library's result would be too long.
    Memory,
    /// The script engine itself is at fault.
    Engine,
}

impl Limits {
    /// Returns the failure of a run that ended for the reason `stop`.
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

    /// Returns the failure of a run with a reply that is too long.
    pub(crate) fn long_reply(&self) -> Failure {
        Failure::Limit(format!(
            "ERR the script was ended: its reply is longer than the {} bytes allowed. Nothing of it was kept",
            self.reply_bytes
        ))
    }
}
