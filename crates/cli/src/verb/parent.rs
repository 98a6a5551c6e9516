//! The description of a parent: the database that another database was restored from.

use perdura_wal::Parent;
use serde::Serialize;

/// The printed form of a parent.
#[derive(Serialize)]
pub struct ShownParent {
    uuid: String,
    /// The last epoch that was restored from the parent.
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
