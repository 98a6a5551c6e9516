//! Perdura: a transactional database whose product is recovery.
//!
//! ```no_run
//! use perdura::{Db, Options};
//! let db = Db::open(Options::new("data"))?;
//! let parts = [b"greeting"].into_iter().map(|key| db.partition_of(key)).collect();
//! let (_, ticket) = db.transact(&parts, |tx| tx.put(db.database(0), b"greeting", b"hello", None))?;
//! db.wait(ticket)?; // from here on the write survives a power cut
//! # Ok::<(), perdura::Error>(())
//! ```
//!
//! | module | one idea |
//! |---|---|
//! | [`core`] | the database without a thread: every bit of background work is a step |
//! | [`catalog`] | table 0 |
//! | `purge` | what is removed in the background |
//! | [`db`] | the same with threads: what users open |
//! | `shared`, `flusher`, `background` | those threads |
//! | [`pace`] | when to flush, and how fast to write an image |
//! | [`options`] | settings |
//! | [`stats`] | figures |
//!
//! The simulator drives [`core::Core`] from a seed; [`Db`] drives it from threads. There is no
//! second implementation of anything.

mod background;
pub mod catalog;
pub mod core;
pub mod db;
pub mod files;
mod flusher;
pub mod options;
pub mod pace;
mod purge;
mod shared;
pub mod stats;

pub use crate::catalog::Renewal;
pub use crate::core::{Core, Env, Flushed};
pub use crate::purge::ExpiredListener;
pub use db::Db;
pub use options::{CoreOptions, Options};
pub use perdura_base::{Epoch, Error, PartitionId, PartitionSet, Result, TableId};
pub use perdura_recovery::{CheckpointProgress, Level, Progress, RestartReport};
pub use perdura_store::{
    CollectionId, Elements, End, Home, Kind, MemoryAccount, MemoryUse, OrphanLimits, RowRef, Shape,
};
pub use perdura_txn::{Abort, Ticket, Tx};
pub use perdura_types as types;
pub use shared::Exposure;
pub use stats::Stats;
