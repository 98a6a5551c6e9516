//! The cost of a transaction on typed tables in the heap, on one core, without log or disk. Each transaction changes a
//! few columns of ten rows and inserts twelve rows into an ordered table, as a new-order transaction does.
//!
//! `cargo run --release -p perdura-heap --example typed [transactions]`

use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura_base::{CkptEpoch, PartitionId, TableId};
use perdura_heap::{
    Derive, Geometry, GroupBuilder, Heap, MemoryAccount, Partition, TableForm, TableKey, Undo,
    Which,
};

const STOCK: TableId = TableId(1);
const LINES: TableId = TableId(2);
const ORDERS: TableId = TableId(3);
const STOCK_ROWS: u32 = 100_000;
const STOCK_BYTES: usize = 310;
const CHANGED: u32 = 10;
const PUT: u32 = 11;

/// An index of orders by customer. The customer is in the first four bytes of the value.
#[derive(Debug)]
struct ByCustomer;

impl Derive for ByCustomer {
    fn indexes(&self) -> usize {
        1
    }

    fn index_key(&self, _: usize, _: &[u8], value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&value[..4]);
    }
}

/// The heap and the state of the benchmark. `took` has the total time of each of the four steps of a transaction.
struct Bench {
    heap: Heap,
    undo: Undo,
    group: GroupBuilder,
    rng: fastrand::Rng,
    took: [Duration; 4],
}

fn key(table: u32, order: u32, line: u32) -> [u8; 12] {
    let mut key = [0; 12];
    for (at, number) in key.chunks_mut(4).zip([table, order, line]) {
        at.copy_from_slice(&number.to_be_bytes());
    }
    key
}

impl Bench {
    fn transaction(&mut self, order: u32) {
        let id = PartitionId(0);
        let geometry = *self.heap.geometry();
        let mut part = self.heap.lock(id);
        let part: &mut Partition = &mut part;
        self.undo.clear();
        self.group.clear();
        let start = Instant::now();
        for _ in 0..CHANGED {
            let key = key(1, self.rng.u32(0..STOCK_ROWS), 0);
            let hash = geometry.hash_in(id, &key);
            let row = part.get(STOCK, &key, hash).expect("a row");
            let mut value = [0; STOCK_BYTES];
            value.copy_from_slice(row.value_slice().expect("a row in its slot"));
            value[8] = value[8].wrapping_add(1);
            value[16] = value[16].wrapping_add(3);
            value[24] = value[24].wrapping_add(1);
            let found = part.overwrite(&mut self.undo, TableKey::new(STOCK, &key, hash), &value);
            assert!(found.expect("no room is needed"));
        }
        let overwritten = Instant::now();
        for line in 0..PUT {
            let key = key(1, order, line);
            let hash = geometry.hash_in(id, &key);
            part.put(
                &mut self.undo,
                TableKey::new(LINES, &key, hash),
                &[7; 60],
                None,
            )
            .expect("room");
        }
        let put = Instant::now();
        let key = key(1, order, 0);
        let mut value = [0; 24];
        value[..4].copy_from_slice(&self.rng.u32(0..30_000).to_be_bytes());
        let hash = geometry.hash_in(id, &key);
        part.put(
            &mut self.undo,
            TableKey::new(ORDERS, &key, hash),
            &value,
            None,
        )
        .expect("room");
        let ordered = Instant::now();
        part.encode(&self.undo, &mut self.group);
        let encoded = Instant::now();
        let times = [start, overwritten, put, ordered, encoded];
        for (took, pair) in self.took.iter_mut().zip(times.windows(2)) {
            *took += pair[1] - pair[0];
        }
    }
}

fn main() {
    let transactions: u32 = std::env::args()
        .nth(1)
        .and_then(|a| a.parse().ok())
        .unwrap_or(100_000);
    for keyed in [true, false] {
        let geometry = Geometry {
            partitions: 1,
            chunk_pages: 128,
            hash_seed: 7,
        };
        let heap = Heap::new(geometry, Arc::new(MemoryAccount::new(u64::MAX)));
        heap.set_ckpt_epoch(CkptEpoch(1));
        let plain = TableForm {
            ordered: false,
            keyed,
            placed: true,
            derive: None,
        };
        let ordered = TableForm {
            ordered: true,
            ..plain.clone()
        };
        let by_customer = TableForm {
            derive: Some(Arc::new(ByCustomer)),
            ..ordered.clone()
        };
        let mut part = heap.lock(PartitionId(0));
        part.attach_table(STOCK, plain);
        part.attach_table(LINES, ordered);
        part.attach_table(ORDERS, by_customer);
        let mut undo = Undo::new();
        for row in 0..STOCK_ROWS {
            let key = key(1, row, 0);
            let hash = geometry.hash_in(PartitionId(0), &key);
            part.put(
                &mut undo,
                TableKey::new(STOCK, &key, hash),
                &[5; STOCK_BYTES],
                None,
            )
            .expect("room");
            undo.clear();
        }
        drop(part);
        let mut bench = Bench {
            heap,
            undo,
            group: GroupBuilder::new(),
            rng: fastrand::Rng::with_seed(1),
            took: [Duration::ZERO; 4],
        };
        for order in 0..transactions {
            bench.transaction(order);
        }
        let part = bench.heap.lock(PartitionId(0));
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let rows = part.rows(ORDERS, Which::Secondary(0), low, high).count();
        assert_eq!(u32::try_from(rows), Ok(transactions));
        println!(
            "{}",
            if keyed {
                "keys are logged"
            } else {
                "pages are logged"
            }
        );
        let counts = [CHANGED, PUT, 1, 1];
        let verbs = [
            "overwrite, 310 bytes",
            "put, ordered",
            "put, ordered, indexed",
            "encode",
        ];
        for ((verb, count), took) in verbs.iter().zip(counts).zip(bench.took) {
            let each = took.as_secs_f64() * 1e9 / f64::from(transactions) / f64::from(count);
            println!("{verb:<24} {each:8.1} ns, {count} of them");
        }
        let all: Duration = bench.took.iter().sum();
        let each = all.as_secs_f64() * 1e6 / f64::from(transactions);
        println!("{:<24} {each:8.2} us", "a transaction");
    }
}
