//! The digests of an image's partitions. The standing proof compares these digests: it checks that the pages of the
//! archive equal the pages of the images.
//!
//! Each page's digest is bound to the page's id ([`perdura_page::digest::bound`]).

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
    /// The lowest epoch that may have a record that the image does not reflect.
    pub begin: Epoch,
    /// The highest epoch that may have a record that the image reflects.
    pub end: Epoch,
    /// For each partition, the XOR of the digests of the partition's pages.
    pub partitions: Vec<u64>,
}

impl SweepDigest {
    /// Returns the digest of an image. `None`: the image is not complete, or the build that made it did not note its
    /// lowest epoch.
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

/// Returns the XOR of the digests of a partition's pages in an image. Each digest is bound to its page. In a consistent
/// image the pages of chunks with odd numbers are left out.
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
