//! The simulator of typed tables. Procedures and plain transactions run over tables of every sort, with each form of
//! the log. Snapshots, faults and crashes come between them.
//!
//! This simulator runs the product's engine in the common loop. It differs from the product's world as follows:
//!
//! * The log records a change as a row or as a command. A restart must therefore run procedures again, in each
//!   partition's order, and produce the same rows.
//! * The oracle has its own interpreter for the procedures, over sorted maps.
//! * Every committed transaction has a number in each partition that counts it. These numbers have no gaps, and no
//!   number is given twice.
//! * Snapshots are held open over many steps. A snapshot must show the rows that existed when the snapshot was opened.
//!
//! | module | one idea |
//! |---|---|
//! | `schema` | the tables |
//! | `procedures` | the procedures |
//! | `rows` | keys and rows of all tables in the model |
//! | `calls` | a random call of a procedure, and its run on the engine |
//! | `interpret` | a second implementation of the procedures, over the model |
//! | `edits` | plain transactions, on the engine and on the model |
//! | `oracle` | the expected rows and numbers |
//! | `swarm` | the character of a run: the choices of its seed |
//! | `tree_swarm` | the character of a run with a tree beside the tables |
//! | `tree` | the tree's clients, and the comparison of the tree |
//! | `world` | the machine with its database, clients and snapshots |
//! | `client` | the steps of transactions |
//! | `background` | the random choice of the next step |
//! | `snapshots` | snapshots that are held open |
//! | `check` | the comparison with the oracle |
//! | `forge` | a log with a gap, which must be refused |
//! | `run` | the steps that the simulator's loop requires of the world |

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
