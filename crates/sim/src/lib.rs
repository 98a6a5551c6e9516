//! The crash simulator: seeded histories, faults, an independent oracle.
//!
//! One thread takes every step of the real engine — transactions, flushers, checkpoints, purges,
//! restarts — in an order that a seed decides, over disks that fail as real ones do, and holds
//! what comes back after each crash against a sequential model. The same seed does the same
//! again, byte for byte: a violation is a number that anybody can replay.
//!
//! | module | one idea |
//! |---|---|
//! | [`model`] | what must be there: the oracle |
//! | [`content`], [`value`] | strings that are their own description; what a key of any type holds |
//! | [`swarm`] | what a run is like |
//! | [`machine`] | disks, clock, promises, and every step that is not a transaction |
//! | `lives` | the one loop: lives and crashes in a chain; a world is what it moves |
//! | [`world`], `product` | the product's world: its engine, its client, its place in the loop |
//! | [`steps`] | what a step does |
//! | `ops`, `edit` | what transactions do, to the engine and to the model |
//! | `scanning`, `drafting` | a scan, and a collection that is built, between other steps |
//! | `faults` | what is planned to go wrong |
//! | [`check`] | the comparison after a restart |
//! | [`exhaustive`] | small histories with a crash at every I/O; the n-th failure, for every n |
//! | [`damage`] | every byte of a small database, one at a time |
//! | [`file_damage`] | every file cut, zeroed, exchanged and deleted: what three verbs say of it |
//! | [`mod@run`] | runs: the mode of each seed, the report |
//! | `steal` | the world of interleaved transactions |
//! | [`model_dl`] | the algorithm alone, in memory: every variant and every mistake |
//!
//! See `docs/simulator.md`.

pub mod check;
pub mod content;
pub mod copying;
pub mod damage;
mod drafting;
mod edit;
pub mod exhaustive;
mod faults;
pub mod file_damage;
mod lives;
pub mod machine;
pub mod model;
pub mod model_dl;
mod ops;
mod product;
pub mod report;
pub mod run;
mod scanning;
mod steal;
pub mod steps;
pub mod swarm;
pub mod value;
pub mod world;

pub use report::{CrashOptions, CrashReport, Mode, Violation};
pub use run::run;
