//! A heap with typed tables, and transactions on them.

use std::sync::Arc;

use perdura_base::{Error, PartitionSet, TableId};
use perdura_heap::{Geometry, Heap, MemoryAccount};
use perdura_table::{Abort, Cx, Homes, Procedure, Registry, Schema, Table, table};
use perdura_txn::{CommandCall, Executor, ExecutorOptions, Manner, Says, Sink, ValueForm};

table! {
    pub struct Account in "accounts", order = ordered {
        key(bank: u32, id: u64), owner: String, balance: i64, note: Vec<u8>;
        index by_owner(owner: String);
        index by_bank(bank: u32, balance: i64)
    }
}

table! {
    pub struct User in "users" {
        key(name: String), mail: String, age: Option<u8>
    }
}

table! {
    pub struct Seat in "seats" {
        key(room: u32, number: u32), guest: String, paid: bool;
        unique index by_guest(guest: String, room: u32)
    }
}

table! {
    pub struct Item in "items", replicated { key(id: u32), price: u32 }
}

table! {
    pub struct Job in "jobs", order = ordered { what: String, tries: u8 }
}

pub const PARTITIONS: u16 = 8;

pub struct World {
    pub heap: Arc<Heap>,
    pub registry: Registry,
    executor: Executor,
}

impl World {
    pub fn new(form: ValueForm) -> World {
        let geometry = Geometry {
            partitions: PARTITIONS,
            chunk_pages: 16,
            hash_seed: 5,
        };
        let heap = Arc::new(Heap::new(geometry, Arc::new(MemoryAccount::new(u64::MAX))));
        let options = ExecutorOptions {
            value_bytes_max: 1 << 20,
            value_form: form,
        };
        let mut world = World {
            registry: Registry::new(geometry, 9),
            executor: Executor::new(Arc::clone(&heap), Sink::Replay, options),
            heap,
        };
        for schema in [
            Account::schema(),
            User::schema(),
            Seat::schema(),
            Item::schema(),
            Job::schema(),
        ] {
            world.attach(schema);
        }
        world
    }

    fn attach(&mut self, schema: &Schema) {
        let next = u32::try_from(self.registry.tables().count()).expect("few") + 1;
        let id = TableId(next);
        for partition in PartitionSet::all(PARTITIONS).iter() {
            self.heap.lock(partition).attach_table(id, schema.form());
        }
        self.registry.add(id, schema.clone());
    }

    /// Runs `f` as one transaction. The first run of `f` holds no latches. So `f` usually runs again, with the latches
    /// that it needs.
    pub fn run<R, E: From<Error>>(
        &self,
        mut f: impl FnMut(&mut Cx<'_, '_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let manner = Manner::new(77, Says::Effects);
        let none = PartitionSet::empty();
        let done = self
            .executor
            .run_as(&none, &manner, |tx| f(&mut Cx::new(tx, &self.registry)));
        done.map(|(value, _)| value)
    }

    /// Calls a procedure with the partitions that it declares. Panics if the procedure uses another partition,
    /// because it would then run twice.
    pub fn call<P: Procedure>(&self, args: &P::Args) -> Result<P::Output, Abort> {
        self.call_as::<P>(args, Says::Effects)
    }

    /// Like [`call`](Self::call), for a call that is logged as a command.
    pub fn command<P: Procedure>(&self, args: &P::Args) -> Result<P::Output, Abort> {
        let call = CommandCall {
            procedure: 1,
            args: &[],
            strict: true,
        };
        self.call_as::<P>(args, Says::Command(call))
    }

    fn call_as<P: Procedure>(&self, args: &P::Args, says: Says<'_>) -> Result<P::Output, Abort> {
        let mut homes = Homes::new(self.registry.geometry());
        P::homes(args, &mut homes);
        let manner = Manner::new(77, says);
        let mut runs = 0;
        let done = self.executor.run_as(&homes.partitions(), &manner, |tx| {
            runs += 1;
            assert_eq!(runs, 1, "{} declares what it uses", P::NAME);
            P::run(&mut Cx::new(tx, &self.registry), args.clone())
        });
        done.map(|(value, _)| value)
    }

    /// Increases each partition's sequence number, as a commit does, so that the next transaction gets the next
    /// number.
    pub fn advance(&self) {
        for partition in PartitionSet::all(PARTITIONS).iter() {
            let mut part = self.heap.lock(partition);
            let sequence = part.pseq();
            part.set_pseq(sequence + 1);
        }
    }
}

pub fn account(bank: u32, id: u64, owner: &str, balance: i64) -> Account {
    Account {
        bank,
        id,
        owner: owner.into(),
        balance,
        note: Vec::new(),
    }
}
