//! The times of the heap's inner loops on one core, without log or disk, in nanoseconds per operation.
//!
//! `cargo run --release -p perdura-heap --example kernel [rows]`

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura_base::{CkptEpoch, ImageSlot, PartitionId, TableId};
use perdura_heap::{
    Geometry, GroupBuilder, Heap, MemoryAccount, MemoryUse, TableKey, Undo, Visit, decode_group,
};

const TABLE: TableId = TableId(1);
const VALUE_BYTES: usize = 100;

fn new_heap() -> Heap {
    let geometry = Geometry {
        partitions: 256,
        chunk_pages: 128,
        hash_seed: 7,
    };
    let heap = Heap::new(geometry, Arc::new(MemoryAccount::new(u64::MAX)));
    heap.set_ckpt_epoch(CkptEpoch(1));
    for p in partitions(&heap) {
        heap.lock(p).attach_table(TABLE, false);
    }
    heap
}

fn partitions(heap: &Heap) -> impl Iterator<Item = PartitionId> + use<> {
    (0..heap.geometry().partitions).map(PartitionId)
}

fn key(i: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let mut i = i;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(i % 10).unwrap_or(0);
        i /= 10;
    }
    key
}

fn report(what: &str, operations: u64, took: Duration) {
    let nanos = took.as_secs_f64() * 1e9;
    let each = nanos / f64::from(u32::try_from(operations).unwrap_or(u32::MAX));
    println!("{what:<34} {each:8.1} ns  {:8.2} M/s", 1e3 / each);
}

struct Writer {
    undo: Undo,
    group: GroupBuilder,
    value: [u8; VALUE_BYTES],
    rng: fastrand::Rng,
}

impl Writer {
    fn put(&mut self, heap: &Heap, i: u64) -> &[u8] {
        let key = key(i);
        let hash = heap.geometry().hash(&key);
        self.rng.fill(&mut self.value);
        self.undo.clear();
        self.group.clear();
        let mut part = heap.lock(heap.geometry().partition_of(hash));
        part.put(
            &mut self.undo,
            TableKey::new(TABLE, &key, hash),
            &self.value,
            None,
        )
        .expect("room");
        part.encode(&self.undo, &mut self.group);
        self.group.finish()
    }
}

fn main() {
    let rows: u64 = std::env::args()
        .nth(1)
        .and_then(|a| a.parse().ok())
        .unwrap_or(1_000_000);
    let heap = new_heap();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut writer = Writer {
        undo: Undo::new(),
        group: GroupBuilder::new(),
        value: [0; VALUE_BYTES],
        rng: fastrand::Rng::with_seed(2),
    };

    let start = Instant::now();
    for i in 0..rows {
        black_box(writer.put(&heap, i));
    }
    report("insert, with encode", rows, start.elapsed());
    let pages = heap.memory().get(MemoryUse::Pages);
    let indexes = heap.memory().get(MemoryUse::Indexes);
    println!(
        "memory per row: pages {} bytes, indexes {} bytes",
        pages / rows,
        indexes / rows
    );

    let start = Instant::now();
    for _ in 0..rows {
        let key = key(rng.u64(0..rows));
        let hash = heap.geometry().hash(&key);
        let part = heap.lock(heap.geometry().partition_of(hash));
        black_box(
            part.get(TABLE, &key, hash)
                .and_then(|row| row.value_slice()),
        );
    }
    report("get, random", rows, start.elapsed());

    let mut copies = Vec::new();
    let mut sidecars = Vec::new();
    for p in partitions(&heap) {
        let mut part = heap.lock(p);
        for local in 0..part.pages() {
            if let Visit::Dirty(bytes) = part.visit(local, ImageSlot::A, CkptEpoch(2)) {
                copies.push((p, local, bytes.to_vec()));
            }
        }
        let mut sidecar = Vec::new();
        part.sidecar(&mut sidecar);
        sidecars.push((p, sidecar));
    }
    heap.set_ckpt_epoch(CkptEpoch(2));

    let mut bytes = 0;
    let start = Instant::now();
    for _ in 0..rows {
        bytes += black_box(writer.put(&heap, rng.u64(0..rows))).len();
    }
    report("overwrite, random, with encode", rows, start.elapsed());
    println!(
        "group bytes per overwrite: {}",
        u64::try_from(bytes).unwrap_or(0) / rows
    );

    let groups: Vec<Vec<u8>> = (0..rows / 4)
        .map(|_| writer.put(&heap, rng.u64(0..rows)).to_vec())
        .collect();

    let restarted = new_heap();
    let start = Instant::now();
    for (p, local, bytes) in &copies {
        restarted.lock(*p).load_page(*local, bytes);
    }
    report(
        "load_page",
        u64::try_from(copies.len()).unwrap_or(0),
        start.elapsed(),
    );

    let start = Instant::now();
    for (p, sidecar) in &sidecars {
        let sidecar = restarted.read_sidecar(*p, sidecar);
        let built = restarted
            .lock(*p)
            .build_indexes(&|_| Some(false.into()), Some(sidecar));
        assert!(!built.expect("sound pages").sidecar_refused);
    }
    report("index row, from sidecar", rows, start.elapsed());
    let loaded: u64 = partitions(&restarted)
        .map(|p| restarted.lock(p).len(TABLE))
        .sum();
    assert_eq!(loaded, rows);

    let start = Instant::now();
    for p in partitions(&restarted) {
        restarted
            .lock(p)
            .build_indexes(&|_| Some(false.into()), None)
            .expect("sound pages");
    }
    report("index row, from rows", rows, start.elapsed());

    let start = Instant::now();
    for group in &groups {
        for record in decode_group(group).expect("a group").records() {
            let p = restarted.geometry().partition_of_page(record.page);
            restarted
                .lock(p)
                .apply(&record)
                .expect("a page of this heap");
        }
    }
    report("apply, with decode and latch", rows / 4, start.elapsed());
}
