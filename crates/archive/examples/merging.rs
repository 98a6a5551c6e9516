//! Measures the time of merging, and the saved bytes. The example makes runs from updates of rows. The example reads
//! the runs side by side, then merges the runs, then merges the runs again and combines the records. The example uses
//! one core; the disk is in memory.
//!
//!     cargo run --release -p perdura-archive --example merging [updates] [rows] [bytes] [runs]
//!
//! There are `updates` updates of `bytes` bytes each, in `runs` runs of level 0. They change `rows` rows in 256
//! partitions; a page has a hundred rows. The example chooses the rows at random. It runs once with the uniform
//! distribution, and once with Zipf's distribution (parameter 0.99).

use std::sync::Arc;
use std::time::Instant;

use perdura_archive::{
    Codec, Images, Keep, Merge, MergeOptions, Merged, Moments, Quick, Run, RunTarget, Scope,
};
use perdura_base::checksum::mix64;
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{CkptEpoch, Epoch, PageId, Pos, Result, Useq, Uuid};
use perdura_device::{Disk, MemDisk};
use perdura_page::diff::FragmentWriter;
use perdura_page::record::{RecordHead, encode_group_head, encode_record_head};
use perdura_page::{Chunks, RegionDigest, for_each_record};

const UUID: Uuid = Uuid([1; 16]);
const CHUNKS: Chunks = Chunks {
    partitions: 256,
    pages: 128,
};
const ROWS_PER_PAGE: u64 = 100;
const ROW_BYTES: u64 = 160;
const UPDATES_PER_EPOCH: usize = 1000;

/// A source of random rows. Their distribution is uniform or Zipf's.
struct Rows {
    rng: fastrand::Rng,
    rows: u64,
    /// The running sums of the rows' weights in Zipf's distribution. Empty for the uniform distribution.
    sums: Vec<f64>,
}

impl Rows {
    fn new(rows: u64, theta: Option<f64>) -> Rows {
        let mut sum = 0.0;
        let weights = |theta: f64| {
            let ranks = (1..=u32::try_from(rows).expect("32 bits")).map(f64::from);
            ranks.map(move |rank| rank.powf(-theta))
        };
        let add = |weight: f64| {
            sum += weight;
            sum
        };
        Rows {
            rng: fastrand::Rng::with_seed(7),
            rows,
            sums: theta.into_iter().flat_map(weights).map(add).collect(),
        }
    }

    fn draw(&mut self) -> u64 {
        let Some(all) = self.sums.last() else {
            return self.rng.u64(0..self.rows);
        };
        let drawn = self.rng.f64() * all;
        let rank = self.sums.partition_point(|sum| *sum < drawn);
        // Scatter the often-updated rows over the table.
        mix64(to_u64(rank) + 1) % self.rows
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|text| text.parse().expect("a number"));
    let mut number = |usual: usize| arguments.next().unwrap_or(usual);
    let (updates, rows, bytes, runs) =
        (number(1_500_000), number(1_000_000), number(40), number(8));
    let digest = Arc::new(RegionDigest::new());
    for (name, theta) in [("uniform", None), ("zipf 0.99", Some(0.99))] {
        for codec in Codec::ALL {
            let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
            let mut draw = Rows::new(to_u64(rows), theta);
            let inputs = generate(&disk, &mut draw, (updates, bytes, runs), codec, &digest)?;
            let size: u64 = inputs.iter().map(|run| run.bytes()).sum();
            let start = Instant::now();
            let mut merged = Merged::new(&inputs, &Scope::All);
            let mut records = 0u64;
            while merged.advance()? {
                records += u64::from(merged.record().fragment_count() > 0);
            }
            let read = start.elapsed();
            assert_eq!(records, inputs.iter().map(|run| run.counts().0).sum());
            let speed = |time: std::time::Duration| size as f64 / 1e6 / time.as_secs_f64();
            println!(
                "{name}, {codec:?}: {} runs, {:.1} MB, {records} records",
                inputs.len(),
                size as f64 / 1e6
            );
            println!(
                "  read side by side: {:.0} MB/s, {:.0} ns a record",
                speed(read),
                read.as_secs_f64() * 1e9 / records as f64
            );
            for net in [false, true] {
                let keep = net.then(|| Keep {
                    moments: Vec::new(),
                    images: Images::default(),
                });
                let options = MergeOptions {
                    codec,
                    keep,
                    ..MergeOptions::default()
                };
                let start = Instant::now();
                let merge = Merge::new(
                    Arc::clone(&disk),
                    "",
                    inputs.clone(),
                    options,
                    Arc::clone(&digest),
                )?;
                let summary = merge.run()?;
                let time = start.elapsed();
                let what = if net { "merged, combined" } else { "merged" };
                println!(
                    "  {what}: {:.0} MB/s in, {:.0} ns a record; {} records, {:.2} of the bytes",
                    speed(time),
                    time.as_secs_f64() * 1e9 / records as f64,
                    summary.records,
                    summary.bytes as f64 / size as f64
                );
                disk.remove(&summary.id.path(""))?;
            }
        }
    }
    Ok(())
}

/// Makes runs of level 0 from random updates.
fn generate(
    disk: &Arc<dyn Disk>,
    rows: &mut Rows,
    (updates, bytes, runs): (usize, usize, usize),
    codec: Codec,
    digest: &Arc<RegionDigest>,
) -> Result<Vec<Arc<Run>>> {
    let mut made = Vec::new();
    let mut epoch = 1;
    let mut useqs = vec![0u32; to_usize(rows.rows.div_ceil(ROWS_PER_PAGE))];
    let mut payload = Vec::new();
    for _ in 0..runs {
        let mut quick = Quick::new(Epoch(epoch), CHUNKS, usize::MAX);
        for i in 0..updates / runs {
            let row = rows.draw();
            let page = row / ROWS_PER_PAGE;
            let useq = &mut useqs[to_usize(page)];
            *useq = useq.wrapping_add(1);
            // Like digits, the bytes take few different values.
            let xor: Vec<u8> = (0..bytes).map(|_| rows.rng.u8(1..16)).collect();
            let offset = 128 + (row % ROWS_PER_PAGE) * ROW_BYTES;
            let id = PageId(u32::try_from(page).expect("32 bits"));
            update(&mut payload, id, *useq, to_usize(offset), &xor);
            let at = Epoch(epoch + to_u64(i / UPDATES_PER_EPOCH));
            let whole = for_each_record(&payload, |record| {
                quick.add(at, &record).expect("an epoch of the run");
            });
            assert!(whole.is_some(), "a whole group");
        }
        epoch += to_u64((updates / runs).div_ceil(UPDATES_PER_EPOCH));
        let sorted = quick.cut(Epoch(epoch))?;
        let target = RunTarget {
            disk: Arc::clone(disk) as _,
            dir: String::new(),
            digest: Arc::clone(digest),
        };
        let run = sorted.write(target, UUID, 0, codec)?;
        let summary = run.run(&Moments::default(), &[Pos(0)])?;
        made.push(Arc::new(Run::open(disk.as_ref(), "", summary.id, &UUID)?));
    }
    Ok(made)
}

/// Fills `payload` with the group of one update, encoded as in the log.
fn update(payload: &mut Vec<u8>, page: PageId, useq: u32, offset: usize, xor: &[u8]) {
    payload.clear();
    encode_group_head(payload, CkptEpoch(9), 1);
    let mut body = Vec::new();
    FragmentWriter::new(&mut body).whole(offset, &vec![0; xor.len()], xor);
    let head = RecordHead {
        page,
        useq: Useq(useq),
        tag: CkptEpoch(9),
        fragments: 1,
    };
    encode_record_head(payload, CkptEpoch(9), &head);
    payload.extend_from_slice(&body);
}
