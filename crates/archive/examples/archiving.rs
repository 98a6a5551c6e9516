//! What archiving costs: a log is read, its page records are selected, sorted, digested, encoded and written as runs, on one
//! core.
//!
//!     cargo run --release -p perdura-archive --example archiving [records] [pages] [bytes]
//!
//! The log has `records` records of `bytes` bytes in one fragment each, on `pages` uniformly random pages of 256
//! partitions, two in a transaction, 500 transactions in an epoch. Both disks are memory. Making the log is not counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura_archive::{Archiver, ArchiverOptions, ArchiverStep, Codec};
use perdura_base::{
    CkptEpoch, Epoch, Incarnation, PageId, PartitionSet, Pos, Result, StreamId, Useq, Uuid,
};
use perdura_device::{Disk, ManualClock, MemDisk};
use perdura_page::diff::FragmentWriter;
use perdura_page::record::{RecordHead, encode_group_head, encode_record_head};
use perdura_page::{Chunks, RegionDigest};
use perdura_wal::segment::LOG_DIR;
use perdura_wal::{
    EpochEnds, EpochSource, FlushProgress, FrameKind, History, Rung, Scheme, SegmentSizes,
    SourceStep, Vouched, Wal, WalOptions, WalStart,
};

/// Records in a group.
const GROUP: usize = 2;
/// Groups in an epoch.
const GROUPS: usize = 500;
const CHUNKS: Chunks = Chunks {
    partitions: 256,
    pages: 128,
};

fn main() -> Result<()> {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|text| text.parse().expect("a number"));
    let mut number = |usual: usize| arguments.next().unwrap_or(usual);
    let (records, pages, bytes) = (number(2_000_000), number(1 << 20), number(40));
    let history = History {
        clean: false,
        incarnation: Incarnation(1),
        ..History::begin(
            Uuid([1; 16]),
            0,
            (Scheme::Differential, 1),
            SegmentSizes::fixed(64 << 20),
        )
    };
    let log: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let durable = write_log(
        &log,
        &history,
        records,
        u32::try_from(pages).expect("32 bits"),
        bytes,
    )?;
    let begin = EpochEnds {
        epoch: Epoch(0),
        ends: vec![Pos(0)],
    };
    let source = || EpochSource::open(&[Arc::clone(&log)], &history, &begin);
    let each = |time: Duration| time.as_secs_f64() * 1e9 / records as f64;

    let start = Instant::now();
    let mut alone = source()?;
    while alone.step(&durable, |_, _| Ok(()))? != SourceStep::Idle {}
    println!(
        "{records} records, {} bytes of log; to read it alone {:.0} ns a record",
        durable.ends[0],
        each(start.elapsed())
    );
    let digest = Arc::new(RegionDigest::new());
    for codec in Codec::ALL {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let options = ArchiverOptions {
            codec,
            ..ArchiverOptions::new(history.uuid, CHUNKS)
        };
        let mut archiver = Archiver::new(
            source()?,
            Arc::clone(&disk),
            "",
            options,
            Arc::clone(&digest),
            0,
        );
        archiver.cut_at(durable.epoch);
        let (mut runs, mut archived, mut written) = (0, 0, 0);
        let start = Instant::now();
        loop {
            match archiver.step(&durable, 0)? {
                ArchiverStep::Working => {}
                ArchiverStep::Run(run) => {
                    runs += 1;
                    archived += run.summary.records;
                    written += run.summary.bytes;
                    disk.remove(&run.summary.id.path(""))?;
                }
                ArchiverStep::Idle => break,
            }
        }
        let total = start.elapsed();
        assert_eq!(
            usize::try_from(archived).ok(),
            Some(records),
            "each record is in a run"
        );
        println!(
            "{codec:?}: {:.2} M records/s, {:.0} ns a record; {runs} runs, {:.1} bytes a record",
            records as f64 / total.as_secs_f64() / 1e6,
            each(total),
            written as f64 / records as f64,
        );
    }
    Ok(())
}

/// Writes the log. Returns its end.
fn write_log(
    disk: &Arc<dyn Disk>,
    history: &History,
    records: usize,
    pages: u32,
    bytes: usize,
) -> Result<Vouched> {
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
    };
    let clock = Arc::new(ManualClock::at(1));
    let wal = Wal::open(&[Arc::clone(disk)], clock, options, start, |_| true)?;
    let mut rng = fastrand::Rng::with_seed(1);
    let none = PartitionSet::empty();
    for i in 0..records / GROUP {
        let payload = group(&mut rng, pages, bytes);
        let _flushed_below =
            wal.append(StreamId(0), FrameKind::Group, &payload, &none, CkptEpoch(9));
        if i % GROUPS == GROUPS - 1 || i == records / GROUP - 1 {
            wal.close_epoch();
            while wal.flush_step(StreamId(0))? != FlushProgress::Idle {}
        }
    }
    Ok(wal.durable_end(Rung::Disk))
}

/// A group of records as the log has it.
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
