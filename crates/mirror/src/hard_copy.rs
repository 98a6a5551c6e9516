//! A node's copy of its rings on its own disk. The node replies without waiting for it. The format page below is the
//! only description of the files.
#![doc = include_str!("../../../docs/formats/hard-copy.md")]

mod codec;
mod copier;
mod earlier;
mod found;

pub use copier::{HardCopier, HardCopyStats};
pub use earlier::{Earlier, earlier};
pub use found::{Found, FoundRing, list, read_back};

/// A file is full when its pieces have this size, bytes.
const FILE_BYTES: u64 = 16 << 20;
/// The size of the largest piece, bytes.
const PIECE_BYTES_MAX: usize = 256 * 1024;
/// The name of the lock that a node holds while it writes the copy.
const LOCK: &str = "hard-copy.lock";
