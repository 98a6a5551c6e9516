//! Payloads of those frames of the log that belong to no page: bytes in, bytes out.
//!
//! | module | one idea |
//! |---|---|
//! | [`ordered`] | the log's frames of commands and of rows' changes, which have an order |
//! | [`operation`] | the log's frames of operations on rows of a tree, by their keys |
//! | [`tree_record`] | the log records of a tree in pages on disk: the pages that it made dirty and those that it wrote |
//!
//! The records of pages are in `perdura-page`, because they are applied to a page's bytes.

pub mod operation;
pub mod ordered;
pub mod tree_record;

pub use ordered::{CommandFrame, Effect, OrderedHead, OrderedPayload};
