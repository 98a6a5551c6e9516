//! The data component: memory-resident slotted pages, partitions, hash and ordered indexes.
//!
//! A [`Heap`] is a fixed number of [`Partition`]s, each under one latch. The hash of a key decides
//! its partition; a page always belongs to the same partition, so the partition's latch is the
//! page's latch too and a checkpoint's visit needs no other lock. Rows live in slots, values
//! beyond a page in chains of pages. Only pages are logged and imaged: indexes, free lists and
//! counters are derived, kept in memory and built again at restart.
//!
//! | module | one idea |
//! |---|---|
//! | [`geometry`] | which partition a key and a page belong to |
//! | [`memory`] | the account of memory by use |
//! | [`latches`] | the latches and the checkpoint epoch |
//! | [`partition`] | the state under one latch |
//! | `pages`, `chain`, `patch` | chunks, free pages; large values; writing into them |
//! | `entry`, `index`, `hash_index`, `cells`, `rows`, [`row_ref`] | finding, writing and reading rows |
//! | `accesses`, `idle` | when each key was last used |
//! | [`ahead`] | touching what the next commands need |
//! | `edit`, `collection`, `element_key`, `members`, `lists`, [`elements`] | collections: their indexes, keys, writers, readers |
//! | [`orphans`], `limits`, [`draft`] | collections that have no key any more, what goes at once, and those that have none yet |
//! | [`texts`], `trim` | long strings that no key has yet, and chains of strings whose key is gone |
//! | [`scan`] | cursors over hash order |
//! | `order` | items by score and member, with ranks |
//! | [`undo`], [`group`], `commit` | before-images; the records of a transaction, or its undoing |
//! | [`slots`] | slots as bytes, for transactions that interleave |
//! | [`visit`] | a checkpoint's visit of a page |
//! | [`restart`], `touch`, `marks`, [`batch`] | replay, its check, what it changed, and many records at once |
//! | [`build`], `sidecar`, `gather`, `header`, `damage` | indexes from pages; the entries an image has of them; collections from rows and headers; errors |
//!
//! The heap knows neither commit epochs nor streams: it encodes groups that others append.

mod accesses;
pub mod ahead;
pub mod batch;
pub mod build;
mod cells;
mod chain;
mod collection;
mod commit;
mod damage;
pub mod draft;
mod edit;
mod element_key;
pub mod elements;
mod entry;
mod gather;
pub mod geometry;
pub mod group;
mod hash_index;
mod header;
mod idle;
mod index;
pub mod latches;
mod limits;
mod lists;
mod marks;
mod members;
pub mod memory;
mod order;
pub mod orphans;
mod pages;
pub mod partition;
mod patch;
pub mod restart;
pub mod row_ref;
mod rows;
mod runs;
pub mod scan;
mod sidecar;
pub mod slots;
pub mod texts;
mod touch;
mod trim;
pub mod undo;
pub mod visit;

pub use batch::{Batch, Replayed, SlotChange};
pub use build::IndexStats;
pub use chain::{Pieces, ValueCursor};
pub use draft::Draft;
pub use elements::Elements;
pub use geometry::{Geometry, KeyHash};
pub use group::GroupBuilder;
pub use latches::{Heap, PartitionGuard};
pub use limits::OrphanLimits;
pub use memory::{MemoryAccount, MemoryUse};
pub use partition::{DetachedTable, Partition};
pub use perdura_page::{
    CollectionId, End, Group, Home, Kind, PageRecord, Shape, decode_group, for_each_record,
};
pub use restart::UseqGap;
pub use row_ref::RowRef;
pub use rows::Displaced;
pub use sidecar::Sidecar;
pub use texts::Text;
pub use undo::Undo;
pub use visit::Visit;
