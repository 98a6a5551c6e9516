//! The speed of playing log records from memory on one core, in million records a second. The speed includes checksum,
//! decoding and latches. Each record changes 256 bytes of a random page. A plain loop that makes the same changes is
//! measured for comparison.
//!
//! `cargo run --release -p perdura-heap --example play [records] [pages] [rounds]`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use perdura_base::{CkptEpoch, PageId, Useq};
use perdura_heap::{Batch, Geometry, Heap, MemoryAccount, PageRecord, decode_group};
use perdura_page::diff::FragmentWriter;
use perdura_page::layout::PAGE_BYTES;
use perdura_page::record::{RecordHead, encode_group_head, encode_record_head};

const DIFFERENCE: usize = 256;
const RECORDS_PER_GROUP: usize = 2;
const UNIT_BYTES: usize = 1 << 18;

fn new_heap(pages: u32) -> Heap {
    let geometry = Geometry {
        partitions: 256,
        chunk_pages: 128,
        hash_seed: 7,
    };
    let heap = Heap::new(geometry, Arc::new(MemoryAccount::new(u64::MAX)));
    let page = vec![1; PAGE_BYTES];
    for id in (0..pages).map(PageId) {
        let local = geometry.local_index(id);
        heap.lock(geometry.partition_of_page(id))
            .load_page(local, &page);
    }
    heap
}

/// A unit of log. `bytes` has the payloads of the groups, one after another. `ends` has the end offset of each payload.
#[derive(Default)]
struct Unit {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Unit {
    /// Computes the checksum of the bytes, as a read of a block from disk does.
    fn check(&self) {
        black_box(perdura_base::checksum::crc32c(&self.bytes));
    }

    fn groups(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(from, to)| &self.bytes[from..*to])
    }
}

struct Change {
    page: PageId,
    offset: usize,
    bytes: [u8; DIFFERENCE],
}

fn write_log(changes: &[Change], pages: usize) -> Vec<Unit> {
    let mut useq = vec![0u32; pages];
    let mut units = vec![Unit::default()];
    for pair in changes.chunks(RECORDS_PER_GROUP) {
        if units.last().is_none_or(|u| u.bytes.len() > UNIT_BYTES) {
            units.push(Unit::default());
        }
        let unit = units.last_mut().expect("pushed");
        encode_group_head(&mut unit.bytes, CkptEpoch(2), pair.len());
        for change in pair {
            let number = &mut useq[usize::try_from(change.page.0).expect("a page")];
            *number += 1;
            let head = RecordHead {
                page: change.page,
                useq: Useq(*number),
                tag: CkptEpoch(2),
                fragments: 1,
            };
            encode_record_head(&mut unit.bytes, CkptEpoch(2), &head);
            let mut writer = FragmentWriter::new(&mut unit.bytes);
            writer.range(change.offset, &[0; DIFFERENCE], &change.bytes);
        }
        unit.ends.push(unit.bytes.len());
    }
    units
}

fn one_by_one(heap: &Heap, units: &[Unit]) {
    for group in units.iter().inspect(|u| u.check()).flat_map(Unit::groups) {
        for record in decode_group(group).expect("a group").records() {
            let p = heap.geometry().partition_of_page(record.page);
            heap.lock(p).apply(&record).expect("a page of this heap");
        }
    }
}

fn batched(heap: &Heap, units: &[Unit]) {
    let mut batch: Batch<PageRecord<'_>> = Batch::new();
    for unit in units {
        unit.check();
        for group in unit.groups() {
            let group = decode_group(group).expect("a group");
            group
                .records()
                .for_each(|record| batch.push(heap.geometry(), record));
        }
        batch.play(heap).expect("pages of this heap");
    }
}

fn plain(pages: &mut [u8], changes: &[Change]) {
    for change in changes {
        let at = usize::try_from(change.page.0).expect("a page") * PAGE_BYTES + change.offset;
        let target = &mut pages[at..at + DIFFERENCE];
        target
            .iter_mut()
            .zip(&change.bytes)
            .for_each(|(t, b)| *t ^= b);
    }
}

fn main() {
    let argument = |n: usize, default: usize| {
        let given = std::env::args().nth(n);
        given.and_then(|a| a.parse().ok()).unwrap_or(default)
    };
    let (records, pages) = (argument(1, 1_200_000), argument(2, 19_200));
    let mut rng = fastrand::Rng::with_seed(3);
    let changes: Vec<Change> = (0..records)
        .map(|_| Change {
            page: PageId(rng.u32(0..u32::try_from(pages).expect("pages"))),
            offset: rng.usize(64..PAGE_BYTES - DIFFERENCE),
            bytes: std::array::from_fn(|_| rng.u8(1..)),
        })
        .collect();
    let units = write_log(&changes, pages);
    let heap = new_heap(u32::try_from(pages).expect("pages"));
    let mut bare = vec![1; pages * PAGE_BYTES];
    println!(
        "{records} records, {pages} pages, {} units of log",
        units.len()
    );
    for _ in 0..argument(3, 3) {
        let rate = |what: &str, work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            let took = start.elapsed().as_secs_f64();
            let each = f64::from(u32::try_from(records).unwrap_or(u32::MAX));
            println!("{what:<46} {:6.2} M/s", each / took / 1e6);
        };
        rate("a plain loop", &mut || {
            plain(black_box(&mut bare), &changes)
        });
        rate("one by one, with checksum, decode and latch", &mut || {
            one_by_one(&heap, &units);
        });
        rate("batches, with checksum, decode and latch", &mut || {
            batched(&heap, &units);
        });
    }
}
