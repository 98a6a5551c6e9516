//! Interleaved transactions over the rows of a tree. They address the rows by key.
//!
//! | operation | steps |
//! |---|---|
//! | write | lock the key; under the leaf's latch: number, record, note at the monitor, change of the page; log notes if due |
//! | commit | append under the stream's list; release the key locks; acknowledge when the epoch is durable |
//! | abort | undo each change through the tree, newest first, each with a compensation (CLR); log the end record |
//!
//! * A transaction locks a row when it first writes the row. The transaction keeps the lock until the log has the
//!   commit record or the rollback's end record. A request for a row fails at once if another transaction has locked
//!   the row.
//! * A changed page may reach the disk before its transactions commit, but not before the log has the changes of the
//!   page.
//! * The restart undoes the transactions that a crash left open, before it accepts new transactions
//!   ([`perdura_recovery::tree`]).
//!
//! The tree deals with pages and not with transactions; the paper calls it the data component. This module deals with
//! keys and not with pages; the paper calls it the transaction component.
//!
//! | module | one idea |
//! |---|---|
//! | [`options`] | the options of a database |
//! | [`engine`] | creating and opening a database |
//! | [`txn`] | reads, writes, commits, rollbacks |
//! | [`locks`] | the locked rows, each with its transaction |
//!
//! # Source
//! *Implementing Performance Competitive Logical Recovery* (002), sections 2 and 3. C. Mohan et al., "ARIES", for
//! compensations.
//!
//! # Locks, in order
//! a row's lock (never waited for) < the structure lock < a leaf's latch < the pool's frames < the monitor < a
//! stream's active list < the log.

pub mod engine;
pub mod locks;
pub mod options;
pub mod txn;

pub use engine::Keyed;
pub use options::KeyedOptions;
pub use txn::{KeyTxn, KeyTxns, KeyedStats, Write};
