//! Voter: an election by phone. It has one short transaction, which reads three tables, inserts a vote, and counts
//! the vote for its phone number.
//!
//! | module | one idea |
//! |---|---|
//! | [`areas`] | area codes and their states |
//! | [`inputs`] | phone calls |
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), section V-A.

pub mod areas;
pub mod bench;
pub mod inputs;
pub mod procedures;
pub mod schema;
