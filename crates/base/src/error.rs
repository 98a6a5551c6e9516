//! The four families of errors, and the handling of each family.
//!
//! *Caller*: an argument is wrong, and nothing has changed.
//!
//! *Environment*: the operating system or the hardware refused an operation. If the failure leaves the state of the
//! disk unknown, the database stops.
//!
//! *Fenced*: a second process owns the log, or the database's files are gone. This process stops for good. An operator
//! must not retry, and must not restart the process.
//!
//! *Corruption*: bytes differ from the written bytes. The error names the place, and the expected and found bytes.
//! Corruption is never ignored. A torn end of the log is no error, because a crash may cause it.

use std::fmt;
use std::io;

use crate::ids::{PartitionId, Pos, StreamId};

/// A result of the core crates.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Damage: its place, the expected and the found contents, and the consequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub file: String,
    /// The byte offset within the file.
    pub offset: u64,
    /// The contents that were expected.
    pub expected: String,
    /// The contents that were found.
    pub found: String,
    /// The data that is lost by the damage, and a possible repair, in words for an operator.
    pub consequence: String,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at byte {}: expected {}, found {}. {}",
            self.file, self.offset, self.expected, self.found, self.consequence
        )
    }
}

/// The inner error of an input/output error: a FIFO, a socket or a device was found where a file was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is {kind}, not a regular file. Move it away")]
pub struct NotRegular {
    /// The kind of the found file, with an article, for example "a socket".
    pub kind: &'static str,
}

/// An error of any core crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Caller: an argument is out of its range. The text names the argument and its range.
    #[error("{0}")]
    Usage(String),

    /// Caller: the write was refused because memory is at its limit. Reads and deletes work.
    #[error(
        "memory limit reached: {used} of {limit} bytes are in use. Remove data or raise the \
             limit"
    )]
    OutOfMemory {
        /// Bytes in use.
        used: u64,
        /// The limit, bytes.
        limit: u64,
    },

    /// Caller: a transaction accessed a partition without the partition's latch. The executor has noted the partition.
    /// The executor undoes the transaction and runs the transaction again with the latch, whatever the closure
    /// returned. The executor itself returns this error only if its caller's patience with the latch has ended.
    #[error(
        "the transaction has not locked partition {0} yet. It is undone and runs again with \
             that lock"
    )]
    Undeclared(PartitionId),

    /// Caller: the log has no room until the flusher or the disk catches up; try again.
    #[error("the log is full: {0}")]
    LogFull(String),

    /// Caller: a reader of the log requested deleted blocks.
    #[error(
        "log stream {stream} no longer contains position {wanted}; it begins at {}. Begin again \
         from an image, at a position that the log still contains",
        oldest.map_or_else(|| "no position, because it is empty".to_owned(), |pos| pos.to_string())
    )]
    Truncated {
        /// The stream.
        stream: StreamId,
        /// The requested position.
        wanted: Pos,
        /// The start of the oldest segment of the stream. `None`: the stream has no segment.
        oldest: Option<Pos>,
    },

    /// Corruption: the archive has epochs that are missing from the log. Only durable epochs are archived, so the log
    /// has lost acknowledged transactions.
    #[error(
        "the log ends with epoch {durable}, but the archive contains the log up to epoch \
         {archived}. The log has lost the acknowledged transactions of the epochs between. \
         Nothing was changed. Restore the log from a copy, or the database from the archive"
    )]
    LostLog {
        /// The last epoch of the archive.
        archived: crate::Epoch,
        /// The last epoch of the log.
        durable: crate::Epoch,
    },

    /// Corruption: the archive has epochs of a history that this database does not have. The data directory was set back
    /// to an older copy, or it is a copy that went its own way.
    #[error(
        "the archive has epochs up to {archived} of a history that this database left after epoch \
         {common}. The data directory is an older copy, or another copy archives to the same \
         place. Nothing was archived, and the log is kept. Continue with the other copy, or restore \
         the archive's last state. To continue with this one, run `perdura archive end --new-timeline NAME`, \
         or `perdura archive end` and give a new directory for its archive"
    )]
    OtherHistory {
        /// The last epoch of the archive.
        archived: crate::Epoch,
        /// The last epoch that both histories have.
        common: crate::Epoch,
    },

    /// Corruption: the last state that can be restored is older than the last commit that is known. A restore of the last
    /// state would lose commits in silence.
    #[error(
        "commits are known up to epoch {known}, but only the state of epoch {restorable} can be \
         restored: {why}. Nothing was changed. To restore the older state, give the moment \
         {restorable}"
    )]
    OlderOnly {
        /// The last epoch that can be restored.
        restorable: crate::Epoch,
        /// The last epoch that is known.
        known: crate::Epoch,
        /// The reason.
        why: &'static str,
    },

    /// Corruption: the archive ends with an earlier epoch than the database's anchor says. The log of the missing
    /// epochs may have been deleted.
    #[error(
        "the archive ends with epoch {archived}, but the database had archived its log up to \
         epoch {anchor}. The archive has lost files, or is an older copy. The database is \
         intact. Restore the archive's files, or run `perdura archive end` and begin a new archive \
         in another directory"
    )]
    ArchiveBehind {
        /// The last epoch of the archive.
        archived: crate::Epoch,
        /// The last epoch that the archive holds according to the anchor.
        anchor: crate::Epoch,
    },

    /// Environment: a second process in this process's role writes to the archive.
    #[error(
        "{manifest} was written by another {role} process. Only one such process may use an \
         archive. This one writes nothing more to it. Stop one of the two, or give each another \
         archive directory"
    )]
    ArchiveTaken {
        /// The second process's manifest.
        manifest: String,
        /// The common role of the two processes.
        role: &'static str,
    },

    /// Environment: an operation on a file failed.
    #[error("{op} {file}: {source}")]
    Io {
        /// The operation, as a verb.
        op: &'static str,
        /// The file or directory.
        file: String,
        /// The system's error.
        source: io::Error,
    },

    /// Environment: the database has stopped after an earlier failure. It acknowledges no more writes.
    #[error("stopped after a failure: {0}. Restart the database. No acknowledged write is lost")]
    Stopped(String),

    /// Fenced: a second process owns the log now. The text says how this process detected this.
    #[error(
        "another process owns the log now: {0}. This process has stopped and writes nothing \
         more. All that it acknowledged is in the log. Use the database through the other \
         process"
    )]
    Fenced(String),

    /// Fenced: files or directories of the database have lost their names, or other files have these names now.
    #[error(
        "the files of the database were moved, removed or replaced: {0}. This process has \
         stopped and writes nothing more. Put the files back, or restore a copy or a backup. \
         Then start the database again"
    )]
    Displaced(String),

    /// Environment: a checkpoint was cancelled. Nothing is lost, because the log is not truncated without a checkpoint.
    #[error("the checkpoint was cancelled: {0}")]
    Cancelled(String),

    /// Environment: a snapshot was closed because it kept too much memory in use. Nothing is lost.
    #[error("the snapshot was closed to free memory. Take another one")]
    SnapshotEnded,

    /// Environment: a second process has the data directory open.
    #[error("{dir} is in use: another process has locked it. Stop that process first")]
    Locked {
        /// The data directory.
        dir: String,
    },

    /// Corruption: bytes differ from the bytes that were written.
    #[error("damaged: {0}")]
    Corrupt(Box<Corruption>),

    /// Corruption: the file is undamaged, but this build does not read the file's format version.
    #[error(
        "{file} has format version {found}; this build reads only version {supported}. Export \
         the data with the build that wrote it (`perdura export`). Then load it with this build \
         (`redis-cli --pipe`). Or copy it from a server of the old build (`perdura import \
         --from`)"
    )]
    Version {
        /// The file.
        file: String,
        /// The version in the file.
        found: u16,
        /// The version that this build reads.
        supported: u16,
    },

    /// Corruption: the file is undamaged but belongs to a different database, or Perdura did not write the file.
    #[error("{file} does not belong to this database: {why}")]
    Foreign {
        /// The file.
        file: String,
        /// The reason.
        why: String,
    },
}

/// The families of errors. All errors of one family are handled alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// An argument was wrong. Nothing has changed.
    Caller,
    /// The operating system or the hardware refused an operation.
    Environment,
    /// The log or the database's files no longer belong to this process.
    Fenced,
    /// Bytes are damaged, or the database or format version is wrong.
    Corruption,
}

impl Error {
    /// Returns the family of this error.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Error::Usage(_)
            | Error::OutOfMemory { .. }
            | Error::Undeclared(_)
            | Error::LogFull(_)
            | Error::Truncated { .. } => Family::Caller,
            Error::Io { .. }
            | Error::Stopped(_)
            | Error::Cancelled(_)
            | Error::ArchiveTaken { .. }
            | Error::SnapshotEnded
            | Error::Locked { .. } => Family::Environment,
            Error::Fenced(_) | Error::Displaced(_) => Family::Fenced,
            Error::Corrupt(_)
            | Error::LostLog { .. }
            | Error::ArchiveBehind { .. }
            | Error::OlderOnly { .. }
            | Error::OtherHistory { .. }
            | Error::Version { .. }
            | Error::Foreign { .. } => Family::Corruption,
        }
    }

    /// Returns an environment error.
    #[must_use]
    pub fn io(op: &'static str, file: impl Into<String>, source: io::Error) -> Error {
        Error::Io {
            op,
            file: file.into(),
            source,
        }
    }

    /// Returns the error for damage, given the fields of [`Corruption`].
    #[must_use]
    pub fn corrupt(
        file: impl Into<String>,
        offset: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
        consequence: impl Into<String>,
    ) -> Error {
        Error::Corrupt(Box::new(Corruption {
            file: file.into(),
            offset,
            expected: expected.into(),
            found: found.into(),
            consequence: consequence.into(),
        }))
    }

    /// Returns the error of all calls after `self` has stopped the database. `what` names the failed part of the
    /// database; the text begins with `what`.
    #[must_use]
    pub fn stopping(&self, what: &str) -> Error {
        let stopped = match self {
            Error::Fenced(why) => Error::Fenced(format!("{what}: {why}")),
            Error::Displaced(why) => Error::Displaced(format!("{what}: {why}")),
            other => Error::Stopped(format!("{what}: {other}")),
        };
        assert_eq!(stopped.is_fenced(), self.is_fenced(), "a fence stays one");
        stopped
    }

    /// Returns whether the log or the database's files no longer belong to this process.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.family() == Family::Fenced
    }

    /// Returns whether the file or directory did not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns whether the found object was of the wrong kind: a directory instead of a file, a file instead of a
    /// directory, or a file that is not regular.
    #[must_use]
    pub fn is_of_another_kind(&self) -> bool {
        let Error::Io { source, .. } = self else {
            return false;
        };
        let inner = source.get_ref();
        let is_dir = matches!(
            source.kind(),
            io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory
        );
        is_dir || inner.is_some_and(|inner| inner.is::<NotRegular>())
    }

    /// Returns whether an operation failed with an input/output error (`EIO`).
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        const EIO: i32 = 5;
        matches!(self, Error::Io { source, .. } if source.raw_os_error() == Some(EIO))
    }

    /// Returns whether the system lacked descriptors or memory, or asked for a retry: EMFILE, ENFILE, ENOMEM, EAGAIN. A
    /// shortage is temporary, and gives no information about the disk.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        const SHORTAGES: [i32; 4] = [11, 12, 23, 24];
        matches!(self, Error::Io { source, .. }
            if source.raw_os_error().is_some_and(|error| SHORTAGES.contains(&error)))
    }

    /// Returns whether the disk has no space, the quota is used up, or the file would be too large.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Error::Io { source, .. } if matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        ))
    }
}
