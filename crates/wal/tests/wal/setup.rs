//! Sets up a log on a simulated disk, and reads it after a crash.

use std::sync::Arc;

use perdura_base::{CkptEpoch, Epoch, Gsn, Incarnation, PartitionSet, Pos, Result, StreamId, Uuid};
use perdura_device::{Clock, Disk, ManualClock, SimDisk};
use perdura_wal::segment::LOG_DIR;
use perdura_wal::{
    ChainLink, Check, Cut, Direction, FlushProgress, FrameKind, History, Scheme, SegmentSizes,
    StreamScan, Vouched, Wal, WalOptions, WalStart, decide_cut, scan_stream,
};

pub const SEGMENT_BYTES: u64 = 64 * 1024;

pub fn anchor(streams: u8) -> History {
    let sizes = SegmentSizes::fixed(SEGMENT_BYTES);
    History {
        clean: false,
        incarnation: Incarnation(1),
        ..History::begin(Uuid([3; 16]), 0, Scheme::Differential, streams, sizes)
    }
}

pub fn open(disk: &Arc<SimDisk>, anchor: &History, epoch: u64) -> Wal {
    open_on(disk.life(), anchor, epoch)
}

pub fn open_on(life: Arc<dyn Disk>, anchor: &History, epoch: u64) -> Wal {
    let options = WalOptions {
        segments: anchor.segments,
        block_bytes_max: 8192,
        ..WalOptions::default()
    };
    open_with(life, anchor, epoch, options)
}

pub fn open_with(life: Arc<dyn Disk>, anchor: &History, epoch: u64, options: WalOptions) -> Wal {
    open_all(life, anchor, epoch, (options, Arc::new(ManualClock::at(1))))
}

/// Opens the first life of a log with this clock.
pub fn open_by(life: Arc<dyn Disk>, anchor: &History, clock: Arc<ManualClock>) -> Wal {
    let options = WalOptions {
        segments: anchor.segments,
        ..WalOptions::default()
    };
    open_all(life, anchor, 1, (options, clock))
}

fn open_all(
    life: Arc<dyn Disk>,
    anchor: &History,
    epoch: u64,
    (options, clock): (WalOptions, Arc<dyn Clock>),
) -> Wal {
    life.make_dir(LOG_DIR).unwrap();
    let start = WalStart {
        uuid: anchor.uuid,
        incarnation: anchor.incarnation,
        start: anchor.open_start(),
        epoch: Epoch(epoch),
        durable: anchor.vouched.epoch,
        wall_us: anchor.vouched.wall_us,
        gsn: Gsn(0),
        lives: perdura_wal::Lineage::default(),
    };
    let disks = vec![life; usize::from(anchor.streams)];
    Wal::open(&disks, clock, options, start, |_| true).unwrap()
}

/// Records the log's next incarnation in `history`. It begins at the cut that a restart found. Returns the first epoch
/// of the incarnation.
pub fn next_life(history: &mut History, cut: &Cut) -> u64 {
    history.chain.push(ChainLink {
        incarnation: history.incarnation,
        durable: cut.durable,
        start: history.open_start(),
        cut: cut.cut.clone(),
    });
    history.incarnation = Incarnation(history.incarnation.0 + 1);
    history.vouched = Vouched {
        epoch: cut.durable,
        wall_us: cut.wall_us,
        ends: cut.cut.clone(),
    };
    history.epoch_floor = cut.epoch_max.max(cut.durable);
    history.epoch_floor.0 + 1
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

/// Scans all streams twice: once checking every body, and once hopping from header to header. If the hopping scan
/// misses damage, reading the scan's units must detect it.
pub fn scan(disk: &Arc<SimDisk>, anchor: &History) -> Result<(Vec<StreamScan>, Cut)> {
    let life: Arc<dyn Disk> = disk.life();
    scan_on(&life, anchor)
}

/// Like [`scan`], for any disk.
pub fn scan_on(disk: &Arc<dyn Disk>, anchor: &History) -> Result<(Vec<StreamScan>, Cut)> {
    let checked = scan_by(disk, anchor, Check::All);
    let hopped = scan_by(disk, anchor, Check::InDoubt).and_then(|(scans, cut)| {
        for scan in &scans {
            for unit in scan.units(0) {
                scan.read_unit(unit, Direction::Forward, |_, _| Ok(()))?;
            }
        }
        Ok((scans, cut))
    });
    match (&checked, &hopped) {
        (Ok((scans, cut)), Ok((hopped_scans, hopped_cut))) => {
            assert_eq!(
                (cut.durable, &cut.cut),
                (hopped_cut.durable, &hopped_cut.cut)
            );
            for (scan, hopped) in scans.iter().zip(hopped_scans) {
                let places = |scan: &StreamScan| -> Vec<Pos> {
                    scan.blocks.iter().map(|block| block.pos).collect()
                };
                assert_eq!(places(scan), places(hopped));
            }
        }
        (Err(_), Err(_)) => {}
        _ => panic!(
            "the two scans disagree: {:?}, {:?}",
            checked.is_ok(),
            hopped.is_ok()
        ),
    }
    checked
}

fn scan_by(life: &Arc<dyn Disk>, anchor: &History, check: Check) -> Result<(Vec<StreamScan>, Cut)> {
    let mut scans = Vec::new();
    for stream in 0..anchor.streams {
        let (disk, lives) = (life.as_ref(), anchor.lives());
        scans.push(scan_stream(disk, &lives, StreamId(stream), Pos(0), check)?);
    }
    let cut = decide_cut(anchor, &scans, None, false)?;
    for scan in &mut scans {
        scan.cut_at(cut.cut[usize::from(scan.stream.0)]);
    }
    Ok((scans, cut))
}

/// Returns all groups up to the cut, for each stream.
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
