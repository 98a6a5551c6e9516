//! Measures the cost of run generation: collecting, sorting, digesting, encoding and writing records. One core does
//! all of it.
//!
//!     cargo run --release -p perdura-archive --example generation [records] [pages] [bytes]
//!
//! The example makes `records` records in 256 partitions. Each record has one fragment of `bytes` bytes. It changes a
//! page that is chosen uniformly at random among `pages` pages. A workspace has 16 MiB. The disk is in memory. The time
//! to make the records is not counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura_archive::quick::WORKSPACE_BYTES;
use perdura_archive::{Codec, Moments, Quick, RunTarget};
use perdura_base::{CkptEpoch, Epoch, PageId, Pos, Result, Useq, Uuid};
use perdura_device::{Disk, MemDisk};
use perdura_page::diff::FragmentWriter;
use perdura_page::record::{RecordHead, encode_group_head, encode_record_head};
use perdura_page::{Chunks, RegionDigest, for_each_record};

/// The number of records in a group.
const GROUP: usize = 2;
/// The number of groups in an epoch.
const GROUPS: usize = 500;

fn main() -> Result<()> {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|text| text.parse().expect("a number"));
    let mut number = |usual: usize| arguments.next().unwrap_or(usual);
    let (records, pages, bytes) = (number(2_000_000), number(1 << 20), number(40));
    let chunks = Chunks {
        partitions: 256,
        pages: 128,
    };
    let mut rng = fastrand::Rng::with_seed(1);
    let groups: Vec<Vec<u8>> = (0..records / GROUP)
        .map(|_| group(&mut rng, u32::try_from(pages).expect("32 bits"), bytes))
        .collect();
    let digest = Arc::new(RegionDigest::new());
    for codec in Codec::ALL {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let (mut collect, mut sort, mut write) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let (mut runs, mut written) = (0, 0);
        let mut left = groups.iter();
        let mut epoch = Epoch(1);
        while left.len() > 0 {
            let start = Instant::now();
            let mut quick = Quick::new(epoch, chunks, WORKSPACE_BYTES);
            while left.len() > 0 && !quick.is_full() {
                for payload in left.by_ref().take(GROUPS) {
                    let mut added = Ok(());
                    let whole = for_each_record(payload, |record| {
                        if added.is_ok() {
                            added = quick.add(epoch, &record);
                        }
                    });
                    added?;
                    assert!(whole.is_some(), "a whole group");
                }
                epoch = Epoch(epoch.0 + 1);
            }
            collect += start.elapsed();
            let start = Instant::now();
            let sorted = quick.cut(epoch)?;
            sort += start.elapsed();
            let start = Instant::now();
            let target = RunTarget {
                disk: Arc::clone(&disk),
                dir: String::new(),
                digest: Arc::clone(&digest),
            };
            let run = sorted.write(target, Uuid([1; 16]), 0, codec)?;
            let summary = run.run(&Moments::default(), &[Pos(0)])?;
            write += start.elapsed();
            runs += 1;
            written += summary.bytes;
            disk.remove(&summary.id.path(""))?;
        }
        let each = |time: Duration| time.as_secs_f64() * 1e9 / records as f64;
        let total = collect + sort + write;
        println!(
            "{codec:?}: {:.2} M records/s; ns a record: collect {:.0}, sort {:.0}, digest, encode and write {:.0}; \
             {runs} runs, {:.1} bytes a record",
            records as f64 / total.as_secs_f64() / 1e6,
            each(collect),
            each(sort),
            each(write),
            written as f64 / records as f64,
        );
    }
    Ok(())
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
