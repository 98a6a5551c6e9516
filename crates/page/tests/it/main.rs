//! Tests that pages and log records are encoded as the documents in docs/formats describe.

mod common;
mod formats;
mod tree_page;
