//! The steps of a life: the client's transactions and all background work.

mod draft;
mod scan;
mod script;
mod snapshot;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use perdura::{Error, PartitionSet, Renewal, Ticket};
use perdura_device::Clock;

use crate::model::{Change, Place, Row};
use crate::ops::{self, Op, View, key_bytes, perform};
use crate::over_core::Promise;
use crate::report::Check;
use crate::world::World;

pub(crate) use snapshot::Reading;

/// The payload of the panic by which a client abandons its transaction. The panic hook does not print this panic.
struct ChangedMind;

impl World {
    /// Does one step. Chooses the kind of step at random, by the run's odds.
    pub(crate) fn draw_step(&mut self) -> Check {
        let odds = self.swarm.odds.all();
        match self.machine.draw_kind(&odds) {
            0 if self.swarm.scripts > 0 && self.script_rng.u8(0..100) < self.swarm.scripts => {
                self.transact_script()
            }
            0 => self.transact(true),
            1 => self.transact(false),
            2 => {
                self.close();
                Ok(())
            }
            3 => self.flush_one(),
            4 => self.checkpoint_begin(),
            5 => self.checkpoint_steps(),
            6 => {
                let stream = self.draw_stream();
                self.prepare(stream)
            }
            7 => self.purge(),
            8 => {
                self.core().wal().append_beacon();
                Ok(())
            }
            9 => self.empty(),
            10 => self.scan_step(),
            11 => {
                self.move_clock();
                Ok(())
            }
            12 => self.vouch(),
            13 => self.draft_step(),
            _ => self.snapshot_step(),
        }
    }

    fn draw_ops(&mut self, writes: bool) -> Vec<Op> {
        let now_ms = self.clock.wall_us() / 1000;
        let (rng, swarm, live) = (&mut self.machine.rng, &self.swarm, self.model.live());
        let count = rng.usize(1..=5).min(rng.usize(1..=5));
        (0..count)
            .map(|_| ops::draw(rng, swarm, live, now_ms, writes))
            .collect()
    }

    fn declare(&self, ops: &[Op]) -> PartitionSet {
        let core = self.core();
        // In some runs a transaction declares only its first operation. If it then touches an undeclared partition,
        // the engine undoes and repeats it. A transaction never declares the partition that holds the elements of a
        // renamed collection.
        let careless = self.seed.is_multiple_of(3);
        let mut parts = PartitionSet::empty();
        for op in if careless { &ops[..1] } else { ops } {
            let Some(places) = op.places() else {
                return core.all_partitions();
            };
            for place in places {
                parts.insert(core.partition_of(&key_bytes(place.1)));
            }
        }
        parts
    }

    /// Runs a transaction of the client. Sometimes the client abandons it.
    fn transact(&mut self, writes: bool) -> Check {
        let ops = self.draw_ops(writes);
        let gives_up = writes && self.rng.u8(0..12) == 0;
        self.transact_ops(&ops, gives_up)
    }

    /// Runs the operations as one transaction, and compares their replies with the model. The client abandons the
    /// transaction if `gives_up`.
    pub(crate) fn transact_ops(&mut self, ops: &[Op], gives_up: bool) -> Check {
        let parts = self.declare(ops);
        let now_ms = self.clock.wall_us() / 1000;
        let core = self.machine.engine();
        let scratch = &mut self.scratch;
        let live = self.model.live();
        let mut changes = Vec::new();
        let renews = |op: &Op| matches!(op, Op::Flush(_) | Op::Swap(..));
        let renews = ops.iter().any(renews);
        // A flush or a swap makes the engine itself work on partitions. A panic then would stop the database, so the
        // client does not panic.
        let panics = gives_up && !renews && ops.len() % 2 == 1;
        let transaction = || {
            core.transact(&parts, |tx| {
                let mut view = View::new(live, now_ms);
                let mut renewal = Renewal::default();
                let check = perform(core, tx, ops, &mut view, scratch, &mut renewal)?;
                if panics {
                    resume_unwind(Box::new(ChangedMind));
                }
                if gives_up {
                    return Err(Error::Usage("the client has changed its mind".into()));
                }
                changes = view.changes();
                let flushed = match renews {
                    true => Some(core.finish_flush(tx, &renewal)?),
                    false => None,
                };
                Ok((check, flushed))
            })
        };
        let result = match catch_unwind(AssertUnwindSafe(transaction)) {
            Ok(result) => result,
            Err(panic) if panic.is::<ChangedMind>() => return Ok(()),
            Err(panic) => resume_unwind(panic),
        };
        match result {
            Ok(((check, flushed), ticket)) => {
                check?;
                if let Some(flushed) = flushed {
                    core.reclaim_flushed(flushed);
                }
                self.committed(ops, changes, ticket, now_ms);
                Ok(())
            }
            Err(Error::Usage(_)) if gives_up => Ok(()),
            Err(error) => self.tolerate("transact", &error),
        }
    }

    /// Returns the newest epoch that the reply to an operation depends on. The transaction's own writes do not count.
    fn needs(&self, op: &Op, now_ms: u64) -> u64 {
        let Some(places) = op.places() else {
            return self.model.newest();
        };
        let of = |place: &Place| {
            // A command that finds no key, or a key of another type, reads only the key's row. It reads no element.
            let row = self.model.live().get(place);
            let row = row.filter(|row| row.is_visible(now_ms));
            let reads = row.is_some_and(|row| match op {
                Op::Get(_) => true,
                Op::Edit(_, edit) => row.value.shape() == Some(edit.shape()),
                _ => false,
            });
            if reads {
                self.model.written(*place)
            } else {
                self.model.headed(*place)
            }
        };
        places.iter().take(1).map(of).max().unwrap_or(0)
    }

    pub(crate) fn committed(
        &mut self,
        ops: &[Op],
        changes: Vec<Change>,
        ticket: Ticket,
        now_ms: u64,
    ) {
        let mut needs = ops
            .iter()
            .map(|op| self.needs(op, now_ms))
            .max()
            .unwrap_or(0);
        if !changes.is_empty() {
            needs = needs.max(ticket.epoch.0);
            self.commit(ticket.epoch.0, changes);
        }
        let current = self.core().wal().current().0;
        assert!(
            needs.max(ticket.epoch.0) <= current,
            "a ticket of epoch {} for what epoch {needs} wrote, and {current} is open",
            ticket.epoch
        );
        let ticket = ticket.epoch.0;
        self.promise(ticket, Promise { ticket, needs });
    }

    /// Takes a step of the client of the typed table.
    pub(crate) fn ledger_step(&mut self) -> Check {
        let (Some(ledger), Some(core)) = (&mut self.ledger, &self.machine.engine) else {
            return Ok(());
        };
        let (done, changes) = ledger.step(core, self.model.ledger());
        match done {
            Ok(ticket) => {
                self.committed(&[], changes, ticket, 0);
                Ok(())
            }
            Err(error) => self.tolerate("a typed call", &error),
        }
    }

    fn commit(&mut self, epoch: u64, changes: Vec<Change>) {
        if let Some(scan) = &mut self.scan {
            scan.note(&changes);
        }
        self.model.commit(epoch, changes);
    }

    fn empty(&mut self) -> Check {
        let database =
            (self.rng.u8(0..4) > 0).then(|| self.machine.rng.u8(0..self.swarm.databases));
        match self.core().flush_database(database) {
            Ok(ticket) => {
                self.committed(&[], vec![Change::Flush(database)], ticket, 0);
                Ok(())
            }
            Err(error) => self.tolerate("flush_database", &error),
        }
    }

    /// Purges the expired rows of one partition. The next call purges the next partition.
    pub(crate) fn purge(&mut self) -> Check {
        if !self.core().is_loaded() {
            // The purge waits until all partitions are loaded.
            return match self.core().load_next() {
                Ok(_) => Ok(()),
                Err(error) => self.tolerate("load_next", &error),
            };
        }
        let partitions = u64::from(self.swarm.options.partitions);
        let now_ms = self.clock.wall_us() / 1000;
        let core = self.core();
        let epoch = core.wal().current().0;
        let result = core.purge_step();
        let turn = self.purge_turn % partitions;
        self.purge_turn += 1;
        if let Err(error) = result {
            return self.tolerate("purge_step", &error);
        }
        let due = |row: &Row| row.expiry_ms.is_some_and(|ms| ms <= now_ms);
        let core = self.core();
        let here = |key: u8| u64::from(core.partition_of(&key_bytes(key)).0) == turn;
        let gone = self
            .model
            .live()
            .iter()
            .filter(|(place, row)| due(row) && here(place.1));
        let changes: Vec<Change> = gone.map(|(place, _)| Change::Delete(*place)).collect();
        if !changes.is_empty() {
            self.commit(epoch, changes);
        }
        Ok(())
    }
}
