//! What a step of a life does: the client's transactions, and every piece of background work.

use std::collections::BTreeMap;

use fastrand::Rng;
use perdura::{Abort, CheckpointProgress, Core, Error, PartitionSet, Ticket, Tx};
use perdura_base::StreamId;
use perdura_device::Clock;
use perdura_wal::FlushProgress;

use crate::content::Content;
use crate::model::{Change, Place, Row, State};
use crate::swarm::Swarm;
use crate::world::{Check, Promise, World};

/// One operation of a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Get(Place),
    Put(Place, Row),
    Delete(Place),
    Expire(Place, Option<u64>),
    Count(u8),
}

/// The bytes of a key; some are long.
pub(crate) fn key_bytes(key: u8) -> Vec<u8> {
    let mut bytes = format!("key{key}").into_bytes();
    if key % 7 == 6 {
        bytes.resize(300, b'.');
    }
    bytes
}

/// The number of a key, from its bytes.
pub(crate) fn key_number(bytes: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(bytes).ok()?;
    let key = text
        .strip_prefix("key")?
        .trim_end_matches('.')
        .parse()
        .ok()?;
    (key_bytes(key) == bytes).then_some(key)
}

/// Rows as a transaction sees them while it runs: the committed ones under its own changes.
struct View<'a> {
    live: &'a State,
    own: BTreeMap<Place, Option<Row>>,
    now_ms: u64,
}

impl View<'_> {
    fn stored(&self, place: Place) -> Option<Row> {
        self.own
            .get(&place)
            .copied()
            .unwrap_or_else(|| self.live.get(&place).copied())
    }

    fn visible(&self, place: Place) -> Option<Row> {
        self.stored(place)
            .filter(|row| row.expiry_ms.is_none_or(|ms| ms > self.now_ms))
    }

    fn put(&mut self, place: Place, row: Row) {
        self.own.insert(place, Some(row));
    }

    fn delete(&mut self, place: Place) {
        if self.stored(place).is_some() {
            self.own.insert(place, None);
        }
    }

    /// What is different in the end: a row put and deleted again was never written, and nobody
    /// has to wait for it.
    fn changes(&self) -> Vec<Change> {
        let changed = self
            .own
            .iter()
            .filter(|(place, row)| self.live.get(place) != row.as_ref());
        let change = |(place, row): (&Place, &Option<Row>)| match row {
            Some(row) => Change::Put(*place, *row),
            None => Change::Delete(*place),
        };
        changed.map(change).collect()
    }

    fn count(&self, database: u8) -> usize {
        let untouched = self
            .live
            .keys()
            .filter(|p| p.0 == database && !self.own.contains_key(*p));
        let own = self
            .own
            .iter()
            .filter(|(p, row)| p.0 == database && row.is_some());
        untouched.count() + own.count()
    }
}

/// Runs the operations, holding every reply against the model. The inner error is a contradiction.
fn perform(
    core: &Core,
    tx: &mut Tx<'_>,
    ops: &[Op],
    view: &mut View<'_>,
    scratch: &mut Vec<u8>,
) -> Result<Check, Abort> {
    for op in ops {
        let wrong = match *op {
            Op::Get(place) => {
                let expected = view.visible(place);
                let row = tx.get(core.database(place.0), &key_bytes(place.1))?;
                let same = match (row, expected) {
                    (None, None) => true,
                    (Some(row), Some(expected)) => {
                        scratch.clear();
                        row.copy_value(scratch);
                        row.value_len() == expected.value.len
                            && expected.value.matches(scratch)
                            && row.expiry_ms() == expected.expiry_ms
                    }
                    _ => false,
                };
                (!same).then_some("a read differs from the model")
            }
            Op::Put(place, row) => {
                row.value.fill(scratch);
                tx.put(
                    core.database(place.0),
                    &key_bytes(place.1),
                    scratch,
                    row.expiry_ms,
                )?;
                view.put(place, row);
                None
            }
            Op::Delete(place) => {
                let was_there = tx.delete(core.database(place.0), &key_bytes(place.1))?;
                let wrong = was_there != view.visible(place).is_some();
                view.delete(place);
                wrong.then_some("a delete differs from the model")
            }
            Op::Expire(place, expiry_ms) => {
                let key = key_bytes(place.1);
                let was_there = tx.set_expiry(core.database(place.0), &key, expiry_ms)?;
                let row = view.visible(place);
                if let Some(row) = row {
                    view.put(place, Row { expiry_ms, ..row });
                }
                (was_there != row.is_some()).then_some("an expiry differs from the model")
            }
            Op::Count(database) => {
                let count = tx.len(core.database(database))?;
                let wrong = usize::try_from(count).ok() != Some(view.count(database));
                wrong.then_some("a count differs from the model")
            }
        };
        if let Some(wrong) = wrong {
            return Ok(Err(format!("{wrong}: {op:?}")));
        }
    }
    Ok(Ok(()))
}

fn draw_place(rng: &mut Rng, swarm: &Swarm) -> Place {
    (rng.u8(0..swarm.databases), rng.u8(0..swarm.keys))
}

fn draw_row(rng: &mut Rng, swarm: &Swarm, now_ms: u64) -> Row {
    let kind = rng.u8(0..100);
    let len = if kind < swarm.large {
        rng.usize(16_000..40_000)
    } else if kind < swarm.large + swarm.medium {
        rng.usize(200..6000)
    } else {
        rng.usize(0..120)
    };
    let expires = rng.u8(0..100) < swarm.expiry;
    let expiry_ms = expires.then(|| now_ms + rng.u64(0..3000));
    Row {
        value: Content {
            seed: rng.u64(..),
            len,
        },
        expiry_ms,
    }
}

impl World {
    /// Takes one step, drawn by the run's odds.
    pub(crate) fn step(&mut self) -> Check {
        let odds = self.swarm.odds.all();
        let mut at = self.rng.u32(0..odds.iter().sum());
        let mut kind = 0;
        while at >= odds[kind] {
            at -= odds[kind];
            kind += 1;
        }
        self.note(u64::try_from(kind).unwrap_or(0));
        match kind {
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
                let stream = StreamId(self.rng.u8(0..self.swarm.streams));
                match self.core().wal().prepare_segment(stream, &|| {}) {
                    Ok(_) => Ok(()),
                    Err(error) => self.tolerate("prepare_segment", &error),
                }
            }
            7 => self.purge(),
            8 => {
                self.core().wal().append_beacon();
                Ok(())
            }
            9 => self.empty(),
            _ => {
                self.move_clock();
                Ok(())
            }
        }
    }

    /// Closes the epoch, or takes a part of closing it.
    fn close(&mut self) {
        let stream = StreamId(self.rng.u8(0..self.swarm.streams));
        let part = self.rng.u8(0..4);
        let core = self.core();
        match part {
            0 => drop(core.wal().close_begin()),
            1 => core.wal().close_visit(stream),
            _ => drop(core.close_epoch()),
        }
    }

    fn move_clock(&mut self) {
        if self.rng.u8(0..4) > 0 {
            self.clock.advance_us(self.rng.u64(0..2_000_000));
        } else {
            let now = self.clock.wall_us();
            let (back, ahead) = (now - 60_000_000, now + 60_000_000);
            self.clock.set_wall_us(self.rng.u64(back..ahead));
        }
    }

    fn draw_ops(&mut self, writes: bool) -> Vec<Op> {
        let now_ms = self.clock.wall_us() / 1000;
        let (rng, swarm) = (&mut self.rng, &self.swarm);
        let count = rng.usize(1..=5).min(rng.usize(1..=5));
        let draw = |_| {
            let place = draw_place(rng, swarm);
            match rng.u8(0..if writes { 20 } else { 4 }) {
                0..=2 => Op::Get(place),
                3 if rng.u8(0..4) == 0 => Op::Count(place.0),
                3..=14 if writes => Op::Put(place, draw_row(rng, swarm, now_ms)),
                15..=17 => Op::Delete(place),
                18 | 19 if swarm.expiry > 0 => {
                    Op::Expire(place, rng.bool().then(|| now_ms + rng.u64(0..3000)))
                }
                _ if writes => Op::Delete(place),
                _ => Op::Get(place),
            }
        };
        (0..count).map(draw).collect()
    }

    fn declare(&self, ops: &[Op]) -> PartitionSet {
        let core = self.core();
        // A partition that is not declared makes the engine undo and run again.
        let careless = self.seed.is_multiple_of(3);
        let ops = if careless { &ops[..1] } else { ops };
        let of = |op: &Op| match op {
            Op::Get(place) | Op::Put(place, _) | Op::Delete(place) | Op::Expire(place, _) => {
                Some(core.partition_of(&key_bytes(place.1)))
            }
            Op::Count(_) => None,
        };
        if ops.iter().any(|op| of(op).is_none()) {
            return core.all_partitions();
        }
        ops.iter().filter_map(of).collect()
    }

    /// A transaction of the client; some change their mind.
    fn transact(&mut self, writes: bool) -> Check {
        let ops = self.draw_ops(writes);
        let gives_up = writes && self.rng.u8(0..12) == 0;
        self.transact_ops(&ops, gives_up)
    }

    /// Runs operations as one transaction, against the model.
    pub(crate) fn transact_ops(&mut self, ops: &[Op], gives_up: bool) -> Check {
        let parts = self.declare(ops);
        let now_ms = self.clock.wall_us() / 1000;
        let core = self.core.as_ref().expect("open");
        let scratch = &mut self.scratch;
        let live = self.model.live();
        let mut changes = Vec::new();
        let result = core.transact(&parts, |tx| {
            let mut view = View {
                live,
                own: BTreeMap::new(),
                now_ms,
            };
            let check = perform(core, tx, ops, &mut view, scratch)?;
            if gives_up {
                return Err(Abort::User);
            }
            changes = view.changes();
            Ok(check)
        });
        match result {
            Ok((check, ticket)) => {
                check?;
                self.committed(ops, changes, ticket);
                Ok(())
            }
            Err(Error::Usage(_)) if gives_up => Ok(()),
            Err(error) => self.tolerate("transact", &error),
        }
    }

    fn committed(&mut self, ops: &[Op], changes: Vec<Change>, ticket: Ticket) {
        let mut needs = 0;
        for op in ops {
            let seen = match op {
                Op::Get(place) | Op::Put(place, _) | Op::Delete(place) | Op::Expire(place, _) => {
                    self.model.written(*place)
                }
                Op::Count(_) => self.model.newest(),
            };
            needs = needs.max(seen);
        }
        if !changes.is_empty() {
            needs = needs.max(ticket.epoch.0);
            self.model.commit(ticket.epoch.0, changes);
        }
        self.promises.push(Promise {
            ticket: ticket.epoch.0,
            needs,
        });
        self.tally.transactions += 1;
        self.note(ticket.epoch.0);
    }

    fn empty(&mut self) -> Check {
        let database = (self.rng.u8(0..4) > 0).then(|| self.rng.u8(0..self.swarm.databases));
        match self.core().flush_database(database) {
            Ok(ticket) => {
                self.committed(&[], vec![Change::Flush(database)], ticket);
                Ok(())
            }
            Err(error) => self.tolerate("flush_database", &error),
        }
    }

    /// The purge takes the partitions in turn and removes what is past its expiry there.
    fn purge(&mut self) -> Check {
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
            self.model.commit(epoch, changes);
        }
        Ok(())
    }

    fn flush_one(&mut self) -> Check {
        let stream = self.rng.u8(0..self.swarm.streams);
        if self.rng.u8(0..100) >= self.swarm.stream_speed[usize::from(stream)] {
            return Ok(());
        }
        for _ in 0..self.rng.u8(1..=6) {
            if self.flush_step(stream)? != Some(FlushProgress::Wrote) {
                break;
            }
        }
        Ok(())
    }

    /// One step of a flusher; `None` if it failed as it may.
    fn flush_step(&mut self, stream: u8) -> Check<Option<FlushProgress>> {
        let s = usize::from(stream);
        let durable = self.core().wal().durable().0;

        match self.core().flush_step(StreamId(stream)) {
            Ok(progress) => {
                match progress {
                    FlushProgress::Wrote => self.named[s] = self.named[s].max(durable),
                    FlushProgress::Synced => self.evidence = self.evidence.max(self.named[s]),
                    FlushProgress::Idle => {}
                }
                Ok(Some(progress))
            }
            Err(error) => self.tolerate("flush_step", &error).map(|()| None),
        }
    }

    pub(crate) fn flush_all(&mut self) -> Check {
        self.core().close_epoch();
        for stream in 0..self.swarm.streams {
            while !self.stopped {
                match self.flush_step(stream)? {
                    None | Some(FlushProgress::Idle) => break,
                    Some(_) => {}
                }
            }
        }
        self.observe();
        Ok(())
    }

    pub(crate) fn checkpoint_begin(&mut self) -> Check {
        match self.core().checkpoint_begin() {
            Ok(()) => Ok(()),
            Err(error) => self.tolerate("checkpoint_begin", &error),
        }
    }

    fn checkpoint_steps(&mut self) -> Check {
        for _ in 0..self.rng.u8(1..=4) {
            match self.checkpoint_step()? {
                Some(CheckpointProgress::Working(_)) => {}
                Some(CheckpointProgress::Waiting) => {
                    if self.rng.u8(0..3) == 0 {
                        self.flush_all()?;
                    }
                    break;
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// One step of the checkpoint; `None` if it failed as it may.
    fn checkpoint_step(&mut self) -> Check<Option<CheckpointProgress>> {
        match self.core().checkpoint_step() {
            Ok(progress) => {
                if progress == CheckpointProgress::Done {
                    self.tally.checkpoints += 1;
                    self.note(77);
                }
                Ok(Some(progress))
            }
            Err(error) => self.tolerate("checkpoint_step", &error).map(|()| None),
        }
    }

    /// A whole checkpoint, flushing as it goes, unless a fault is in its way.
    pub(crate) fn checkpoint_now(&mut self) -> Check {
        self.checkpoint_begin()?;
        while !self.stopped {
            match self.checkpoint_step()? {
                Some(CheckpointProgress::Working(_)) => {}
                Some(CheckpointProgress::Waiting) => {
                    self.flush_all()?;
                    // The log's disk is full: it waits on.
                    if !self.core().wal().is_idle() {
                        break;
                    }
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// What a shutdown does, as far as it gets.
    pub(crate) fn close_cleanly(&mut self) -> Check {
        self.checkpoint_now()?;
        self.flush_all()?;
        if self.stopped || !self.core().wal().is_idle() {
            return Ok(());
        }
        match self.core().mark_clean() {
            Ok(()) => self.closed_cleanly = Some(true),
            Err(error) => {
                // One of the anchor's two copies may have it.
                self.closed_cleanly = None;
                self.tolerate("mark_clean", &error)?;
                self.stopped = true;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oracle once demanded that readers wait for such a row, and called the engine's right
    /// answer a loss.
    #[test]
    fn a_row_that_is_put_and_deleted_in_one_transaction_was_never_written() {
        let row = Row {
            value: Content { seed: 1, len: 8 },
            expiry_ms: None,
        };
        let live = State::from([((0, 1), row)]);
        let mut view = View {
            live: &live,
            own: BTreeMap::new(),
            now_ms: 0,
        };
        view.put((0, 2), row);
        view.delete((0, 2));
        view.delete((0, 1));
        view.put((0, 1), row);
        assert_eq!(view.changes(), []);
        view.delete((0, 1));
        assert_eq!(view.changes(), [Change::Delete((0, 1))]);
    }

    #[test]
    fn keys_are_numbers_and_back() {
        for key in 0..=u8::MAX {
            assert_eq!(key_number(&key_bytes(key)), Some(key));
        }
        assert_eq!(key_number(b"key1."), None);
        assert_eq!(key_number(b"k"), None);
    }
}
