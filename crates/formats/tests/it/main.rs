//! Tests that compare the payloads of frames with the documents in docs/formats.

mod common;
mod operation;
mod ordered;
mod tree_record;
