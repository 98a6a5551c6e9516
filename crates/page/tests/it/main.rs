//! Formats of pages and records, against their pages in docs/formats.

mod common;
mod formats;
mod operation;
mod ordered;
mod tree_page;
mod tree_record;
