//! The four families of errors, and the handling of each.
//!
//! *Caller*: an argument is wrong, and nothing has changed.
//!
//! *Environment*: the machine refused an operation. If the failure leaves the state of the disk unknown, the database
//! stops.
//!
//! *Fenced*: another process owns the log, or the database's files are gone. This process stops for good. An operator
//! must neither retry nor restart it.
//!
//! *Corruption*: bytes differ from those that were written. The error names the place, the expected and the found
//! bytes, and is never ignored. A torn log tail is an expected end, not an error.

use std::fmt;
use std::io;

use crate::ids::{PartitionId, Pos, StreamId};

/// A result of the core crates.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Damage: its place, the expected and the found contents, and the loss.
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
    /// The data that the damage costs, and a possible repair, in words for an operator.
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

/// The source of an input/output error: a FIFO, a socket or a device has the name of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is {kind}, not a regular file. Move it away")]
pub struct NotRegular {
    /// The kind of the file that was found, with its article.
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

    /// Caller: a transaction touched a partition whose latch it does not hold. The executor noted the partition. It
    /// undoes the transaction and runs it again with that latch, whatever the closure returns.
    #[error(
        "the transaction has not locked partition {0} yet. It is undone and runs again with \
             that lock"
    )]
    Undeclared(PartitionId),

    /// Caller: the log has no room until the flusher or the disk catches up; try again.
    #[error("the log is full: {0}")]
    LogFull(String),

    /// Caller: a reader of the log asks for blocks that have been truncated.
    #[error(
        "log stream {stream} no longer contains position {wanted}; it begins at {}. Begin again \
         from an image, at a position that the log still contains",
        oldest.map_or_else(|| "no position, because it is empty".to_owned(), |pos| pos.to_string())
    )]
    Truncated {
        /// The stream.
        stream: StreamId,
        /// The position that was asked for.
        wanted: Pos,
        /// The start of the oldest segment of the stream. `None`: the stream has no segment.
        oldest: Option<Pos>,
    },

    /// Corruption: the archive holds epochs that the log does not reach. Only durable epochs are archived, so
    /// the log has lost acknowledged transactions.
    #[error(
        "the log ends with epoch {durable}, but the archive contains the log up to epoch \
         {archived}. The log has lost the acknowledged transactions of the epochs between. \
         Nothing was changed. Restore the log from a copy, or the database from the archive"
    )]
    LostLog {
        /// The archive's end.
        archived: crate::Epoch,
        /// The end of the log.
        durable: crate::Epoch,
    },

    /// Corruption: the archive ends before the end that the anchor names. The log may have been cut between these two
    /// ends.
    #[error(
        "the archive ends with epoch {archived}, but the database had archived its log up to \
         epoch {anchor}. The archive has lost files, or is an older copy. The database is \
         intact. Restore the archive's files, or begin a new archive with a new backup"
    )]
    ArchiveBehind {
        /// The archive's last epoch.
        archived: crate::Epoch,
        /// The epoch up to which the archive holds the log, according to the anchor.
        anchor: crate::Epoch,
    },

    /// Environment: another process writes the archive in the same role.
    #[error(
        "{manifest} was written by another {role} process. Only one such process may use an \
         archive. This one writes nothing more to it. Stop one of the two, or give each another \
         archive directory"
    )]
    ArchiveTaken {
        /// The manifest that the other process wrote.
        manifest: String,
        /// The role of both processes.
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

    /// Environment: the database has stopped after an earlier failure and acknowledges nothing.
    #[error("stopped after a failure: {0}. Restart the database. No acknowledged write is lost")]
    Stopped(String),

    /// Fenced: another process owns the log now. The text says how this process found out.
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

    /// Environment: a checkpoint was cancelled. Nothing is lost, because the log is not truncated.
    #[error("the checkpoint was cancelled: {0}")]
    Cancelled(String),

    /// Environment: a snapshot was ended, because too much memory was kept for it. Nothing is lost.
    #[error("the snapshot was closed to free memory. Take another one")]
    SnapshotEnded,

    /// Environment: another process has the data directory open.
    #[error("{dir} is in use: another process has locked it. Stop that process first")]
    Locked {
        /// The data directory.
        dir: String,
    },

    /// Corruption: bytes differ from those that were written.
    #[error("damaged: {0}")]
    Corrupt(Box<Corruption>),

    /// Corruption family: the file is whole but was written by another version.
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
        /// The version this build reads.
        supported: u16,
    },

    /// Corruption family: the file is whole but belongs to another database, or is not ours.
    #[error("{file} does not belong to this database: {why}")]
    Foreign {
        /// The file.
        file: String,
        /// The reason.
        why: String,
    },
}

/// The families of errors. All errors of a family are handled in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// The request was wrong; nothing happened.
    Caller,
    /// The machine failed.
    Environment,
    /// The log, or its files, no longer belong to this process.
    Fenced,
    /// Bytes are damaged or foreign.
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

    /// Returns the error with which every later call fails, after this error stopped the database. `what` names the
    /// part that failed, and begins the text.
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

    /// Returns whether the log, or its files, no longer belong to this process.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.family() == Family::Fenced
    }

    /// Returns whether the file or directory did not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns whether a directory was found instead of a file, a file instead of a directory, or a file that is not
    /// regular.
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

    /// Returns whether the system lacked descriptors or memory, or asks for another try: EMFILE, ENFILE, ENOMEM,
    /// EAGAIN. Such a failure is temporary and says nothing about the disk.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        const SHORTAGES: [i32; 4] = [11, 12, 23, 24];
        matches!(self, Error::Io { source, .. }
            if source.raw_os_error().is_some_and(|error| SHORTAGES.contains(&error)))
    }

    /// Returns whether the disk has no space (or the quota is spent).
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Error::Io { source, .. } if matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        ))
    }
}
