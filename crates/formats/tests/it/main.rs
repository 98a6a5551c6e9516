//! Payloads of frames, against their pages in docs/formats.

mod common;
mod operation;
mod ordered;
mod tree_record;
