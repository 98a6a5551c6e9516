//! Fault plans, and the profiles by which a crash chooses what survives.

/// The state in which a failed sync leaves the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncFailure {
    /// The behaviour of ext4 and XFS. The error is reported once, and reads keep showing the new bytes. Some sectors
    /// reached the disk, and the next sync returns `Ok` without the lost ones.
    KeepsNew,
    /// The behaviour of btrfs: the error is reported and the file reads as it did at its last good sync.
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
    /// From the n-th operation on that makes a file longer, the disk is full for the second number of such operations.
    pub enospc_at: Option<(u64, u64)>,
    /// The lengths of all files together may not grow beyond this many bytes. Unlike the rest
    /// of the plan it stays in force after a crash.
    pub capacity_bytes: Option<u64>,
    /// The n-th write fails once with `EIO` and writes nothing.
    pub fail_write_at: Option<u64>,
    /// From the n-th write on, the second number of writes are refused for want of space, as on copy-on-write file
    /// systems. The file does not grow by them. Some of the bytes may have been written.
    pub refuse_write_at: Option<(u64, u64)>,
    /// From the n-th write on every write and sync fails because another process owns the disk.
    pub fence_write_at: Option<u64>,
    /// The n-th rename or removal fails once with `EIO` and changes nothing.
    pub fail_name_at: Option<u64>,
    /// The n-th read fails once with `EIO`.
    pub fail_read_at: Option<u64>,
}

/// The choice of the operations that survive a crash, of those that are not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashProfile {
    /// No operation.
    Nothing,
    /// All operations: the kindest crash.
    Everything,
    /// The process dies and the machine keeps running: programs see everything, nothing more becomes
    /// durable, and a later crash decides what survives.
    Killed,
    /// The operations before some moment, over all files and names. The last write may be torn: a prefix of its
    /// 512-byte sectors survives.
    Ordered,
    /// Any subset, each write torn to any subset of its 512-byte sectors. A file may be longer
    /// without the data that made it so, with zeros or garbage there. Operations on one name
    /// keep their order.
    Worst,
}

impl CrashProfile {
    /// All profiles.
    pub const ALL: [CrashProfile; 5] = [
        CrashProfile::Nothing,
        CrashProfile::Worst,
        CrashProfile::Ordered,
        CrashProfile::Everything,
        CrashProfile::Killed,
    ];
}
