//! The reports of a checkpoint: a step's result, and figures.

use serde::Serialize;

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointProgress {
    /// No checkpoint is running.
    Idle,
    /// A step was taken; this many bytes were written to the image in it.
    Working(u64),
    /// The checkpoint waits for the log to become durable: the caller closes the epoch and flushes.
    Waiting,
    /// The checkpoint is complete.
    Done,
}

/// Figures of checkpoints.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct CheckpointStats {
    /// Checkpoints completed since the database was opened.
    pub completed: u64,
    /// Checkpoints cancelled since then, for instance because the disk was full.
    pub cancelled: u64,
    /// The newest complete checkpoint epoch.
    pub last_k: u64,
    /// Pages that the newest one wrote.
    pub last_pages: u64,
    /// Bytes that the newest one wrote.
    pub last_bytes: u64,
    /// Duration of the newest one, microseconds.
    pub last_us: u64,
    /// End of the newest one, microseconds since 1970; 0 if none has ended since the start.
    pub last_end_us: u64,
    /// True if a checkpoint is running.
    pub running: bool,
    /// Partitions that the running one has swept.
    pub partitions_done: u64,
}
