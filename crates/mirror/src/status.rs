//! The status of a mirror.

use crate::ids::{Generation, Machine, NodeInc};
use crate::view::Mode;

/// A node, as the writer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// The address at which it is reached.
    pub address: String,
    /// True if it is connected and takes blocks.
    pub is_ready: bool,
    /// True if blocks are written into its memory, on the writer's machine.
    pub is_mapped: bool,
    /// The start of the node that was last seen, and its machine. `None`: no start was seen.
    pub identity: Option<(NodeInc, Machine)>,
    /// The bytes that were shipped and that it is not known to hold.
    pub lag_bytes: u64,
    /// The time for which it has owed an answer, nanoseconds.
    pub silent_ns: u64,
    /// The reason why it is not connected, or cannot be the second node of its group. `None`: it has no trouble.
    pub trouble: Option<String>,
}

/// A group, as the writer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStatus {
    /// The nodes and disks that the group's acknowledgements wait for.
    pub mode: Mode,
    /// Its nodes.
    pub nodes: [NodeStatus; 2],
}

/// The mirror of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The view's number.
    pub v: u64,
    /// The writer's generation.
    pub generation: Generation,
    /// True if a change of view is under way, whose outcome is not known.
    pub is_pending: bool,
    /// The groups.
    pub groups: Vec<GroupStatus>,
    /// The group of each stream.
    pub homes: Vec<u8>,
}
