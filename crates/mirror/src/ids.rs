//! The identities of writers, nodes, machines and rings.

use std::fmt;

use perdura_base::{StreamId, Uuid};

/// The generation of a writer. Each takeover raises it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The incarnation of a node: one start of the node. A restart loses the node's memory, so each start has a new random
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeInc(pub u64);

impl fmt::Display for NodeInc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The machine of a node. Two nodes on one machine can fail together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Machine(pub [u8; 16]);

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The identity of a ring: its database, writer and stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RingName {
    /// The database.
    pub uuid: Uuid,
    /// The writer.
    pub generation: Generation,
    /// The stream.
    pub stream: StreamId,
}
