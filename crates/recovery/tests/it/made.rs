//! A small database of page records in memory.

use std::sync::Arc;

use perdura_base::Uuid;
use perdura_device::{Disk, ManualClock, MemDisk};
use perdura_heap::Geometry;
use perdura_recovery::{Disks, NewDatabase, create};
use perdura_wal::{Scheme, SegmentSizes};

/// Makes one with this many streams on one disk.
pub fn database(streams: u8) -> Arc<dyn Disk> {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let new = NewDatabase {
        uuid: Uuid([3; 16]),
        geometry: Geometry {
            partitions: 2,
            chunk_pages: 2,
            hash_seed: 1,
        },
        streams,
        segments: SegmentSizes::fixed(64 << 10),
        scheme: Scheme::Differential,
    };
    let disks = Disks::on_one(Arc::clone(&disk), usize::from(streams));
    create(&disks, &ManualClock::at(1), &new, None).unwrap();
    disk
}
