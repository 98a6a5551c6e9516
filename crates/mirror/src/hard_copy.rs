//! A copy of a node's rings on the node's disk. The node replies without waiting for the copy. The format page below is
//! the only description of the files.
#![doc = include_str!("../../../docs/formats/hard-copy.md")]

mod codec;
mod copier;
mod earlier;
mod found;

pub use copier::{HardCopier, HardCopyStats};
pub use earlier::{Earlier, earlier};
pub use found::{Found, FoundRing, list, read_back};

/// The length in bytes from which a file counts as full. Later pieces are written to a new file.
const FILE_BYTES: u64 = 16 << 20;
/// The maximum size of a piece, in bytes.
const PIECE_BYTES_MAX: usize = 256 * 1024;
/// The name of the lock that a node holds while it writes the copy.
const LOCK: &str = "hard-copy.lock";
