//! The history that a database's own one branched off from.

use perdura_base::{Epoch, Uuid};

/// The database that another one was restored from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// Its uuid.
    pub uuid: Uuid,
    /// The last epoch of it that the restored database contains.
    pub epoch: Epoch,
}
