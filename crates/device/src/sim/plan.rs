//! Fault plans, and crash profiles: rules for the operations that survive a crash.

/// The state of a file after a failed sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncFailure {
    /// As on ext4 and XFS. The error is reported once, and reads still show the new bytes. Some sectors have reached
    /// the disk. The next sync returns `Ok` although the remaining sectors are lost.
    KeepsNew,
    /// As on btrfs. The error is reported, and the file reads as it did after its last successful sync.
    Reverts,
}

/// The faults of one life of the machine. All counts begin at one with the first operation after
/// [`SimDisk::set_plan`](super::SimDisk::set_plan). The default plan has no faults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// The power fails just before the n-th changing operation. That operation and all later ones fail, even reads,
    /// until [`SimDisk::crash`](super::SimDisk::crash) is called.
    pub cut_after_ops: Option<u64>,
    /// `(n, failure)`: the n-th sync of a file fails. `failure` is the state of the file after this sync.
    pub fail_sync_at: Option<(u64, SyncFailure)>,
    /// `(n, count)`: `count` operations that lengthen a file fail because the disk is full. The first of these is the
    /// n-th operation that lengthens a file.
    pub enospc_at: Option<(u64, u64)>,
    /// The maximum total size of all files, in bytes. A crash ends the rest of the plan, but not this limit.
    pub capacity_bytes: Option<u64>,
    /// The n-th write fails once with `EIO` and writes nothing.
    pub fail_write_at: Option<u64>,
    /// `(n, count)`: `count` writes, beginning with the n-th, are refused for lack of space, as on copy-on-write file
    /// systems. The file does not grow by them. Some of their bytes may have been written.
    pub refuse_write_at: Option<(u64, u64)>,
    /// Every write and sync fails from the n-th write on, because a second process owns the disk.
    pub fence_write_at: Option<u64>,
    /// The n-th rename or removal fails once with `EIO` and changes nothing.
    pub fail_name_at: Option<u64>,
    /// The n-th read fails once with `EIO`.
    pub fail_read_at: Option<u64>,
}

/// The rule that decides which pending operations survive a crash. Pending operations are not durable yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashProfile {
    /// No operation survives.
    Nothing,
    /// All operations survive. This is the mildest crash.
    Everything,
    /// The process dies, but the machine keeps running. The next process sees the effects of all operations. Pending
    /// operations stay pending, and a later crash decides which of them survive.
    Killed,
    /// The oldest operations survive, and all newer ones are lost. One random limit applies to all files and
    /// names. The last surviving write may be torn: a prefix of its 512-byte sectors survives.
    Ordered,
    /// Any subset of the operations survives, and any subset of the 512-byte sectors of each write. A file may keep its
    /// new length but lose the new bytes: it then has zeros or garbage. Operations on one name keep their order.
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
