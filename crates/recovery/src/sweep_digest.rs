//! The digests of an image by partition, which the standing proof compares.
//!
//! Digests are bound to their pages ([`perdura_page::digest::bound`]).

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Epoch, PartitionId};
use perdura_heap::Geometry;

use crate::image::Directory;
use crate::images::ImageStatus;

/// The digests of an image's partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepDigest {
    /// The image's checkpoint epoch.
    pub k: CkptEpoch,
    /// Every record that the image does not reflect has this epoch or a later one.
    pub begin: Epoch,
    /// Every record that it reflects has this epoch or an earlier one.
    pub end: Epoch,
    /// By partition: the XOR of the digests of its pages, each bound to its page.
    pub partitions: Vec<u64>,
}

impl SweepDigest {
    /// Returns the digest of an image. `None`: the image is not complete, or its build did not note its begin.
    #[must_use]
    pub(crate) fn of_image(
        image: &ImageStatus,
        directory: &Directory,
        geometry: &Geometry,
    ) -> Option<SweepDigest> {
        let begin = image.begin_epoch.filter(|_| image.is_complete())?;
        let all = (0..geometry.partitions).map(PartitionId);
        Some(SweepDigest {
            k: image.k,
            begin,
            end: image.cover.end_epoch,
            partitions: all
                .map(|id| digest_of(directory, id, geometry, image.consistent))
                .collect(),
        })
    }
}

/// Returns the digest of a partition's pages in an image, each bound to its page. In a consistent image pages of odd
/// chunks do not count.
#[must_use]
pub(crate) fn digest_of(
    directory: &Directory,
    partition: PartitionId,
    geometry: &Geometry,
    consistent: bool,
) -> u64 {
    let chunk_pages = u32::from(geometry.chunk_pages);
    let counts = |local: u32| {
        !consistent || (local / chunk_pages).is_multiple_of(2) || armed(Flaw::ProofOverBothPools)
    };
    let pages = directory.bound_digests(partition, geometry);
    pages
        .filter(|(local, _)| counts(*local))
        .fold(0, |sum, (_, digest)| sum ^ digest)
}
