//! The database from whose history this database's own history branched off.

use perdura_base::{Epoch, Uuid};

/// The database from which this one was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// The uuid of that database.
    pub uuid: Uuid,
    /// The last epoch of that database that the restored one contains.
    pub epoch: Epoch,
}
