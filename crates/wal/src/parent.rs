//! The source of a restored database.

use perdura_base::{Epoch, Uuid};

/// The source database of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// The source's uuid.
    pub uuid: Uuid,
    /// The source's last epoch in the restored database.
    pub epoch: Epoch,
}
