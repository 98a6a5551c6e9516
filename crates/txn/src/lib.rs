//! The transaction component. It runs transactions serially in each virtual partition, appends one
//! group of records per transaction, and returns tickets that say when a transaction is durable.
//!
//! A transaction takes the latches of its declared partitions in ascending order and runs to completion in its caller's
//! thread. It appends its records as one group while it still holds the latches, and then releases them. From then on
//! its changes are visible, and they become *durable later*: the transaction's [`Ticket`] has the commit epoch to wait
//! for. The ticket of a transaction that only read is that of the newest write that it can have seen.
//!
//! # Errors, panics, and running again
//! A closure may return its caller's error type. A transaction that touched a partition without the latch is undone and
//! runs again with that latch, even if the closure ignored the verb's error. A panic in the closure undoes the
//! transaction and continues in the caller. A panic inside a verb of [`Tx`] stops the database, because pages may be
//! half changed.
//!
//! # Why nothing needs undo after a crash
//! Differences are computed at commit from saved before-images, and the checkpoint visits pages
//! under the same latches. So neither log nor image ever holds an uncommitted change. The restart
//! rule of *Differential Logging* (000) then becomes "apply iff tag >= k".
//!
//! # Invariants
//! * I1: a page change, its tag and its append happen under the latch that owns the page.
//! * I2: a commit's epoch is read while the transaction holds its latches. So a transaction that
//!   depends on another never has a smaller epoch.
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
