//! Steal mode: transactions that interleave and change pages in place before they commit.
//!
//! Perdura's ordinary engine runs a whole transaction under the latches of the transaction's partitions. So log and
//! images hold committed changes only. The literature's setting is harder. Many transactions are open at once. Each
//! change is made in the page and is logged at once. A checkpoint copies pages with changes that may still be rolled
//! back. This crate implements that setting. It shares log, pages, checkpoints and restart with the ordinary engine
//! ([`perdura_recovery::life`]).
//!
//! There are three logging schemes: PL2P, DL2P and DL1P. All three schemes run the same transactions. The schemes
//! differ in their records, in the rollbacks that they log (compensate), and in the legal restart methods.
//!
//! # Overview
//! ```text
//!  update: slot lock ─► partition latch { tag := page's epoch; append record; change the page }
//!  commit: append under the list's lock ─► release slot locks ─► acknowledge once the epoch is durable
//!  abort:  outside a window: hold the gate { undo all changes in memory; append one record }
//!          inside a window:  for each change: latch { append a compensation record; undo the change }
//! ```
//! * A *window* is the phase of a checkpoint that visits the pages. The *gate* is a lock: no window begins while a
//!   rollback holds it.
//! * A transaction is routed to the idlest stream when it begins. All its records go to this stream.
//! * A transaction locks a slot when it first changes the slot. The transaction keeps the lock until its commit is
//!   appended or its rollback has ended. A transaction never waits for a lock: a request for a locked slot fails at
//!   once.
//! * A slot that a transaction frees is handed out again only after the transaction has released its lock on the slot.
//!   So the slot's next user does not commit in an earlier epoch than this transaction.
//!
//! | module | one idea |
//! |---|---|
//! | [`env`](mod@env) | the environment of a database |
//! | [`options`] | the options of a database |
//! | [`txn`] | the state of a transaction: locks held, images to undo |
//! | `numbers` | the assignment of numbers and streams to transactions |
//! | [`engine`] | the database of slots: create, open |
//! | [`change`] | changes of slots, and commits |
//! | [`record`] | the log records |
//! | [`rollback`] | logged and unlogged rollbacks |
//! | [`streams`] | the gate, active lists, a checkpoint's window |
//! | [`space`] | slot locks and free slots of a partition |
//! | [`growth`] | new pages and the initial load |
//! | [`keyed`] | transactions over the rows of a tree, by their keys |
//! | [`digest`](mod@digest) | the contents of a database in one number |
//! | [`flushers`] | threads that make commits durable |
//!
//! # Source
//! *Differential Logging* (000): algorithm 1 (update), 2 (the active list), section 4.1 (streams), section 5 (PL2P,
//! DL2P, DL1P).
//!
//! # Deviations
//! * The page's latch is always taken, and the record is appended before the latch is released. In the paper, the flag
//!   is read without the mutex, and the record is appended after the mutex is released. That order loses committed
//!   changes or applies them twice.
//! * Rollbacks within a checkpoint's window are compensated in DL1P too. Rollbacks outside windows hold the gate, so
//!   that no checkpoint visits a page between two undos of an unlogged rollback.
//! * Commit epochs make early release of locks safe over several streams.
//!
//! # Locks, in order
//! gate < a partition's space < the partition's latch < a stream's active list < the log.

pub mod change;
pub mod digest;
pub mod engine;
pub mod env;
pub mod flushers;
pub mod growth;
pub mod keyed;
mod numbers;
pub mod options;
pub mod record;
pub mod rollback;
pub mod space;
pub mod streams;
pub mod txn;

pub use digest::digest;
pub use engine::{Steal, StealStats};
pub use env::StealEnv;
pub use flushers::Flushers;
pub use keyed::{KeyTxn, KeyTxns, Keyed, KeyedOptions, KeyedStats, Write};
pub use options::{Records, Route, StealOptions};
pub use txn::{Committed, Place, Routed, Txn};
