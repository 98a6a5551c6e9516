//! The simulator of typed tables. Procedures and plain transactions run over tables of every sort, under both forms
//! of the log, with cuts, snapshots, faults and crashes.
//!
//! It has the engine of the product and the common loop. The differences:
//!
//! * The log records a change as a row or as a command. A restart must therefore run procedures again, in each
//!   partition's order, and produce the same rows.
//! * The oracle has its own interpreter for the procedures, over sorted maps.
//! * Every committed transaction has a number in each of its partitions. These numbers have no gaps and are never
//!   given twice.
//! * Snapshots are held open over many steps and must show the rows of the instant at which they were opened.
//!
//! | module | one idea |
//! |---|---|
//! | `schema` | the tables |
//! | `procedures` | the procedures |
//! | `rows` | keys and rows of all tables in the model |
//! | `calls` | a call, drawn and made |
//! | `interpret` | a second implementation of the procedures, over the model |
//! | `edits` | plain transactions, on the engine and on the model |
//! | `oracle` | the expected rows and numbers |
//! | `swarm` | the character of a run |
//! | `tree_swarm` | the character of a run with a tree beside the tables |
//! | `tree` | the tree's clients, and its part in the comparison |
//! | `world` | the machine with its database, clients and snapshots |
//! | `client` | the steps of transactions |
//! | `background` | draws the next step |
//! | `snapshots` | snapshots that are held open |
//! | `check` | the comparison with the oracle |
//! | `forge` | a log with a gap, which must be refused |
//! | `run` | its place in the simulator's loop |

mod background;
mod calls;
mod check;
mod client;
mod edits;
mod forge;
mod interpret;
mod oracle;
mod procedures;
mod rows;
mod run;
mod schema;
mod snapshots;
mod swarm;
mod tree;
mod tree_swarm;
mod world;

pub(crate) use run::{run_mixed, run_seed};
