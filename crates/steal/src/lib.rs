//! Steal mode: transactions that interleave and change pages in place before they commit.
//!
//! The product runs each transaction to its end under the latches of its partitions, so log and images hold committed
//! changes only. The literature's setting is harder. Many transactions are open at once. Each change is made in the
//! page and appended to the log at the same time. A checkpoint copies pages with changes that may still be rolled
//! back. This crate implements that setting. It uses the same life as the product: log, pages, checkpoints and
//! restart ([`perdura_recovery::life`]). The three schemes run the same transactions. They differ in their records,
//! in the rollbacks that they compensate, and in the restart methods that are legal for them.
//!
//! # One page to see it
//! ```text
//!  update: slot lock ─► partition latch { tag := page's epoch; append record; change the page }
//!  commit: append under the stream's list ─► slot locks go ─► acknowledged when D has its epoch
//!  abort:  outside a window: undo in memory, one record, under the gate
//!          inside one:       each undo is a compensation record under its own latch
//! ```
//! * A transaction is routed to the idlest stream when it begins. All its records go to this stream.
//! * A transaction locks a slot with its first change and keeps it until it has appended its commit or ended its
//!   rollback. A transaction never waits for a lock: a request for a locked slot fails at once.
//! * A slot that a transaction frees is handed out again only after its lock is released. So the commit epoch of the
//!   slot's next user is not lower.
//!
//! | module | one idea |
//! |---|---|
//! | [`env`](mod@env) | the environment of a database |
//! | [`options`] | the options of a database |
//! | [`txn`] | the state of a transaction: locks held, images to undo |
//! | `numbers` | numbers of transactions, and their streams |
//! | [`engine`] | the database of slots: create, open |
//! | [`change`] | changes of slots, and commits |
//! | [`record`] | the log records |
//! | [`rollback`] | aborts, logged and not |
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
//! * The page's latch is always taken, and the record is appended before its release. The printed order (flag read
//!   without the mutex, append after its release) loses or doubles committed changes.
//! * Rollbacks within a checkpoint's window are compensated in DL1P too. Rollbacks outside windows hold the gate,
//!   because no page visit may come between two undos of an unlogged rollback.
//! * Commit epochs make early release of locks safe over several streams.
//!
//! # Locks, in order
//! gate < a partition's space < the partition's latch < a stream's active list < the log's.

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
