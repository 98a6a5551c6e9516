//! Threads that raise the durable epochs of the two rungs: the disk, and the mirror.

use std::sync::Arc;

use perdura_base::{CkptEpoch, Epoch, PartitionSet, StreamId};
use perdura_device::{Disk, MemDisk};
use perdura_wal::segment::LOG_DIR;
use perdura_wal::{FlushProgress, FrameKind, Rung, TailOptions, WalOptions};
use shuttle::thread;

use crate::{STREAMS, open_with};

/// One thread seals blocks and records that the mirror has them. A second thread writes the blocks to disk. Meanwhile a
/// third thread makes the mirror's durable epoch follow the disk. No rung's durable epoch may decrease. At the end,
/// every rung must have the last epoch.
fn two_rungs() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    disk.make_dir(LOG_DIR).unwrap();
    let tail_bytes_max = 1 << 20;
    let wal = open_with(
        &disk,
        WalOptions {
            mirror: Some(TailOptions { tail_bytes_max }),
            ..WalOptions::default()
        },
    );
    wal.mirror_follows_disk(false);
    let none = PartitionSet::empty();
    let append = |payload: &[u8]| {
        for stream in (0..STREAMS).map(StreamId) {
            wal.append(stream, FrameKind::Group, payload, &none, CkptEpoch(0));
        }
        wal.close_epoch();
    };
    append(b"one");
    append(b"two");
    let nodes = {
        let wal = Arc::clone(&wal);
        move || {
            for stream in [0, 1, 0].map(StreamId) {
                wal.ship_step(stream).unwrap();
                let before = wal.durable(Rung::Mirror);
                wal.raise_mirror(stream, wal.sealed_end(stream));
                assert!(before <= wal.durable(Rung::Mirror));
            }
        }
    };
    let copy = {
        let wal = Arc::clone(&wal);
        move || {
            for stream in [0, 1, 0, 1].map(StreamId) {
                wal.flush_step(stream).unwrap();
                assert!(wal.evidenced() <= wal.durable(Rung::Disk));
            }
        }
    };
    let view = {
        let wal = Arc::clone(&wal);
        move || wal.mirror_follows_disk(true)
    };
    let threads = [
        thread::spawn(nodes),
        thread::spawn(copy),
        thread::spawn(view),
    ];
    append(b"three");
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(wal.durable(Rung::Mirror) >= wal.durable(Rung::Disk));
    for stream in (0..STREAMS).map(StreamId) {
        while wal.flush_step(stream).unwrap() != FlushProgress::Idle {}
    }
    let reached = wal.reached();
    assert!(Rung::ALL.iter().all(|rung| reached.at(*rung) == Epoch(3)));
}

#[test]
fn a_mirror_loses_no_advance_of_nodes_or_disk_under_random_schedules() {
    shuttle::check_random(two_rungs, 2000);
}

#[test]
fn a_mirror_loses_no_advance_of_nodes_or_disk_under_preempting_schedules() {
    shuttle::check_pct(two_rungs, 1000, 3);
}
