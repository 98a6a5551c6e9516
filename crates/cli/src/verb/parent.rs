//! The database that another one was restored from, shown.

use perdura_wal::Parent;
use serde::Serialize;

/// The database that this one was restored from.
#[derive(Serialize)]
pub struct ShownParent {
    uuid: String,
    /// The last epoch of the parent that the restored database has.
    epoch: u64,
}

impl ShownParent {
    /// Returns the description of a parent.
    pub fn of(parent: &Parent) -> ShownParent {
        ShownParent {
            uuid: parent.uuid.to_string(),
            epoch: parent.epoch.0,
        }
    }

    /// Returns a clause that names the parent and the epoch.
    pub fn text(&self) -> String {
        format!("database {}, up to epoch {}", self.uuid, self.epoch)
    }
}
