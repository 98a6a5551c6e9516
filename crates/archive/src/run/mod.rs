//! The format of a run. The page below is the only description of it.
#![doc = include_str!("../../../../docs/formats/run.md")]
//!
//! | module | it encodes and decodes |
//! |---|---|
//! | [`header`] | the run's identity |
//! | [`block`] | the block's head, its checksum, its codec |
//! | [`body`] | the records in a block |
//! | [`index`] | the offsets and contents of the blocks |
//! | [`pages`] | the exact set of the run's pages |
//! | [`summary`] | digests, moments and ends |
//! | [`frames`] | the ordered frames, and the index of their blocks |
//! | [`footer`] | the offsets of the parts between the blocks and the footer |

pub mod block;
pub mod body;
pub mod footer;
pub mod frames;
pub mod header;
pub mod index;
pub mod pages;
pub mod summary;

use perdura_base::Error;

pub use block::Codec;
pub use frames::{FrameAt, FrameBlock, FrameEntry, FrameOrPlace, Frames, Numbers};
pub use header::RunHeader;
pub use index::BlockEntry;
pub use pages::PageSet;
pub use summary::{Digests, Moment, Moments};

/// The maximum size of a block with its head, bytes.
pub const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// The maximum number of moments that a run lists.
pub const MOMENTS_MAX: usize = 1000;

/// Makes an error that names the file and the offset.
pub(crate) fn damage(
    file: &str,
    offset: u64,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Error {
    Error::corrupt(
        file,
        offset,
        expected,
        found,
        "No restore can use this run. Restore the file from another copy of the archive, or make \
         a new backup.",
    )
}
