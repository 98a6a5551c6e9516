//! The mirrored log. Compares the time until a block is in the memories of nodes with that of a durable write of the
//! same block.
//!
//! | module | one idea |
//! |---|---|
//! | [`ship`] | blocks sent to nodes and acknowledged by them, without a database |
//! | [`easy`] | one node's memory acknowledges and the disk follows, which the paper rejects; measured with its losses |
//! | [`buffer`] | copies and time of a block on its way into a node's memory, with a log buffer and without |
//! | [`commit`] | commits of a database whose log is mirrored, beside one that waits for its disk |

pub mod buffer;
pub mod commit;
pub mod easy;
pub mod ship;
mod written;
