//! The data component: slotted pages in memory, partitions, hash indexes and ordered indexes.
//!
//! A [`Heap`] is a fixed number of [`Partition`]s, each under one latch. The hash of a key decides the key's partition,
//! or the caller chooses the partition. A page never changes its partition. So the partition's latch is the page's
//! latch too, and a checkpoint's visit of a page needs no second lock. Rows lie in slots. Values that do not fit a slot
//! lie in chains of pages. Only pages are logged and imaged. Indexes, free lists and counters are derived from pages,
//! kept only in memory, and rebuilt at a restart.
//!
//! | module | one idea |
//! |---|---|
//! | [`geometry`] | the assignment of keys and pages to partitions |
//! | [`memory`] | the account of the memory in use, by kind of use |
//! | [`latches`] | the latches and the checkpoint epoch |
//! | [`partition`] | the state under one latch |
//! | `pages`, `pools`, `chain`, `patch` | chunks of pages; free pages; large values; writing to a part of a large value |
//! | `entry`, `index`, `hash_index`, `cells`, `rows`, [`row_ref`] | finding, writing and reading rows |
//! | [`form`], `keys`, `secondary` | the properties of a table; ordered indexes of its keys; indexes of derived keys |
//! | `accesses`, `idle` | when each key was last used |
//! | [`ahead`] | bringing the rows of the next commands into the cache |
//! | `edit`, `collection`, `element_key`, `members`, `lists`, [`elements`] | collections: their indexes, keys, writers, readers |
//! | [`orphans`], `limits`, [`draft`] | collections that no key names any more; limits on removals; collections that no key names yet |
//! | [`texts`], `trim` | long strings that no key has yet, and chains of strings whose key is gone |
//! | [`scan`] | cursors over hash order |
//! | `order` | items by score and member, with ranks |
//! | [`undo`], `ops`, `overwrite`, `narrow`, `savepoint` | before-images of byte ranges; changes of indexes; overwriting a few bytes of a row; the cells of a slot that are saved; savepoints |
//! | [`group`], `commit` | the records of a transaction; its commit or rollback |
//! | [`slots`] | slots as bytes, for transactions that interleave |
//! | [`cuts`], `kept`, `shadow`, [`snapshot`] | instants at which all pages are seen together; the byte ranges that commits keep for cuts; the rows that commits keep for cuts; reading the pages as of a cut |
//! | [`visit`] | a checkpoint's visit of a page |
//! | [`restart`], `touch`, `marks`, [`batch`] | replay of records; the check of update numbers; the bytes that records changed; replay of many records at once |
//! | [`build`], `sidecar`, `gather`, `header`, `damage` | building indexes from pages; the index entries that an image carries; building collections from rows; their headers; errors about damaged pages |
//!
//! The heap has no notion of commit epochs or streams. It encodes groups, which other components append to the log.

mod accesses;
mod address;
pub mod ahead;
mod attached;
pub mod batch;
pub mod build;
mod cells;
mod chain;
mod collection;
mod commit;
pub mod cuts;
mod damage;
pub mod draft;
mod edit;
mod element_key;
pub mod elements;
mod entry;
pub mod form;
mod gather;
pub mod geometry;
pub mod group;
mod hash_index;
mod header;
mod idle;
mod index;
mod kept;
mod keys;
pub mod latches;
mod limits;
mod lists;
mod marks;
mod members;
pub mod memory;
mod name_place;
mod narrow;
mod ops;
mod order;
pub mod orphans;
mod overwrite;
mod pages;
pub mod partition;
mod patch;
mod pools;
pub mod restart;
pub mod row_ref;
mod rows;
mod runs;
mod savepoint;
pub mod scan;
mod secondary;
mod shadow;
mod sidecar;
pub mod slots;
pub mod snapshot;
mod spot;
pub mod texts;
mod touch;
mod trim;
pub mod undo;
pub mod visit;

pub use address::{TableCollection, TableKey};
pub use batch::{Batch, Replayed, SlotChange};
pub use build::IndexStats;
pub use cells::NewRow;
pub use chain::{Pieces, ValueCursor};
pub use cuts::{Cut, Reader, SnapshotMode};
pub use draft::Draft;
pub use elements::Elements;
pub use form::{Derive, TableForm, Which};
pub use geometry::{Geometry, KeyHash};
pub use group::GroupBuilder;
pub use header::FoundHeader;
pub use latches::{Heap, PartitionGuard};
pub use limits::OrphanLimits;
pub use memory::{Ceiling, KeptBound, MemoryAccount, MemoryUse};
pub use partition::{DetachedTable, Partition};
pub use perdura_page::{
    CollectionId, End, Group, Home, Kind, PageRecord, Shape, decode_group, for_each_record,
};
pub use restart::UseqGap;
pub use row_ref::RowRef;
pub use rows::Displaced;
pub use savepoint::Savepoint;
pub use scan::scan_places;
pub use sidecar::{Sidecar, listed_pages};
pub use snapshot::Snapshot;
pub use spot::Spot;
pub use texts::Text;
pub use undo::Undo;
pub use visit::Visit;
