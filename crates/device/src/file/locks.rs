//! Locks of a directory's files, and of the directory itself, by `flock`.
//!
//! A lock belongs to an inode. A lock file that is removed while a process holds it no longer locks anything: the next
//! process makes another one. So a path is compared with the locked file, and a database locks its directory and its
//! anchor as well.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use super::regular::open_regular;
use crate::FileId;

/// The number of attempts to lock a file while other processes replace it.
const ATTEMPTS: usize = 8;

/// Returns the number of a file.
pub(super) fn id_of(found: &Metadata) -> FileId {
    FileId {
        device: found.dev(),
        number: found.ino(),
    }
}

/// Opens or makes the lock file and locks it. `None` if another process holds it.
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
        // Another process may have replaced the file between the two calls.
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

/// The result of locking something that exists.
pub(super) enum Present {
    /// This process has locked it.
    Taken(Arc<OwnedFd>),
    /// Another process holds it.
    Held,
    /// The file system has no locks of this kind.
    Unsupported,
}

/// Locks a file or a directory that exists.
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
        // NFS locks only files that are open for writing, and a directory never is.
        Err(TryLockError::Error(error)) => match error.raw_os_error() {
            Some(libc::EBADF | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS) => {
                Ok(Present::Unsupported)
            }
            _ => Err(error),
        },
    }
}
