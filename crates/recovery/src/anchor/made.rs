//! An anchor that tests begin with.

use perdura_base::Uuid;
use perdura_heap::Geometry;
use perdura_wal::{History, Scheme, SegmentSizes};

use super::Anchor;

impl Anchor {
    /// Makes the anchor of a new database with this many streams.
    pub(crate) fn for_tests(streams: u8) -> Anchor {
        let sizes = SegmentSizes::fixed(1 << 20);
        let uuid = Uuid([1; 16]);
        let history = History::begin(uuid, 0, Scheme::Differential, streams, sizes);
        let geometry = Geometry {
            partitions: 4,
            chunk_pages: 4,
            hash_seed: 1,
        };
        Anchor::new(history, geometry, 1)
    }
}
