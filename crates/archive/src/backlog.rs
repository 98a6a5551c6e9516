//! The backlog of an archive: runs that wait on the log's disk while the archive is unavailable.
//!
//! The backlog is a separate archive, in folder [`FOLDER`] of the disk that has the log's first stream. No epoch is
//! missing between the archive and the backlog. The two may overlap. The log up to the backlog's end may be deleted. A
//! backlog without a run is ignored.

use std::sync::Arc;

use perdura_base::{Result, Uuid};
use perdura_device::{Disk, Folder};

use crate::manifest::Manifest;
use crate::store::{Store, list_archives};

/// The name of the backlog's folder.
pub const FOLDER: &str = "backlog";

/// Returns the disk of a database's backlog. `logs` are the disks of the log, in the order of its streams.
///
/// # Errors
/// No error occurs, because the folder's name is valid.
///
/// # Panics
/// If `logs` is empty.
pub fn disk_of(logs: &[Arc<dyn Disk>]) -> Result<Arc<dyn Disk>> {
    assert!(!logs.is_empty(), "a log has a stream");
    Ok(Arc::new(Folder::new(Arc::clone(&logs[0]), FOLDER)?))
}

/// Opens the backlog of a database for reading. The backlog may have no run. `None`: the database has no backlog.
///
/// # Errors
/// Errors of the disk; [`Error::Corrupt`](perdura_base::Error::Corrupt) for a manifest that is missing or damaged.
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

/// Returns the total size of the runs in the backlog, bytes.
#[must_use]
pub fn waiting_bytes(backlog: &Manifest) -> u64 {
    let runs = backlog.objects.iter().filter(|o| o.id.run().is_some());
    runs.map(|object| object.bytes).sum()
}
