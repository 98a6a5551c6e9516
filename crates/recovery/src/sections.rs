//! Two sections of the anchor, with their types and payloads: one about a mirror, one about a tree.

pub mod mirrored;
pub mod tree;
