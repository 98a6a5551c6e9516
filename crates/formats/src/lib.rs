//! The encoding and decoding of log frames that belong to no page. Nothing here does I/O.
//!
//! | module | one idea |
//! |---|---|
//! | [`ordered`] | frames of commands and of changes of rows, which are replayed in order |
//! | [`operation`] | frames of operations on rows of a tree, addressed by key |
//! | [`tree_record`] | log records of a tree on disk: pages made dirty, pages written, changes of structure |
//!
//! The records of pages are in `perdura-page`, because they are applied to a page's bytes.

pub mod operation;
pub mod ordered;
pub mod tree_record;

pub use ordered::{CommandFrame, Effect, OrderedHead, OrderedPayload};
