//! Measures the time of verbs (`get`, `edit` ...) on a wide row. Run it by
//! `cargo run --release -p perdura-table --example verb_cost`.

use std::sync::Arc;
use std::time::Instant;

use perdura_base::{Error, PartitionId, PartitionSet, TableId};
use perdura_heap::{Geometry, Heap, MemoryAccount};
use perdura_table::{Cx, Registry, Table, table};
use perdura_txn::{CommandCall, Executor, ExecutorOptions, Manner, Says, Sink, ValueForm};

table! {
    struct Customer in "customers", order = ordered {
        key(warehouse: u16, district: u8, id: u32),
        balance: i64, paid: i64, discount: u32, payments: u16, deliveries: u16, since: u64,
        credit: [u8; 2], state: [u8; 2], zip: [u8; 9], phone: [u8; 16],
        first: String, middle: String, last: String, street: String, city: String, data: String;
        index by_last(warehouse: u16, district: u8, last: String, first: String)
    }
}

const ROWS: u32 = 30_000;
const VERBS: u32 = 1_000_000;

fn customer(id: u32) -> Customer {
    Customer {
        warehouse: 1,
        district: 1,
        id,
        balance: -1000,
        paid: 1000,
        discount: 5,
        payments: 1,
        deliveries: 0,
        since: 0,
        credit: *b"GC",
        state: *b"NY",
        zip: *b"123456789",
        phone: *b"0123456789abcdef",
        first: format!("first name {}", id % 1000),
        middle: "OE".into(),
        last: format!("LAST{}", id % 1000),
        street: "a street of some length".into(),
        city: "a city".into(),
        data: "x".repeat(400),
    }
}

/// The number of verbs in one transaction.
const VERBS_EACH: u32 = 20;

struct World {
    executor: Executor,
    registry: Registry,
}

impl World {
    fn run(&self, mut f: impl FnMut(&mut Cx<'_, '_>) -> Result<(), Error>) -> Result<(), Error> {
        // The transactions run as commands, so that effects are noted and hashed.
        let call = CommandCall {
            procedure: 1,
            args: &[],
            strict: true,
        };
        let manner = Manner::new(0, Says::Command(call));
        let done = self.executor.run_as(&PartitionSet::all(1), &manner, |tx| {
            f(&mut Cx::new(tx, &self.registry))
        })?;
        let ((), _durable_at_once) = done;
        Ok(())
    }

    fn measure(&self, name: &str, mut verb: impl FnMut(&mut Cx<'_, '_>, u32)) -> Result<(), Error> {
        let begun = Instant::now();
        let mut id = 1u32;
        for _ in 0..VERBS / VERBS_EACH {
            self.run(|cx| {
                for _ in 0..VERBS_EACH {
                    id = id.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    verb(cx, (id >> 8) % ROWS);
                }
                Ok(())
            })?;
        }
        let nanos = begun.elapsed().as_nanos() / u128::from(VERBS);
        println!("{name:24} {nanos} ns");
        Ok(())
    }
}

fn main() -> Result<(), Error> {
    let geometry = Geometry {
        partitions: 1,
        chunk_pages: 128,
        hash_seed: 5,
    };
    let heap = Arc::new(Heap::new(geometry, Arc::new(MemoryAccount::new(u64::MAX))));
    let options = ExecutorOptions {
        value_bytes_max: 1 << 20,
        value_form: ValueForm::Columns,
    };
    let mut registry = Registry::new(geometry, 1);
    let schema = Customer::schema();
    heap.lock(PartitionId(0))
        .attach_table(TableId(1), schema.form());
    registry.add(TableId(1), schema.clone());
    let world = World {
        executor: Executor::new(heap, Sink::Replay, options),
        registry,
    };
    world.run(|cx| (0..ROWS).try_for_each(|id| cx.insert(&customer(id))))?;
    world.measure("get", |cx, id| {
        assert!(
            cx.get::<Customer>((1, 1, id))
                .is_ok_and(|row| row.is_some())
        );
    })?;
    world.measure("view, two columns", |cx, id| {
        let row = cx
            .view::<Customer>((1, 1, id))
            .expect("latched")
            .expect("there");
        let (balance, last) = (row.get(Customer::balance), row.get(Customer::last));
        assert!(balance.is_ok() && last.is_ok_and(|last| !last.is_empty()));
    })?;
    world.measure("edit, two columns", |cx, id| {
        let done = cx.edit::<Customer>((1, 1, id), |row| {
            let balance = row.get(Customer::balance)?;
            row.set(Customer::balance, balance + 1);
            row.set(Customer::payments, 7);
            Ok(())
        });
        assert!(done.is_ok());
    })?;
    world.measure("modify", |cx, id| {
        let done = cx.modify::<Customer>((1, 1, id), |row| row.balance += 1);
        assert!(done.is_ok());
    })?;
    world.measure("by, first view", |cx, id| {
        let last = format!("LAST{}", id % 1000);
        let rows = cx.by(Customer::by_last, (1, 1, last.as_str()));
        assert!(rows.views().first().is_ok_and(|row| row.is_some()));
    })?;
    world.measure("range, ten views", |cx, id| {
        let rows = cx.range::<Customer>((1, 1, id)..(1, 1, id + 10)).views();
        assert!(rows.count().is_ok_and(|count| count > 0));
    })?;
    Ok(())
}
