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
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// A random number, from which a new database's uuid and hash seed are derived.
    pub seed: u64,
    /// The nodes that hold the newest part of the log. `None`: the database has no nodes.
    pub nodes: Option<Nodes>,
    /// True if a restart may give up the part of the log that only nodes may hold. The restart gives that part up only
    /// if the nodes do not return it, or no nodes are given.
    pub accept_loss: bool,
}
