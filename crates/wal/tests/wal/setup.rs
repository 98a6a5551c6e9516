//! A log on a simulated disk, and its way back.

use std::sync::Arc;

use perdura_base::{CkptEpoch, Epoch, Incarnation, PartitionSet, Pos, Result, StreamId, Uuid};
use perdura_device::{Clock, Disk, ManualClock, SimDisk};
use perdura_wal::segment::LOG_DIR;
use perdura_wal::{
    Anchor, Cut, Direction, FlushProgress, FrameKind, ImageStatus, Scheme, StreamScan, Wal,
    WalOptions, WalStart, decide_cut, scan_stream,
};

pub const SEGMENT_BYTES: u64 = 64 * 1024;

pub fn anchor(streams: u8) -> Anchor {
    Anchor {
        seq: 1,
        uuid: Uuid([3; 16]),
        created_us: 0,
        chunk_pages: 4,
        partitions: 4,
        hash_seed: 1,
        segment_bytes: SEGMENT_BYTES,
        streams,
        clean: false,
        scheme: Scheme::Differential,
        image_disks: 1,
        incarnation: Incarnation(1),
        epoch_floor: Epoch(0),
        ckpt_max: CkptEpoch(0),
        images: [ImageStatus::empty(streams), ImageStatus::empty(streams)],
        chain: Vec::new(),
    }
}

pub fn open(disk: &Arc<SimDisk>, anchor: &Anchor, epoch: u64) -> Wal {
    let life: Arc<dyn Disk> = disk.life();
    life.make_dir(LOG_DIR).unwrap();
    let start = WalStart {
        uuid: anchor.uuid,
        incarnation: anchor.incarnation,
        start: anchor.open_start(),
        epoch: Epoch(epoch),
        durable: Epoch(epoch - 1),
        wall_us: 0,
    };
    let options = WalOptions {
        segment_bytes: anchor.segment_bytes,
        block_bytes_max: 8192,
        ..WalOptions::default()
    };
    let disks = vec![life; usize::from(anchor.streams)];
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(1));
    Wal::open(&disks, clock, options, start, |_| true).unwrap()
}

pub fn append(wal: &Wal, stream: u8, payload: &[u8]) -> Epoch {
    let none = PartitionSet::empty();
    wal.append(
        StreamId(stream),
        FrameKind::Group,
        payload,
        &none,
        CkptEpoch(0),
    )
    .epoch
}

pub fn flush(wal: &Wal) {
    wal.close_epoch();
    for stream in 0..wal.streams() {
        while wal.flush_step(StreamId(stream)).unwrap() != FlushProgress::Idle {}
    }
}

pub fn scan(disk: &Arc<SimDisk>, anchor: &Anchor) -> Result<(Vec<StreamScan>, Cut)> {
    let life = disk.life();
    let mut scans = Vec::new();
    for stream in 0..anchor.streams {
        scans.push(scan_stream(
            life.as_ref(),
            anchor,
            StreamId(stream),
            Pos(0),
        )?);
    }
    let cut = decide_cut(anchor, &scans)?;
    for scan in &mut scans {
        scan.cut_at(cut.cut[usize::from(scan.stream.0)]);
    }
    Ok((scans, cut))
}

/// All groups up to the cut, by stream.
pub fn groups(scans: &[StreamScan], unit_bytes: u64, direction: Direction) -> Vec<Vec<Vec<u8>>> {
    let of_stream = |scan: &StreamScan| {
        let mut units = scan.units(unit_bytes);
        if direction == Direction::Backward {
            units.reverse();
        }
        let mut out = Vec::new();
        for unit in units {
            scan.read_unit(unit, direction, |frame, _| {
                if frame.kind == FrameKind::Group {
                    out.push(frame.payload.to_vec());
                }
                Ok(())
            })
            .unwrap();
        }
        out
    };
    scans.iter().map(of_stream).collect()
}
