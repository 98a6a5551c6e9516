//! Figures, for the INFO command and benchmarks.

use std::time::Duration;

use perdura_archive::{ArchivedRun, MergedRun};
use perdura_base::num::to_u64;
use perdura_device::LogWayReport;
use perdura_recovery::CheckpointStats;
use serde::Serialize;

use crate::archive::backlog::BacklogStats;
use crate::mirror_stats::MirrorStats;

pub use crate::proving::ProofStats;

/// Memory by use, bytes.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct MemoryStats {
    /// All memory in use.
    pub used: u64,
    /// The limit.
    pub limit: u64,
    /// Pages that hold something.
    pub pages: u64,
    /// Indexes.
    pub indexes: u64,
    /// Before-images of running transactions.
    pub undo: u64,
    /// The checkpoint's staging buffer.
    pub staging: u64,
    /// Log blocks not written yet.
    pub log: u64,
    /// Buffers of clients: unfinished requests, queued transactions, replies and messages.
    pub clients: u64,
    /// Old versions of changed pages, kept for checkpoints and snapshots that are open.
    pub kept: u64,
    /// Memory for password checks that are running.
    pub passwords: u64,
}

/// The method for durable writes of a log stream, and the measured cost.
#[derive(Debug, Clone, Serialize)]
pub struct LogIoStats {
    /// The method: `ring`, `dsync` or `sync`; see [`LogWay`](crate::LogWay).
    pub way: &'static str,
    /// The median duration of a durable write by this method, as measured when the log was opened, microseconds.
    /// `None`: it was not measured.
    pub write_us: Option<u64>,
    /// The CPU time of a durable write, as measured when the log was opened, microseconds.
    pub cost_us: Option<u64>,
    /// The cache of the log's disk: `write-back`, `write-through` or `unknown`.
    pub write_cache: &'static str,
    /// The disk's support for forcing a single write through its cache (FUA): `yes`, `no` or
    /// `unknown`.
    pub fua: &'static str,
    /// The name of the in-memory file system that holds the log. Such a log does not survive a power cut. `None`: the
    /// log is on a disk.
    pub in_memory: Option<&'static str>,
}

impl LogIoStats {
    pub(crate) fn of(report: &LogWayReport) -> LogIoStats {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        LogIoStats {
            way: report.way.name(),
            write_us: report.latency().map(micros),
            cost_us: report.latency().map(|_| micros(report.cost)),
            write_cache: report.cache.cache_name(),
            fua: report.cache.fua_name(),
            in_memory: report.in_memory,
        }
    }
}

/// The log.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LogStats {
    /// The number of log streams.
    pub streams: u8,
    /// Bytes of the appended frames, without block padding.
    pub log_bytes: u64,
    /// Bytes of the written blocks.
    pub log_device_bytes: u64,
    /// Count of written blocks.
    pub blocks: u64,
    /// Count of syncs.
    pub syncs: u64,
    /// Count of writes in flight, which are not known to be durable yet.
    pub in_flight: u64,
    /// The method for durable writes of each stream. Streams without a known method are left out.
    pub io: Vec<LogIoStats>,
    /// Bytes of all segment files.
    pub file_bytes: u64,
    /// The current commit epoch, E.
    pub epoch: u64,
    /// The durable commit epoch, D.
    pub durable_epoch: u64,
    /// The epoch that the anchor vouches for: a restart refuses a log that ends before it.
    pub vouched_epoch: u64,
    /// Age of the oldest epoch that is not durable, microseconds.
    pub durable_lag_us: u64,
    /// The greatest value of `durable_lag_us` since the database was opened, microseconds.
    pub durable_lag_max_us: u64,
    /// Age of the oldest epoch that is not durable on the mirror, microseconds. Without nodes, equal to
    /// `durable_lag_us`.
    pub mirror_lag_us: u64,
    /// The nodes that hold the newest part of the log. `None`: the database has no nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorStats>,
    /// Bytes of the log that are not on its disks.
    pub unsynced_bytes: u64,
    /// The greatest value of `unsynced_bytes` since the database was opened.
    pub unsynced_max_bytes: u64,
    /// Smoothed CPU time of a flush, microseconds.
    pub flush_cpu_us: u64,
    /// True if flushes are being spaced: the cores are saturated, or a spacing is set.
    pub spaced: bool,
    /// True if the log's disk is full.
    pub disk_full: bool,
    /// The reason why the database has stopped. `None`: it has not stopped.
    pub stopped: Option<String>,
}

/// The last drill: a trial restore, made by `perdura archive drill`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DrillStats {
    /// The time of the drill, microseconds since 1970; 0 if no drill was made.
    pub wall_us: u64,
    /// The epoch that was restored.
    pub epoch: u64,
    /// `holds` or `fails`; empty if no drill was made.
    pub result: &'static str,
    /// The data that was compared. If the drill failed, the data that does not agree.
    pub text: String,
    /// The duration of the drill, microseconds.
    pub took_us: u64,
    /// The expected time of a restore of the last moment with one thread, microseconds, by the last drill. `None`: no
    /// drill was made, or its backup is gone.
    pub restore_us: Option<u64>,
}

/// The backup that is being made, and the outcome of the last one.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BackupState {
    /// True if a backup is being made.
    pub running: bool,
    /// Count of pages that the running backup has copied from its image so far.
    pub pages_done: u64,
    /// Count of pages in the image of the running backup; 0 before the copy has begun.
    pub pages: u64,
    /// Count of backup attempts that have ended since the database was opened, successful or not.
    pub ended: u64,
    /// Count of backups made since the database was opened.
    pub made: u64,
    /// The name of the last backup made.
    pub last: Option<String>,
    /// The end epoch of the last backup's image.
    pub last_end_epoch: u64,
    /// The time when the image in the last backup was completed, microseconds since 1970.
    pub last_us: u64,
    /// The bytes of the last backup made.
    pub last_bytes: u64,
    /// The reason why the last attempt failed. `None` if it succeeded.
    pub error: Option<String>,
}

/// A backup that the archive has.
#[derive(Debug, Clone, Serialize)]
pub struct ListedBackup {
    /// Its name.
    pub name: String,
    /// `sweep`: the copy of an image. `cut`: the state at the end of an epoch. `increment`: the changes of key-addressed
    /// tables up to a later image.
    pub kind: &'static str,
    /// The end epoch of the backup.
    pub end_epoch: u64,
    /// Its checkpoint epoch.
    pub checkpoint: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// The archive.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ArchiveStats {
    /// The name of the database's timeline. `None`: the first one.
    pub timeline: Option<String>,
    /// The last epoch that the archive has. While the archive cannot be reached: the last epoch that the backlog has.
    /// `None` until the archive has been opened for the first time.
    pub archived_epoch: Option<u64>,
    /// Count of runs made since the database was opened.
    pub runs: u64,
    /// Count of records in these runs.
    pub records: u64,
    /// Bytes of these runs.
    pub bytes: u64,
    /// Count of ordered frames in the runs made since the database was opened.
    pub ordered_frames: u64,
    /// Count of runs that the archive has now; `None` while it is not open.
    pub runs_now: Option<u64>,
    /// Count of merges that this process made since the database was opened. A merge combines runs.
    pub merges: u64,
    /// Count of runs that these merges have replaced.
    pub merged_runs: u64,
    /// Bytes of the runs that these merges have replaced.
    pub merged_bytes_in: u64,
    /// Bytes of the runs that these merges have made.
    pub merged_bytes_out: u64,
    /// Count of runs that this process removed since the database was opened, because the kept moments do not need
    /// these runs.
    pub removed_runs: u64,
    /// Count of backups that this process removed since the database was opened, because the kept moments do not need
    /// these backups.
    pub removed_backups: u64,
    /// True if an archive agent, a separate process, is known to merge the archive.
    pub merged_elsewhere: bool,
    /// `yes` if the database can be restored from its archive. Otherwise `no` and the reason.
    pub restorable: String,
    /// Count of durable epochs that are neither in the archive nor in the backlog yet.
    pub lag_epochs: u64,
    /// The time since archive and backlog last held all durable epochs, microseconds. 0 if they hold all durable epochs
    /// now.
    pub lag_us: u64,
    /// Bytes of the runs that the archive has now.
    pub run_bytes: u64,
    /// Count of backups in the archive.
    pub backups: u64,
    /// Bytes of these backups.
    pub backup_bytes: u64,
    /// The data that waits while the archive cannot be reached.
    pub backlog: BacklogStats,
    /// Progress and outcome of the backups that this process makes.
    pub backup: BackupState,
    /// The results of the standing proof, which compares the archive with the database's images.
    pub proof: ProofStats,
    /// The last trial restore.
    pub drill: DrillStats,
    /// The time until which the archive has everything, microseconds since 1970. 0 if it is not known.
    pub complete_us: u64,
    /// Count of known steps of the clock: it was set back, it jumped, or nothing was written for an hour.
    pub clock_steps: u64,
    /// Bytes of runs for each day at the rate since the database was opened.
    pub bytes_per_day: u64,
    /// The archive's fault. `None`: no fault is known.
    pub alarm: Option<String>,
}

impl ArchiveStats {
    pub(crate) fn add(&mut self, run: &ArchivedRun) {
        self.runs += 1;
        self.records += run.summary.records;
        self.bytes += run.summary.bytes;
        self.ordered_frames += run.summary.frames;
    }

    pub(crate) fn add_merge(&mut self, merged: &MergedRun) {
        self.merges += 1;
        self.merged_runs += to_u64(merged.inputs);
        self.merged_bytes_in += merged.bytes_in;
        self.merged_bytes_out += merged.bytes_out;
        self.merged_elsewhere = false;
    }
}

/// All figures.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stats {
    /// Memory.
    pub memory: MemoryStats,
    /// The log.
    pub log: LogStats,
    /// Checkpoints.
    pub checkpoint: CheckpointStats,
    /// The archive; `None` if the database is not archived.
    pub archive: Option<ArchiveStats>,
    /// Microseconds since the database was opened.
    pub uptime_us: u64,
    /// The database's identity.
    pub uuid: String,
}
