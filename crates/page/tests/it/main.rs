//! Formats of pages and records, against their pages in docs/formats.

mod common;
mod formats;
mod tree_page;
