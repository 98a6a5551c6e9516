//! Fault plans, and the profiles that decide which operations survive a crash.

/// The state of a file after a failed sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncFailure {
    /// As on ext4 and XFS. The error is reported once, and reads still show the new bytes. Some sectors have reached
    /// the disk. The next sync returns `Ok` although the other sectors are lost.
    KeepsNew,
    /// As on btrfs. The error is reported, and the file reads as it did after its last successful sync.
    Reverts,
}

/// The faults of one life of the machine. All counts begin at one with the first operation after
/// [`SimDisk::set_plan`](super::SimDisk::set_plan). The default plan has no faults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Power fails instead of the n-th changing operation. From then on every operation fails, reads too, until
    /// [`SimDisk::crash`](super::SimDisk::crash).
    pub cut_after_ops: Option<u64>,
    /// The n-th sync of a file fails, with this effect.
    pub fail_sync_at: Option<(u64, SyncFailure)>,
    /// The disk is full for some operations that lengthen a file: from the n-th such operation on, for as many as the
    /// second number says.
    pub enospc_at: Option<(u64, u64)>,
    /// The most bytes of all files together. Unlike the rest of the plan it stays in force after a crash.
    pub capacity_bytes: Option<u64>,
    /// The n-th write fails once with `EIO` and writes nothing.
    pub fail_write_at: Option<u64>,
    /// From the n-th write on, as many writes as the second number says are refused because there is no space, as on
    /// copy-on-write file systems. The file does not grow by them. Some of their bytes may have been written.
    pub refuse_write_at: Option<(u64, u64)>,
    /// From the n-th write on every write and sync fails, because another process owns the disk.
    pub fence_write_at: Option<u64>,
    /// The n-th rename or removal fails once with `EIO` and changes nothing.
    pub fail_name_at: Option<u64>,
    /// The n-th read fails once with `EIO`.
    pub fail_read_at: Option<u64>,
}

/// The rule that decides which operations survive a crash, of those that are not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashProfile {
    /// No operation.
    Nothing,
    /// All operations. This is the mildest crash.
    Everything,
    /// The process dies and the machine keeps running. Programs see all operations. Nothing more becomes durable, and
    /// a later crash decides which operations survive.
    Killed,
    /// All operations up to some moment, over all files and names. The last write may be torn: a prefix of its
    /// 512-byte sectors survives.
    Ordered,
    /// Any subset of the operations. Of each write, any subset of its 512-byte sectors. A file may be longer without
    /// the bytes that were written there, with zeros or garbage in their place. Operations on the same name keep
    /// their order.
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
