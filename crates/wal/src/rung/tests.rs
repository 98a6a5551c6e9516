use std::sync::Arc;

use perdura_base::{CkptEpoch, Gsn, Incarnation, PartitionSet, Pos, StreamId, Uuid};
use perdura_device::{Clock, Disk, ManualClock, MemDisk};

use super::*;
use crate::segment::LOG_DIR;
use crate::{FlushProgress, FrameKind, SegmentSizes, TailOptions, Wal, WalOptions, WalStart};

fn log(streams: u8, has_mirror: bool) -> (Wal, Arc<ManualClock>) {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    disk.make_dir(LOG_DIR).unwrap();
    let start = WalStart {
        uuid: Uuid([3; 16]),
        incarnation: Incarnation(1),
        start: vec![Pos(0); usize::from(streams)],
        epoch: Epoch(1),
        durable: Epoch(0),
        wall_us: 0,
        gsn: Gsn(0),
        lives: crate::Lineage::default(),
    };
    let options = WalOptions {
        segments: SegmentSizes::fixed(64 << 10),
        mirror: has_mirror.then_some(TailOptions {
            tail_bytes_max: 1 << 20,
        }),
        ..WalOptions::default()
    };
    let disks = vec![disk; usize::from(streams)];
    let clock = Arc::new(ManualClock::at(1));
    let wal = Wal::open(&disks, Arc::clone(&clock) as _, options, start, |_| true);
    (wal.unwrap(), clock)
}

fn mirrored(streams: u8) -> Wal {
    let (wal, _) = log(streams, true);
    wal.mirror_follows_disk(false);
    wal
}

fn streams(wal: &Wal) -> impl Iterator<Item = StreamId> {
    (0..wal.streams()).map(StreamId)
}

/// Appends to every stream, closes the epoch and seals its blocks.
fn seal(wal: &Wal) -> Epoch {
    for stream in streams(wal) {
        let none = PartitionSet::empty();
        let numbered = (FrameKind::Operations, 1);
        wal.append_numbered(stream, numbered, (&none, CkptEpoch(0)), |_| vec![7]);
    }
    let epoch = wal.close_epoch().unwrap();
    for stream in streams(wal) {
        assert!(wal.ship_step(stream).unwrap());
    }
    epoch
}

/// Seals an epoch and syncs it on disk.
fn commit(wal: &Wal) -> Epoch {
    let epoch = seal(wal);
    sync(wal);
    epoch
}

fn sync(wal: &Wal) {
    for stream in streams(wal) {
        while wal.flush_step(stream).unwrap() != FlushProgress::Idle {}
    }
}

/// Raises the mirror's position in a stream to the stream's sealed end.
fn hold(wal: &Wal, stream: u8) {
    wal.raise_mirror(StreamId(stream), wal.sealed_end(StreamId(stream)));
}

#[test]
fn without_a_mirror_its_rung_is_the_disk() {
    let (wal, _) = log(2, false);
    for _ in 0..3 {
        let epoch = commit(&wal);
        assert_eq!(wal.durable(Rung::Mirror), epoch);
        assert_eq!(wal.durable_end(Rung::Mirror), wal.durable_end(Rung::Disk));
        assert_eq!(wal.eosl(Rung::Mirror), wal.last_gsn());
        assert_eq!(wal.reached(), Reached::new(|_| epoch));
        assert_eq!(wal.ends.lock().closed.len(), 0, "no rung is behind");
    }
}

#[test]
fn a_mirror_has_a_durable_epoch_that_its_own_streams_decide() {
    let wal = mirrored(2);
    let epoch = commit(&wal);
    assert_eq!(wal.durable(Rung::Disk), epoch);
    hold(&wal, 0);
    assert_eq!(wal.durable(Rung::Mirror), Epoch(0), "one stream of two");
    hold(&wal, 1);
    let reached = wal.reached();
    assert!(Rung::ALL.iter().all(|rung| reached.at(*rung) == epoch));
    // Raising the mirror to an earlier end changes nothing, even while the other stream is behind.
    let before = wal.synced(StreamId(0));
    let next = commit(&wal);
    hold(&wal, 0);
    wal.raise_mirror(StreamId(0), before);
    assert_eq!(wal.durable(Rung::Mirror), epoch);
    hold(&wal, 1);
    assert_eq!(wal.durable(Rung::Mirror), next);
    let ends = |rung| wal.durable_end(rung).ends;
    assert_eq!(ends(Rung::Mirror), ends(Rung::Disk));
}

#[test]
fn a_mirror_may_be_ahead_of_the_disk_and_behind_it() {
    let wal = mirrored(1);
    let kept = || wal.ends.lock().closed.len();
    let mut ends = Vec::new();
    for _ in 0..3 {
        commit(&wal);
        ends.push(wal.sealed_end(StreamId(0)));
    }
    assert_eq!((wal.durable(Rung::Disk), kept()), (Epoch(3), 3));
    wal.raise_mirror(StreamId(0), ends[1]);
    assert_eq!((wal.durable(Rung::Mirror), kept()), (Epoch(2), 1));
    assert_eq!(wal.eosl(Rung::Mirror), Gsn(2));
    wal.raise_mirror(StreamId(0), ends[0]);
    assert_eq!(wal.durable(Rung::Mirror), Epoch(2), "an end passed before");
    hold(&wal, 0);
    assert_eq!((wal.durable(Rung::Mirror), kept()), (Epoch(3), 0));
    // D of the disk does not change while the mirror is ahead.
    seal(&wal);
    hold(&wal, 0);
    assert_eq!(wal.durable(Rung::Mirror), Epoch(4));
    assert_eq!((wal.durable(Rung::Disk), kept()), (Epoch(3), 1));
    assert_eq!(
        (wal.eosl(Rung::Mirror), wal.eosl(Rung::Disk)),
        (Gsn(4), Gsn(3))
    );
    assert!(!wal.is_idle(), "what is not on disk is not durable there");
    sync(&wal);
    assert!(wal.is_idle() && kept() == 0);
}

#[test]
fn a_mirror_that_follows_the_disk_rises_with_it_and_is_never_lowered() {
    let (wal, _) = log(2, true);
    let epoch = commit(&wal);
    assert_eq!(wal.durable(Rung::Mirror), epoch);
    wal.mirror_follows_disk(false);
    let next = commit(&wal);
    assert_eq!(wal.reached().at(Rung::Mirror), epoch, "no node has it");
    wal.mirror_follows_disk(true);
    assert_eq!(
        wal.durable(Rung::Mirror),
        next,
        "what had been synced before counts"
    );
    let ahead = seal(&wal);
    hold(&wal, 0);
    hold(&wal, 1);
    assert_eq!(
        (wal.durable(Rung::Mirror), wal.durable(Rung::Disk)),
        (ahead, next)
    );
    wal.mirror_follows_disk(true);
    assert_eq!(wal.durable(Rung::Mirror), ahead);
    sync(&wal);
    assert_eq!(wal.durable(Rung::Disk), ahead);
}

#[test]
#[should_panic(expected = "sealed up to")]
fn a_mirror_holds_nothing_that_is_not_sealed() {
    let wal = mirrored(1);
    commit(&wal);
    wal.raise_mirror(StreamId(0), Pos(wal.sealed_end(StreamId(0)).0 + 1));
}

#[test]
fn each_rung_has_the_age_of_its_oldest_frame() {
    let (wal, clock) = log(1, true);
    wal.mirror_follows_disk(false);
    let mut begun = Vec::new();
    for _ in 0..3 {
        begun.push(clock.mono_ns());
        seal(&wal);
        clock.advance_us(5);
    }
    let since = |rung| wal.waiting_since_ns(rung);
    assert_eq!(since(Rung::Mirror), Some(begun[0]));
    hold(&wal, 0);
    assert_eq!(since(Rung::Mirror), None);
    assert_eq!(wal.unsynced_since_ns(), Some(begun[0]));
    seal(&wal);
    assert_eq!(since(Rung::Disk), Some(begun[0]), "the mirror is ahead");
    sync(&wal);
    hold(&wal, 0);
    begun.push(clock.mono_ns());
    commit(&wal);
    assert_eq!(wal.unsynced_since_ns(), None);
    clock.advance_us(5);
    commit(&wal);
    assert_eq!(since(Rung::Mirror), Some(begun[3]), "the disk is ahead");
}
