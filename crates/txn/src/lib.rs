//! The transaction component: serial execution over virtual partitions, one group per
//! transaction, tickets for the durable epoch.
//!
//! A transaction takes the latches of its declared partitions in ascending order and runs to completion in its caller's
//! thread. It appends its records as one group while it still holds the latches, and then releases them. Its changes
//! are visible then and *durable later*: its [`Ticket`] names the commit epoch to wait for. A transaction that only
//! read waits for the newest write that it could have seen.
//!
//! # Errors, panics, and running again
//! A closure fails with its caller's error type. A transaction that touched a partition without its
//! latch is undone and runs again with that latch, even if the closure dropped the error. A panic
//! in the closure undoes the transaction and continues in the caller. A panic inside a verb of [`Tx`]
//! stops the database, because pages may be half changed.
//!
//! # Why nothing needs undo after a crash
//! Differences are computed at commit from saved before-images, and the checkpoint visits pages
//! under the same latches. So neither log nor image ever holds an uncommitted change, and the
//! restart rule of *Differential Logging* (000) collapses to "apply iff tag >= k".
//!
//! # Invariants
//! * I1: a page change, its tag and its append happen under the latch that owns the page.
//! * I2: a commit's epoch is read under the latches it protects, so that a dependent transaction
//!   never has a smaller epoch.
//! * I3: a reply waits for the newest epoch in which its partitions were written.

mod collections;
mod drafts;
pub mod executor;
mod names;
pub mod ordered;
mod packing;
mod sink;
mod spot;
mod texts;
mod tx;
mod typed;
mod upkeep;
mod verb;

pub use perdura_heap::{
    CollectionId, Draft, Elements, End, Home, Kind, RowRef, Shape, Text, ValueCursor,
    texts::TEXT_KEY_BYTES_MAX, texts::TEXT_PAGE_BYTES,
};

pub use executor::{Executor, ExecutorOptions, Manner, Ticket};
pub use names::UNDECLARED_KEY;
pub use ordered::{CommandCall, Says};
pub use packing::Packing;
pub use sink::Sink;
pub use spot::TypedSpot;
pub use tx::Tx;
pub use typed::{RowHome, TxSavepoint, TypedTable, ValueForm};
