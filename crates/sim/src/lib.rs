//! The crash simulator: seeded histories, faults, an independent oracle.
//!
//! One thread takes every step of the real engine (transactions, flushers, checkpoints, purges, restarts) in an order
//! that the seed determines. The disks fail as real disks do. A *life* of the database lasts from a restart to the next
//! crash. After each crash the simulator compares the recovered state with a sequential model. A seed reproduces a run
//! byte for byte, so the seed of a violation is enough to replay the run.
//!
//! | module | one idea |
//! |---|---|
//! | [`model`] | the oracle: the expected state |
//! | [`content`], [`value`] | described strings, and the value of a key of any type |
//! | [`swarm`] | the character of a run: its randomly chosen settings |
//! | [`course`] | the part of a run's character that is common to all worlds |
//! | [`machine`] | disks, clock, pending replies, and every step that is not a transaction |
//! | `lives` | the loop: a chain of lives and crashes, over any world |
//! | [`world`], `product` | the product's world: its engine, its client, its place in the loop |
//! | `over_core` | code shared by all worlds that run the product's engine |
//! | `cluster` | nodes and an arbiter, tested in the mirror's world and used in other worlds |
//! | `other_image` | a restart from the older image after damage to the newest |
//! | [`steps`] | the steps of a life |
//! | `scripts` | operations that a Luau script requests |
//! | `ops`, `edit` | the operations of transactions, on the engine and on the model |
//! | `scanning`, `drafting` | the models of a scan and of a draft, which continue between other steps |
//! | `faults` | the plans of faults |
//! | [`check`] | the comparison after a restart |
//! | [`mod@run`] | runs: the mode of each seed, the report |
//! | `restarted` | the checks of a restart, common to all worlds |
//! | `locked` | transactions that lock rows: the oracle, the clients |
//! | `steal` | the world of interleaved transactions |
//! | `tree` | the world of transactions that address rows of a tree by key |
//! | `tables` | the world of typed tables and procedures, in some runs with a tree beside them |
//! | `archive` | the world of the archive: archived log, backups, lost disks, restores |
//! | `mirror` | the world of the mirror: nodes, an arbiter, takeovers, replaced writers |
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
mod ledger;
mod lives;
mod locked;
pub mod machine;
mod mirror;
pub mod model;
mod on_demand;
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
