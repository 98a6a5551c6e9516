//! The types and payloads of anchor sections that belong to other modules of recovery.

pub mod mirrored;
pub mod tree;
