//! What a mirror shows of itself.

use crate::ids::{Generation, Machine, NodeInc};
use crate::view::Mode;

/// A node, as the writer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Where it is reached.
    pub address: String,
    /// Whether it is connected and takes blocks.
    pub is_ready: bool,
    /// Whether blocks are written into its memory, on the writer's machine.
    pub is_mapped: bool,
    /// Which start of the node was last seen, on which machine.
    pub identity: Option<(NodeInc, Machine)>,
    /// Bytes that were shipped and that it is not known to hold.
    pub lag_bytes: u64,
    /// For how long it has owed an answer, nanoseconds.
    pub silent_ns: u64,
    /// Why there is no connection.
    pub trouble: Option<String>,
}

/// A group, as the writer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStatus {
    /// What acknowledgements wait for.
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
    /// Whether a change of view is under way, whose outcome is not known.
    pub is_pending: bool,
    /// The groups.
    pub groups: Vec<GroupStatus>,
    /// The group of each stream.
    pub homes: Vec<u8>,
}
