//! A log in memory for tests and examples. It has groups of page records. It is flushed after each epoch.

use std::sync::Arc;

use perdura_base::{
    CkptEpoch, Epoch, Gsn, Incarnation, PageId, PartitionSet, Result, StreamId, Useq, Uuid,
};
use perdura_device::{Disk, ManualClock};
use perdura_page::diff::FragmentWriter;
use perdura_page::record::{RecordHead, encode_group_head, encode_record_head};
use perdura_wal::segment::LOG_DIR;
use perdura_wal::{
    FlushProgress, FrameKind, History, Rung, Scheme, SegmentSizes, Vouched, Wal, WalOptions,
    WalStart,
};

/// The number of records in a group. A group is the records of one transaction.
pub const GROUP: usize = 2;

/// The shape of a log.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The number of records, each of one fragment.
    pub records: usize,
    /// The size of each record, bytes.
    pub bytes: usize,
    /// The number of pages. Each record changes a random page.
    pub pages: u32,
    /// The number of groups in an epoch.
    pub groups: usize,
}

/// Returns the history of a database. The database's log has one stream.
pub fn history(uuid: Uuid, segment_bytes: u64) -> History {
    let sizes = SegmentSizes::fixed(segment_bytes);
    History {
        clean: false,
        incarnation: Incarnation(1),
        ..History::begin(uuid, 0, Scheme::Differential, 1, sizes)
    }
}

/// Writes a log of this shape. Returns its durable end.
pub fn write_log(disk: &Arc<dyn Disk>, history: &History, shape: Shape) -> Result<Vouched> {
    disk.make_dir(LOG_DIR)?;
    let options = WalOptions {
        segments: history.segments,
        ..WalOptions::default()
    };
    let start = WalStart {
        uuid: history.uuid,
        incarnation: history.incarnation,
        start: history.open_start(),
        epoch: Epoch(1),
        durable: Epoch(0),
        wall_us: 0,
        gsn: Gsn(0),
        lives: perdura_wal::Lineage::default(),
    };
    let clock = Arc::new(ManualClock::at(1));
    let wal = Wal::open(&[Arc::clone(disk)], clock, options, start, |_| true)?;
    let mut rng = fastrand::Rng::with_seed(1);
    let none = PartitionSet::empty();
    let groups = shape.records / GROUP;
    for i in 0..groups {
        let payload = group(&mut rng, shape.pages, shape.bytes);
        let _flushed_below =
            wal.append(StreamId(0), FrameKind::Group, &payload, &none, CkptEpoch(9));
        if i % shape.groups == shape.groups - 1 || i == groups - 1 {
            wal.close_epoch();
            while wal.flush_step(StreamId(0))? != FlushProgress::Idle {}
        }
    }
    Ok(wal.durable_end(Rung::Disk))
}

/// Returns a group of records, encoded as in the log.
fn group(rng: &mut fastrand::Rng, pages: u32, bytes: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    encode_group_head(&mut payload, CkptEpoch(9), GROUP);
    for _ in 0..GROUP {
        let xor: Vec<u8> = (0..bytes).map(|_| rng.u8(1..)).collect();
        let mut body = Vec::new();
        let offset = rng.usize(64..16_384 - bytes);
        FragmentWriter::new(&mut body).whole(offset, &vec![0; bytes], &xor);
        let head = RecordHead {
            page: PageId(rng.u32(0..pages)),
            useq: Useq(rng.u32(..)),
            tag: CkptEpoch(9),
            fragments: 1,
        };
        encode_record_head(&mut payload, CkptEpoch(9), &head);
        payload.extend_from_slice(&body);
    }
    payload
}
