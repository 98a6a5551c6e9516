//! The crash simulator: seeded histories, faults, an independent oracle.
//!
//! One thread takes every step of the real engine (transactions, flushers, checkpoints, purges, restarts) in
//! an order that the seed determines. The disks fail as real ones do. After each crash the simulator compares
//! the recovered state with a sequential model. A seed reproduces its run byte for byte, so the seed of a
//! violation is enough to replay it.
//!
//! | module | one idea |
//! |---|---|
//! | [`model`] | the oracle: the expected state |
//! | [`content`], [`value`] | described strings, and the value of a key of any type |
//! | [`swarm`] | the character of a run |
//! | [`course`] | the part of it that every world has |
//! | [`machine`] | disks, clock, promises, and every step that is not a transaction |
//! | `lives` | the loop: a chain of lives and crashes, over any world |
//! | [`world`], `product` | the product's world: its engine, its client, its place in the loop |
//! | `over_core` | the common parts of the worlds of the product's engine |
//! | `cluster` | nodes and an arbiter, in the world of the mirror and beside the steps of others |
//! | `other_image` | the newest image damaged: the other one replaces it |
//! | [`steps`] | the steps of a life |
//! | `scripts` | operations that a script requests |
//! | `ops`, `edit` | the operations of transactions, on the engine and on the model |
//! | `scanning`, `drafting` | the models of a scan and of a draft, which continue between other steps |
//! | `faults` | plans faults |
//! | [`check`] | the comparison after a restart |
//! | [`mod@run`] | runs: the mode of each seed, the report |
//! | `restarted` | the checks of a restart in every world |
//! | `locked` | transactions that lock rows: the oracle, the clients |
//! | `steal` | the world of interleaved transactions |
//! | `tree` | the world of transactions over rows of a tree, by their keys |
//! | `tables` | the world of typed tables and procedures, in some runs with a tree beside them |
//! | `archive` | the world of the archive: runs, backups, lost disks, restores |
//! | `mirror` | the world of the mirror: nodes, an arbiter, takeovers, writers that were replaced |
//!
//! See `docs/testing/`.

mod archive;
pub mod check;
mod clients_life;
mod cluster;
pub mod content;
pub mod course;
mod drafting;
mod edit;
mod faults;
mod lives;
mod locked;
pub mod machine;
mod mirror;
pub mod model;
mod ops;
mod other_image;
mod over_core;
mod product;
pub mod report;
mod restarted;
pub mod run;
mod scanning;
mod scripts;
mod steal;
pub mod steps;
pub mod streams;
pub mod swarm;
mod tables;
#[cfg(test)]
mod tests;
mod tree;
pub mod value;
pub mod world;

pub use report::{CrashOptions, CrashReport, Mode, Violation};
pub use run::run;
