//! A node's copy of its rings on its own disk, written behind the replies. The format page below is the only
//! description of the files.
#![doc = include_str!("../../../docs/formats/hard-copy.md")]

mod codec;
mod copier;
mod earlier;
mod found;

pub use copier::{HardCopier, HardCopyStats};
pub use earlier::{Earlier, earlier};
pub use found::{Found, FoundRing, list, read_back};

/// The bytes of pieces with which a file is full.
const FILE_BYTES: u64 = 16 << 20;
/// The size of the largest piece, bytes.
const PIECE_BYTES_MAX: usize = 256 * 1024;
/// The lock that the writing node holds.
const LOCK: &str = "hard-copy.lock";
