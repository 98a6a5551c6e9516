//! The page: header, slots, size classes, rows and XOR differences. The code only decodes and encodes bytes.
//!
//! | module | one idea |
//! |---|---|
//! | [`layout`] | the offsets of a page's fields; the page's header and bitmap |
//! | [`chunks`] | the mapping of pages to partitions |
//! | [`class`] | the table of slot sizes |
//! | [`row`] | a row inside a slot |
//! | [`kind`] | the kinds of rows: a key, the header of a collection, an element |
//! | [`diff`] | the sparse XOR difference of two states of a page |
//! | [`digest`] | the XOR-linear digest of a page or of a record, bound to its page |
//! | [`record`] | the log record: the differences of one transaction |
//! | [`txn_record`] | the log records of transactions that interleave |
//! | [`tree_double`] | the double-write file, to which a batch of a tree's pages is written first |
//! | [`tree_page`] | a page of a tree on disk: keys between fences |
//!
//! This crate owns no memory, takes no latch and does not know transactions.

pub mod chunks;
pub mod class;
pub mod diff;
pub mod digest;
pub mod kind;
pub mod layout;
pub mod record;
pub mod row;
pub mod tree_double;
pub mod tree_page;
pub mod txn_record;

pub use chunks::Chunks;
pub use class::SlotClass;
pub use digest::RegionDigest;
pub use kind::{CollectionId, End, Home, Kind, Shape};
pub use layout::{PageHeader, PageKind};
pub use record::{Group, PageRecord, decode_group, for_each_record};
pub use row::{Place, Row};
pub use txn_record::{Change, TxnRecord, Update, decode_txn_record};
