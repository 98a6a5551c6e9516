//! The mirrored log: how long a block takes to be in the memories of nodes, beside a durable write of the same block.
//!
//! | module | one idea |
//! |---|---|
//! | [`ship`] | blocks sent to nodes and acknowledged by them, without a database |

pub mod ship;
