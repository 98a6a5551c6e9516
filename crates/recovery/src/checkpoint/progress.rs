//! The reports of a checkpoint: a step's result, and statistics.

use serde::Serialize;

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointProgress {
    /// No checkpoint is running.
    Idle,
    /// A step was taken. It wrote this many bytes to the image.
    Working(u64),
    /// The checkpoint waits for the log to become durable. The caller must close the epoch and flush.
    Waiting,
    /// The checkpoint is complete.
    Done,
}

/// Statistics of checkpoints.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct CheckpointStats {
    /// Checkpoints completed since the database was opened.
    pub completed: u64,
    /// Checkpoints cancelled since the database was opened, for instance because the disk was full.
    pub cancelled: u64,
    /// The epoch of the newest complete checkpoint.
    pub last_k: u64,
    /// Pages that the newest complete checkpoint wrote.
    pub last_pages: u64,
    /// Bytes that the newest complete checkpoint wrote.
    pub last_bytes: u64,
    /// Duration of the newest complete checkpoint, microseconds.
    pub last_us: u64,
    /// The end time of the newest complete checkpoint, microseconds since 1970. 0 before the first complete checkpoint
    /// after the start.
    pub last_end_us: u64,
    /// True if a checkpoint is running.
    pub running: bool,
    /// Partitions that the running checkpoint has swept.
    pub partitions_done: u64,
}
