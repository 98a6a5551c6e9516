//! TPC-C: an order-entry system, nine tables, five transactions.
//!
//! | module | one idea |
//! |---|---|
//! | [`random`] | non-uniform numbers, last names, strings |
//! | [`inputs`] | the inputs of the terminals |
//! | [`load`] | the initial population |
//! | [`schema`] | the nine tables |
//! | [`check`] | the twelve consistency conditions |
//! | [`sites`] | New-Orders that wait for other sites |
//!
//! # Source
//! TPC-C 5.11; *Rethinking Main Memory OLTP Recovery* (001), section V-A.

pub mod bench;
pub mod check;
pub mod inputs;
pub mod load;
pub mod procedures;
pub mod random;
pub mod schema;
pub mod sites;
