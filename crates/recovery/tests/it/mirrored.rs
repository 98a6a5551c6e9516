//! A test of a restart from the disks alone, although the end of the log was only in a mirror's memory.

use std::sync::Arc;

use perdura_base::{CkptEpoch, Epoch, PartitionSet, StreamId};
use perdura_device::{Disk, ManualClock};
use perdura_recovery::window::ExecutorWindow;
use perdura_recovery::{
    Disks, Level, Life, LogMemory, Method, RestartOptions, Schedule, Tail, flush_all, restart,
};
use perdura_wal::{FlushProgress, FrameKind, Rung, Scheme, TailOptions, Wal};

const STREAMS: u8 = 2;

fn options(disk: &Arc<dyn Disk>) -> RestartOptions {
    RestartOptions::of_records(
        Disks::on_one(Arc::clone(disk), usize::from(STREAMS)),
        Arc::new(ManualClock::at(1)),
        Schedule::inline(Level::Two, 0),
        Method::of(Scheme::Differential),
    )
}

/// Appends to each stream a frame that changes no data, and closes the epoch. The mirror then holds that epoch.
fn acknowledge(wal: &Wal) -> Epoch {
    for stream in (0..STREAMS).map(StreamId) {
        let none = PartitionSet::empty();
        wal.append(stream, FrameKind::Beacon, &[], &none, CkptEpoch(0));
    }
    let epoch = wal.close_epoch().unwrap();
    for stream in (0..STREAMS).map(StreamId) {
        wal.ship_step(stream).unwrap();
        wal.raise_mirror(stream, wal.sealed_end(stream));
    }
    epoch
}

#[test]
fn a_restart_goes_on_without_what_the_mirror_held_only_if_its_options_say_so() {
    let disk = crate::made::database(STREAMS);
    let memory = LogMemory {
        block_bytes_max: 4096,
        queue_bytes_max: 1 << 20,
        lanes: 1,
        mirror: Some(TailOptions {
            tail_bytes_max: 1 << 20,
        }),
    };
    let begun = options(&disk);
    let restarted = restart(&begun).unwrap().unwrap();
    let window = Arc::<ExecutorWindow>::default();
    let wal = Life::begin(restarted, &begun, memory, window).unwrap().wal;
    flush_all(&wal).unwrap();
    wal.mirror_follows_disk(false);
    let on_disk = wal.durable(Rung::Disk);
    let lost = acknowledge(&wal);
    acknowledge(&wal);
    // The disk gets both epochs of the second stream, and neither epoch of the first stream.
    while wal.flush_step(StreamId(1)).unwrap() != FlushProgress::Idle {}
    assert!(wal.durable(Rung::Disk) == on_disk && wal.durable(Rung::Mirror) > lost);
    drop(wal);
    let mut again = options(&disk);
    let refused = restart(&again).err().map(|error| error.to_string());
    let why = format!("says that epoch {lost} was acknowledged");
    assert!(refused.is_some_and(|refused| refused.contains(&why)));
    again.tail = Tail::GivenUp;
    let report = restart(&again).unwrap().unwrap().report;
    assert_eq!(report.durable_epoch, on_disk.0);
    // The next restart needs no option, because the part of the log that was given up is void.
    again.tail = Tail::OnDisk;
    assert!(restart(&again).unwrap().is_some());
}
