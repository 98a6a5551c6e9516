//! Locks of files in a directory, and of the directory itself, with `flock`.
//!
//! A lock belongs to an inode. If a lock file is removed while a process holds the lock, the next process makes a new
//! file and can lock it. So [`lock_file`] compares the file at the path with the file that it has locked. A database
//! locks the lock file, the directory and the anchor.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use super::regular::open_regular;
use crate::FileId;

/// The number of attempts to lock a file that other processes keep replacing.
const ATTEMPTS: usize = 8;

/// Returns the identity of a file.
pub(super) fn id_of(found: &Metadata) -> FileId {
    FileId {
        device: found.dev(),
        number: found.ino(),
    }
}

/// Opens or creates the lock file and locks it. `None`: another process holds the lock.
pub(super) fn lock_file(path: &Path) -> io::Result<Option<Arc<OwnedFd>>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600);
    for _ in 0..ATTEMPTS {
        let file = open_regular(&options, 0, path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => {}
        }
        debug_assert!(
            file.metadata().is_ok_and(|held| held.is_file()),
            "a lock is of a file"
        );
        // Another process may have replaced the file after it was opened.
        if std::fs::metadata(path).is_ok_and(|named| is_of(&file, &named)) {
            return Ok(Some(Arc::new(OwnedFd::from(file))));
        }
    }
    let why = "other processes keep replacing it";
    Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
}

fn is_of(file: &File, named: &Metadata) -> bool {
    file.metadata()
        .is_ok_and(|held| id_of(&held) == id_of(named))
}

/// The result of locking an existing file or directory.
pub(super) enum Present {
    /// This process holds the lock now.
    Taken(Arc<OwnedFd>),
    /// Another process holds the lock.
    Held,
    /// The file system has no locks of this kind.
    Unsupported,
}

/// Locks an existing file or directory.
pub(super) fn lock_present(path: &Path) -> io::Result<Present> {
    let mut options = OpenOptions::new();
    options.read(true);
    let file = match std::fs::metadata(path)?.is_dir() {
        true => options.custom_flags(libc::O_DIRECTORY).open(path)?,
        false => open_regular(options.write(true), 0, path)?,
    };
    match file.try_lock() {
        Ok(()) => Ok(Present::Taken(Arc::new(OwnedFd::from(file)))),
        Err(TryLockError::WouldBlock) => Ok(Present::Held),
        // NFS locks only files that are open for writing, and a directory cannot be open for writing.
        Err(TryLockError::Error(error)) => match error.raw_os_error() {
            Some(libc::EBADF | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS) => {
                Ok(Present::Unsupported)
            }
            _ => Err(error),
        },
    }
}
