//! The status of a mirror.

use crate::ids::{Generation, Machine, NodeInc};
use crate::view::Mode;

/// A node, as the writer knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// The address of the node.
    pub address: String,
    /// True if the node is connected and takes blocks.
    pub is_ready: bool,
    /// True if the writer writes blocks directly into the node's memory.
    pub is_mapped: bool,
    /// The last seen incarnation of the node, and the node's machine. `None`: the writer has not seen the node.
    pub identity: Option<(NodeInc, Machine)>,
    /// The count of shipped bytes that the node is not known to hold.
    pub lag_bytes: u64,
    /// The age of the node's oldest unanswered request, nanoseconds.
    pub silent_ns: u64,
    /// The reason why the node is not connected, or why it cannot be the second node of its group. `None`: the node has
    /// no trouble.
    pub trouble: Option<String>,
}

/// A group, as the writer knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStatus {
    /// The nodes and disks that must have the group's bytes before the writer acknowledges the bytes.
    pub mode: Mode,
    /// The nodes of the group.
    pub nodes: [NodeStatus; 2],
}

/// The status of a log's mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The number of the view. Each new view has the next higher number.
    pub v: u64,
    /// The writer's generation.
    pub generation: Generation,
    /// True if a new view was sent to the arbiter and it is unknown whether it was stored.
    pub is_pending: bool,
    /// The groups.
    pub groups: Vec<GroupStatus>,
    /// The index in `groups` of each stream's group.
    pub homes: Vec<u8>,
}
