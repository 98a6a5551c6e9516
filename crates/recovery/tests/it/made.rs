//! A small database of page records in memory.

use std::sync::Arc;

use perdura_base::Uuid;
use perdura_device::{Disk, ManualClock, MemDisk};
use perdura_heap::Geometry;
use perdura_recovery::{
    Disks, ExecutorWindow, Level, Life, LogMemory, Methods, NewDatabase, RestartMode,
    RestartOptions, Restarted, Schedule, create,
};
use perdura_wal::{Scheme, SegmentSizes};

/// Makes a database with `streams` log streams on a new disk in memory.
pub fn database(streams: u8) -> Arc<dyn Disk> {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    make(&disk, streams);
    disk
}

/// Returns the options of a restart of a database with one stream.
pub fn options(disk: &Arc<dyn Disk>, mode: RestartMode) -> RestartOptions {
    let disks = Disks::on_one(Arc::clone(disk), 1);
    let clock = Arc::new(ManualClock::at(1));
    let schedule = Schedule::inline(Level::One, 0);
    RestartOptions {
        mode,
        ..RestartOptions::of_records(disks, clock, schedule, Methods::default())
    }
}

/// Begins a life after a restart.
pub fn life(restarted: Restarted, options: &RestartOptions) -> Life {
    let memory = LogMemory {
        block_bytes_max: 8192,
        queue_bytes_max: 8 << 20,
        lanes: 1,
        mirror: None,
    };
    let window = Arc::new(ExecutorWindow::default());
    Life::begin(restarted, options, memory, window).unwrap()
}

/// Makes a database with `streams` log streams on `disk`.
pub fn make(disk: &Arc<dyn Disk>, streams: u8) {
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
    let disks = Disks::on_one(Arc::clone(disk), usize::from(streams));
    create(&disks, &ManualClock::at(1), &new, None).unwrap();
}
