//! Fault plans, and the profiles by which a crash chooses what survives.

/// How a failed sync leaves the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncFailure {
    /// As ext4 and XFS do: the error is reported once, reads keep showing the new bytes, some
    /// sectors reached the disk, and the next sync returns `Ok` without the lost ones.
    KeepsNew,
    /// As btrfs does: the error is reported and the file reads as it did at its last good sync.
    Reverts,
}

/// The faults of one life of the machine. All counts start at one, with the first operation
/// after [`SimDisk::set_plan`](super::SimDisk::set_plan). The default plans nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Power fails instead of the n-th mutating operation. From then on every operation fails,
    /// reads too, until [`SimDisk::crash`](super::SimDisk::crash).
    pub cut_after_ops: Option<u64>,
    /// The n-th sync of a file fails, in this way.
    pub fail_sync_at: Option<(u64, SyncFailure)>,
    /// The disk is full from the n-th operation on that makes a file longer, for so many of them.
    pub enospc_at: Option<(u64, u64)>,
    /// The lengths of all files together may not grow beyond this many bytes. Unlike the rest
    /// of the plan it stays in force after a crash.
    pub capacity_bytes: Option<u64>,
    /// The n-th write fails once with `EIO` and writes nothing.
    pub fail_write_at: Option<u64>,
    /// From the n-th write on so many are refused for want of space although the file does not
    /// grow, as on copy-on-write file systems. Some of the bytes may have been written.
    pub refuse_write_at: Option<(u64, u64)>,
    /// From the n-th write on every write and sync fails because another process owns the disk.
    pub fence_write_at: Option<u64>,
    /// The n-th rename or removal fails once with `EIO` and changes nothing.
    pub fail_name_at: Option<u64>,
    /// The n-th read fails once with `EIO`.
    pub fail_read_at: Option<u64>,
}

/// Which of the operations that are not durable survive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashProfile {
    /// None.
    Nothing,
    /// All: the kindest crash.
    Everything,
    /// The process dies and the machine keeps running: programs see everything, nothing more becomes
    /// durable, and a later crash decides what survives.
    Killed,
    /// Those before some moment, over all files and names. The last write may be torn: a prefix
    /// of its 512-byte sectors.
    Ordered,
    /// Any subset, each write torn to any subset of its 512-byte sectors. A file may be longer
    /// without the data that made it so, with zeros or garbage there. Operations on one name
    /// keep their order.
    Worst,
}

impl CrashProfile {
    /// Every profile.
    pub const ALL: [CrashProfile; 5] = [
        CrashProfile::Nothing,
        CrashProfile::Worst,
        CrashProfile::Ordered,
        CrashProfile::Everything,
        CrashProfile::Killed,
    ];
}
