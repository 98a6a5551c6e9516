//! The environment that a database gets from outside.

use std::sync::Arc;

use perdura_device::Clock;
use perdura_recovery::disks::Disks;

use crate::nodes::Nodes;

/// The environment of a database.
#[derive(Clone)]
pub struct Env {
    /// The disks.
    pub disks: Disks,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// A random number. A new database's uuid and hash seed are derived from it.
    pub seed: u64,
    /// The nodes that hold the newest part of the log. `None`: the database has no nodes.
    pub nodes: Option<Nodes>,
    /// True if the user permits a restart to lose the newest part of the log. This is the part that may be missing on
    /// the log's disks. The restart loses it only if the nodes do not return it, or no nodes are given.
    pub accept_loss: bool,
}
