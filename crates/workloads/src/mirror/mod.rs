//! The mirrored log. Compares two times: until a block is in nodes' memories, and until a block is durable on disk.
//!
//! | module | one idea |
//! |---|---|
//! | [`ship`] | blocks sent to nodes and acknowledged by them, without a database |
//! | [`easy`] | a way that the paper rejects, and its losses: one node's memory acknowledges, and the disk follows |
//! | [`buffer`] | copies and time of a block on its way into a node's memory, with a log buffer and without |
//! | [`commit`] | commits of a database that mirrors its log, compared with a database that waits for its disk |

pub mod buffer;
pub mod commit;
pub mod easy;
pub mod ship;
