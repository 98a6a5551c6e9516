//! The sections of the anchor that other modules of recovery own, as types and payloads.

pub mod mirrored;
pub mod tree;
