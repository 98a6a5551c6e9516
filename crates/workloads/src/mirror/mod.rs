//! The mirrored log: how long a block takes to be in the memories of nodes, beside a durable write of the same block.
//!
//! | module | one idea |
//! |---|---|
//! | [`ship`] | blocks sent to nodes and acknowledged by them, without a database |
//! | [`commit`] | commits of a database whose log is mirrored, beside one that waits for its disk |

pub mod commit;
pub mod ship;
