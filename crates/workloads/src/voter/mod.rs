//! Voter: an election by phone. One short transaction, three tables that are read, one row that is inserted.
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
