//! Measures the cost of archiving: reading a log, and selecting, sorting, digesting, encoding and writing its page
//! records as runs. One core does all of it.
//!
//!     cargo run --release -p perdura-archive --example archiving [records] [pages] [bytes]
//!
//! The log has `records` records in 256 partitions. Each record has one fragment of `bytes` bytes. It changes a page
//! that is chosen uniformly at random among `pages` pages. A transaction has two records, and an epoch has 500
//! transactions. Both disks are in memory. The time to make the log is not counted. The example measures each algorithm
//! of `perdura_archive::generation` first, then the default algorithm with each codec.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura_archive::{
    Archiver, ArchiverOptions, ArchiverStep, Codec, Generation, RunTarget, unsorted,
};
use perdura_base::{Epoch, Pos, Result, Uuid};
use perdura_device::{Disk, MemDisk};
use perdura_page::{Chunks, RegionDigest};
use perdura_wal::{EpochEnds, EpochSource, SourceStep};

#[path = "../tests/archive/log.rs"]
mod log;

/// The number of transactions in an epoch. Each transaction is one group of records.
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
    let history = log::history(Uuid([1; 16]), 64 << 20);
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let shape = log::Shape {
        records,
        bytes,
        pages: u32::try_from(pages).expect("32 bits"),
        groups: GROUPS,
    };
    let durable = log::write_log(&disk, &history, shape)?;
    let begin = EpochEnds {
        epoch: Epoch(0),
        ends: vec![Pos(0)],
    };
    let source = || EpochSource::open(&[Arc::clone(&disk)], &history, &begin);
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
    let rows = Generation::ALL.map(|row| (row, Codec::Lz4));
    let codecs = Codec::ALL.map(|codec| (Generation::Quick, codec));
    for (row, codec) in rows.into_iter().chain(codecs) {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let options = ArchiverOptions {
            codec,
            row,
            ..ArchiverOptions::new(history.uuid, CHUNKS)
        };
        let target = RunTarget {
            disk: Arc::clone(&disk),
            dir: String::new(),
            digest: Arc::clone(&digest),
        };
        let mut archiver = Archiver::new(source()?, target, options);
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
                    let id = run.summary.id;
                    let path = match row.makes_runs() {
                        true => id.path(""),
                        false => unsorted::path("", &id),
                    };
                    disk.remove(&path)?;
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
            "{}, {codec:?}: {:.2} M records/s, {:.0} ns a record; {runs} files, {:.1} bytes a record",
            row.name(),
            records as f64 / total.as_secs_f64() / 1e6,
            each(total),
            written as f64 / records as f64,
        );
    }
    Ok(())
}
