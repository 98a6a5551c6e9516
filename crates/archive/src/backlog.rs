//! The backlog of an archive: the place where runs wait on the log's disk while the archive is away.
//!
//! It is a separate archive, in folder [`FOLDER`] of the disk of the log's first stream. It begins at the archive's end
//! or before, and the log may be cut behind its end. Without a run it says nothing.

use std::sync::Arc;

use perdura_base::{Result, Uuid};
use perdura_device::{Disk, Folder};

use crate::manifest::Manifest;
use crate::store::{Store, list_archives};

/// The name of the folder.
pub const FOLDER: &str = "backlog";

/// Returns the disk of the backlog of a database whose log is on these disks, by streams.
///
/// # Errors
/// None, because the name is valid.
///
/// # Panics
/// Without a stream.
pub fn disk_of(logs: &[Arc<dyn Disk>]) -> Result<Arc<dyn Disk>> {
    assert!(!logs.is_empty(), "a log has a stream");
    Ok(Arc::new(Folder::new(Arc::clone(&logs[0]), FOLDER)?))
}

/// Opens the backlog of a database for reading. It may have no run. `None`: the database has no backlog.
///
/// # Errors
/// The disk's; [`Error::Corrupt`](perdura_base::Error::Corrupt) for a manifest that is missing or damaged.
pub fn find(logs: &[Arc<dyn Disk>], database: &Uuid) -> Result<Option<Arc<Store>>> {
    let disk = disk_of(logs)?;
    match list_archives(disk.as_ref()) {
        Err(error) if error.is_not_found() => Ok(None),
        Ok(found) if !found.contains(database) => Ok(None),
        found => {
            found?;
            let store = Store::read_only(disk, database)?;
            assert_eq!(store.uuid(), database, "it is the database's");
            Ok(Some(store))
        }
    }
}

/// Returns the size of the waiting runs, bytes.
#[must_use]
pub fn waiting_bytes(backlog: &Manifest) -> u64 {
    let runs = backlog.objects.iter().filter(|o| o.id.run().is_some());
    runs.map(|object| object.bytes).sum()
}
