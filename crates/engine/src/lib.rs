//! Perdura: a transactional database whose product is recovery.
//!
//! Data lives in memory and in a log. A transaction that [`Db::write`] has acknowledged survives a power cut. Opening
//! the directory again brings all data back in seconds.
//!
//! ```
//! use perdura::types::hash;
//! use perdura::{Db, Error, Options};
//!
//! #[derive(Debug)]
//! enum Refused {
//!     SoldOut,
//!     Database(Error),
//! }
//!
//! impl From<Error> for Refused {
//!     fn from(error: Error) -> Self {
//!         Refused::Database(error)
//!     }
//! }
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("shop");
//! let db = Db::open(Options::new(&path))?; // made if it is not there
//! db.write(|tx| tx.put(db.database(0), b"stock", b"1", None))?;
//!
//! // One transaction: all of it or nothing. It may run several times; its last run counts.
//! let buy = |buyer: &[u8]| {
//!     db.write(|tx| {
//!         let table = db.database(0);
//!         let stock = tx.bytes().get(table, b"stock")?.map(|row| row.value().into_owned());
//!         if stock.as_deref() != Some(b"1") {
//!             return Err(Refused::SoldOut); // undone
//!         }
//!         tx.put(table, b"stock", b"0", None)?;
//!         hash::set(tx, table, b"order:1", [(&b"buyer"[..], buyer)]).map_err(Error::from)?;
//!         Ok(())
//!     })
//! };
//! assert!(buy(b"Ada").is_ok()); // from here on the order survives a power cut
//! assert!(matches!(buy(b"Bob"), Err(Refused::SoldOut)));
//!
//! let stock = db.read(|tx| {
//!     let row = tx.bytes().get(db.database(0), b"stock")?;
//!     Ok::<_, Error>(row.map(|row| row.value().into_owned()))
//! })?;
//! assert_eq!(stock.as_deref(), Some(&b"0"[..]));
//! db.close()?; // a last checkpoint, so that the next start reads no log
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What to know
//! * **Reading and writing.** [`Db::write`] waits until the transaction is durable. [`Db::write_later`] returns a
//!   ticket instead. [`Db::read`] reads. [`Tx`] has the verbs for keys. [`types`] has hashes, lists, sets and sorted
//!   sets. [`Db::keys`] iterates over keys. [`Db::range`] returns the keys of an interval.
//! * **A closure may run several times.** A key belongs to a partition. A transaction holds the latches of its
//!   partitions. If it touches a partition without the latch, it is undone and starts over with this latch. So a
//!   closure must have no effect outside the database, except on variables that it sets anew at the start of each run.
//! * **Errors.** A closure may return any error type that implements `From<`[`Error`]`>`, and the call returns this
//!   error type. Where Rust cannot infer the type, write `Ok::<_, perdura::Error>(value)`.
//! * **Panics.** A panic in a closure undoes its transaction and continues in the caller. The database stays open. A
//!   panic inside the engine stops the database: calls fail with [`Error::Stopped`] until it is opened anew.
//! * **Keep closures short.** Other transactions wait for the latches that a closure holds. A nested transaction of the
//!   closure's database is refused.
//! * **Databases.** 0 to 15, as in Redis. Call [`Db::database`] inside the closure, because emptying a database
//!   gives it a new table. The server in this repository can open a program's directory, after the program has closed
//!   it.
//! * **Threads.** A [`Db`] is a handle; clone it for each thread. Dropping the last handle ends the background threads
//!   and loses nothing. [`Db::close`] also takes a checkpoint.
//!
//! `examples/` holds a bank (transfers from many threads), a queue (producers and workers) and a store of sessions that
//! expire: `cargo run --release -p perdura --example bank`.
//!
//! # Inside
//! | module | one idea |
//! |---|---|
//! | [`core`] | the database without a thread: background work is done in steps that the caller takes |
//! | `env` | the environment of a database: disks, time, randomness, nodes |
//! | `opening` | the steps of an open before the core exists |
//! | [`catalog`], `named` | table 0; the table of each name |
//! | [`databases`] | Redis's sixteen databases over the named tables |
//! | [`digest`] | the contents of a database, in one number |
//! | [`typed`], [`builder`] | typed tables and procedures: declared, made, replayed |
//! | `calls` | calls of procedures |
//! | [`snapshot`] | all rows as of one instant |
//! | [`archive`] | the archive of an open database, step by step |
//! | `archiver`, `lent` | the archiver's threads; the open archive, shared with other users |
//! | `backing_up` | backups: copying images into the archive |
//! | `archive_figures` | figures of an archive |
//! | `proving` | the standing proof: comparing each checkpoint's image with the archive |
//! | [`merging`] | the upkeep of an archive |
//! | `purge` | removing invisible data in the background |
//! | [`map`] | ordered maps of bytes |
//! | [`db`], `transact`, `keys` | the database with threads: its handle, and the calls of a program |
//! | `ground`, `wishes` | the state that all threads share; requests for a flush of the log |
//! | `flusher`, `mirroring`, `checkpointer`, `background` | the threads |
//! | `shared` | the parts of an open database together |
//! | `behind` | the distance by which the log's disks are behind |
//! | `durability` | the rungs that a caller can wait for before it relies on a commit |
//! | `receipt` | the receipt that a client keeps of a write |
//! | [`counts`] | the numbers of keys and rows |
//! | [`pace`] | when flushes start, and how fast an image is written |
//! | [`options`] | settings |
//! | [`stats`] | figures |
//!
//! The simulator drives [`core::Core`] from a seed. [`Db`] drives it from threads. So the simulator and a program run
//! one implementation.

pub mod archive;
mod archive_figures;
mod archiver;
mod background;
mod backing_up;
mod behind;
pub mod builder;
mod calls;
pub mod catalog;
mod checkpointer;
pub mod core;
pub mod counts;
pub mod databases;
pub mod db;
mod delays;
pub mod digest;
mod durability;
mod env;
pub mod files;
mod flusher;
mod ground;
mod increments;
mod keys;
mod lent;
mod machine;
pub mod map;
pub mod merging;
mod mirror_stats;
mod mirroring;
mod named;
mod nodes;
mod opening;
pub mod options;
pub mod pace;
mod proving;
mod purge;
mod receipt;
mod shared;
pub mod snapshot;
pub mod stats;
mod transact;
mod trees;
pub mod typed;
mod wishes;
pub mod yardstick;
mod yielding;

pub use crate::core::{Core, Env, ExpiredListener, Flushed};
pub use crate::named::{NamedTables, Renewal};
pub use archive::Archiving;
pub use builder::Builder;
pub use calls::Pending;
pub use db::Db;
pub use delays::Delayed;
pub use durability::Durability;
pub use keys::Keys;
pub use map::Map;
pub use merging::{Lent, Merging, MergingStep};
pub use mirror_stats::{MirrorNodeStats, MirrorStats};
pub use nodes::{
    Fenced, Lost, LostLog, MakeRegister, NodeSettings, NodeTlsFiles, Nodes, NodesInUse, Permits,
    Random,
};
pub use opening::create_with_tree;
pub use options::{CoreOptions, OnDemand, Options};
pub use perdura_archive::retention::{self, Retention};
pub use perdura_base::{Epoch, Error, PartitionId, PartitionSet, Result, TableId};
pub use perdura_device::{LogIo, LogWay, LogWayReport, descriptors, open_regular, read_input};
pub use perdura_heap::{
    CollectionId, Draft, Elements, End, Home, Kind, MemoryAccount, MemoryUse, OrphanLimits, RowRef,
    Shape, SnapshotMode, Text, ValueCursor, scan_places,
    texts::{TEXT_KEY_BYTES_MAX, TEXT_PAGE_BYTES},
};
pub use perdura_mirror as mirror;
pub use perdura_recovery::component::KeyContent;
pub use perdura_recovery::disks::{Disks, Locks};
pub use perdura_recovery::verify::Findings;
pub use perdura_recovery::{CheckpointProgress, Level, Progress, RestartReport};
pub use perdura_restore::At;
pub use perdura_table as tables;
pub use perdura_table::{Abort, Cx, RowEdit, RowId, RowView, Table, procedure, table};
pub use perdura_txn::{Packing, Ticket, Tx, UNDECLARED_KEY, ValueForm, set_lane};
pub use perdura_types as types;
pub use perdura_wal::{EpochEnds, EpochSource, Reached, Rung, SourceStep};
pub use receipt::{Fate, Judged, Newest, NoReceipt, Receipt};
pub use shared::Exposure;
pub use snapshot::Snapshot;
pub use stats::{ArchiveStats, BackupState, DrillStats, ListedBackup, ProofStats, Stats};
pub use transact::{Attempt, Latching};
pub use trees::{TreeRange, TreeTable};
pub use typed::{LogForm, TypedOptions};

/// Compiles the program in the README, so that it stays correct.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
