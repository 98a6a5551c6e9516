//! Transactions that interleave over rows of a tree, by their keys.
//!
//! ```text
//!  write:  key lock ─► leaf latch { number, record, note under the monitor; change the page } ─► notes cut, if due
//!  commit: append under the stream's list ─► key locks go ─► acknowledged when D has its epoch
//!  abort:  each change undone through the tree, newest first, each with a compensation (CLR) ─► end record
//! ```
//! * A transaction locks a row with its first write and keeps it until it has appended its commit or the end of its
//!   rollback. A request for a row that another transaction has locked fails at once.
//! * Pages may reach the disk before the transactions that changed them commit, but not before the log has those
//!   changes.
//! * The restart undoes the transactions that a crash left open. It does so in the new life, before new transactions
//!   are accepted ([`perdura_recovery::tree`]).
//!
//! The tree deals with pages and not with transactions. This module deals with keys and not with pages. In the paper
//! they are the data component and the transaction component.
//!
//! | module | one idea |
//! |---|---|
//! | [`options`] | the options of a database |
//! | [`engine`] | creating it, opening it, everything around transactions |
//! | [`txn`] | reads, writes, commits, rollbacks |
//! | [`locks`] | the transactions that have rows |
//!
//! # Source
//! *Implementing Performance Competitive Logical Recovery* (002), sections 2 and 3. C. Mohan et al., "ARIES", for
//! compensations.
//!
//! # Locks, in order
//! a row's lock (never waited for) < the structure lock < a leaf's latch < the pool's frames < the monitor < a
//! stream's active list < the log's.

pub mod engine;
pub mod locks;
pub mod options;
pub mod txn;

pub use engine::Keyed;
pub use options::KeyedOptions;
pub use txn::{KeyTxn, KeyTxns, KeyedStats, Write};
