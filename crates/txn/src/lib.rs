//! The transaction component. It runs transactions serially in each virtual partition, appends one
//! group of records per transaction, and returns tickets that say when a transaction is durable.
//!
//! A transaction takes the latches of its declared partitions in ascending order. It runs to completion in the caller's
//! thread. The transaction appends its records as one group while it still holds the latches. Then it releases the
//! latches. From then on its changes are visible. They become *durable later*: the transaction's [`Ticket`] has the
//! commit epoch to wait for. The ticket of a transaction that only read has the epoch of the newest write in the
//! latched partitions.
//!
//! # Errors, panics, and running again
//! A closure may return its caller's error type. A transaction that used a partition without its latch is undone. It
//! runs again with the latch, even if the closure ignored the verb's error. A panic in the closure undoes the
//! transaction and continues in the caller. A panic inside a verb of [`Tx`] stops the database, because pages may be
//! half changed.
//!
//! # Why nothing needs undo after a crash
//! Differences are computed at commit from saved before-images. The checkpoint visits a page under the latch of the
//! page's partition. So an uncommitted change is never in the log or in an image. The restart rule of *Differential
//! Logging* (000) then becomes "apply iff tag >= k": the record's tag is a checkpoint epoch, and k is the checkpoint
//! epoch of the image.
//!
//! # Invariants
//! * I1: a page is changed, tagged and logged under the latch that owns the page.
//! * I2: a commit's epoch is read while the transaction holds its latches. So a transaction never has a smaller epoch
//!   than a transaction that it depends on.
//! * I3: a reply waits for the epoch of the newest write in the transaction's partitions.

mod collections;
mod counters;
mod drafts;
pub mod executor;
mod lane;
mod manner;
mod names;
pub mod ordered;
mod packing;
mod patience;
mod random;
mod row_ids;
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

pub use executor::{Executor, ExecutorOptions, Loader, Ticket};
pub use lane::set_lane;
pub use manner::Manner;
pub use names::UNDECLARED_KEY;
pub use ordered::{CommandCall, Says};
pub use packing::Packing;
pub use patience::Patience;
pub use sink::Sink;
pub use spot::TypedSpot;
pub use tx::Tx;
pub use typed::{RowHome, TxSavepoint, TypedTable, ValueForm};
