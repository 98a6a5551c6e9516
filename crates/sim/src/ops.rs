//! The operations of the client's transactions. Each operation runs on the engine and on the model.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use perdura::types::{Fault, Source, copy, open};
use perdura::{Core, Error, Packing, Renewal, RowRef, Shape, TableId, Tx};

use crate::content::Content;
use crate::edit::Edit;
use crate::model::{Change, Place, Row, State};
use crate::report::Check;
use crate::swarm::Swarm;
use crate::value::Value;

/// One operation of a transaction.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Get(Place),
    Put(Place, Content, Option<u64>),
    Edit(Place, Edit),
    Delete(Place),
    Expire(Place, Option<u64>),
    Rename(Place, Place),
    Copy(Place, Place),
    Count(u8),
    Flush(u8),
    Swap(u8, u8),
}

impl Op {
    /// Returns the places that the operation touches. `None`: it touches whole databases.
    pub(crate) fn places(&self) -> Option<Vec<Place>> {
        match self {
            Op::Get(place)
            | Op::Put(place, ..)
            | Op::Edit(place, _)
            | Op::Delete(place)
            | Op::Expire(place, _) => Some(vec![*place]),
            Op::Rename(from, to) | Op::Copy(from, to) => Some(vec![*from, *to]),
            Op::Count(_) | Op::Flush(_) | Op::Swap(..) => None,
        }
    }
}

/// Returns the bytes of the key with this number. Every seventh key is long.
pub(crate) fn key_bytes(key: u8) -> Vec<u8> {
    let mut bytes = format!("key{key}").into_bytes();
    if key % 7 == 6 {
        bytes.resize(300, b'.');
    }
    bytes
}

/// Returns the number of the key that has these bytes. `None`: no key has these bytes.
pub(crate) fn key_number(bytes: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(bytes).ok()?;
    let key = text
        .strip_prefix("key")?
        .trim_end_matches('.')
        .parse()
        .ok()?;
    (key_bytes(key) == bytes).then_some(key)
}

/// Returns the maximum sizes of a collection that is packed in its key's row. A larger collection is split into
/// several rows. The limits depend on `now_ms`, so collections are split at different sizes. A split collection stays
/// split when the limits grow.
fn packing(now_ms: u64) -> Packing {
    match now_ms % 5 {
        0 => Packing {
            hash_entries: 5,
            list_entries: 5,
            set_integers: 5,
            set_entries: 5,
            zset_entries: 5,
            ..Packing::FULL
        },
        _ => Packing::FULL,
    }
}

/// The rows that a running transaction sees: the committed rows, with the transaction's own changes on top.
pub(crate) struct View<'a> {
    live: &'a State,
    own: BTreeMap<Place, Option<Row>>,
    now_ms: u64,
}

impl<'a> View<'a> {
    pub(crate) fn new(live: &'a State, now_ms: u64) -> Self {
        View {
            live,
            own: BTreeMap::new(),
            now_ms,
        }
    }

    fn stored(&self, place: Place) -> Option<&Row> {
        match self.own.get(&place) {
            Some(own) => own.as_ref(),
            None => self.live.get(&place),
        }
    }

    fn visible(&self, place: Place) -> Option<&Row> {
        self.stored(place).filter(|row| row.is_visible(self.now_ms))
    }

    pub(crate) fn put(&mut self, place: Place, row: Row) {
        self.own.insert(place, Some(row));
    }

    fn delete(&mut self, place: Place) {
        if self.stored(place).is_some() {
            self.own.insert(place, None);
        }
    }

    fn keys_of(&self, databases: &[u8]) -> Vec<Place> {
        let places = self.live.keys().chain(self.own.keys());
        places
            .filter(|p| databases.contains(&p.0))
            .copied()
            .collect()
    }

    fn flush(&mut self, database: u8) {
        for place in self.keys_of(&[database]) {
            self.delete(place);
        }
    }

    fn swap(&mut self, a: u8, b: u8) {
        let rows = self.keys_of(&[a, b]).into_iter().map(|place| place.1);
        let pairs: BTreeMap<u8, _> = rows
            .map(|key| (key, [(a, key), (b, key)].map(|p| self.stored(p).cloned())))
            .collect();
        for (key, [of_a, of_b]) in pairs {
            self.own.insert((a, key), of_b);
            self.own.insert((b, key), of_a);
        }
    }

    /// Returns the net changes of the transaction. A row that the transaction created and deleted again counts as
    /// never written, so no reader has to wait for it.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let changed = self
            .own
            .iter()
            .filter(|(place, row)| self.live.get(place) != row.as_ref());
        let change = |(place, row): (&Place, &Option<Row>)| match row {
            Some(row) => Change::Put(*place, row.clone()),
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
        let count = untouched.count() + own.count();
        debug_assert_eq!(
            self.keys_of(&[database])
                .into_iter()
                .filter(|place| self.stored(*place).is_some())
                .collect::<BTreeSet<_>>()
                .len(),
            count,
            "a database has as many rows by count as by key"
        );
        count
    }
}

/// Returns whether a key's row equals a row of the model. If the row is the header of a collection, its elements are
/// not compared.
pub(crate) fn is_row(row: RowRef<'_>, expected: &Row, scratch: &mut Vec<u8>) -> bool {
    if row.expiry_ms() != expected.expiry_ms || row.kind().shape() != expected.value.shape() {
        return false;
    }
    let Some(shape) = row.kind().shape() else {
        scratch.clear();
        row.copy_value(scratch);
        let same = matches!(&expected.value, Value::String(content) if content.matches(scratch));
        return same && row.value_len() == scratch.len();
    };
    match open::view(row, shape) {
        Ok(open::View::Small(packed)) => expected.value.is_in(&Source::Small(packed)),
        Ok(open::View::Rows(_)) => true,
        Err(_) => false,
    }
}

/// Returns whether a key's row, together with the elements of its collection, equals a row of the model.
fn is_all(
    tx: &Tx<'_>,
    table: TableId,
    row: RowRef<'_>,
    expected: &Row,
    scratch: &mut Vec<u8>,
) -> Result<bool, Error> {
    let elements = match row.home() {
        Some(home) => expected
            .value
            .is_in(&Source::Rows(tx.elements(table, home)?)),
        None => true,
    };
    Ok(elements && is_row(row, expected, scratch))
}

/// Runs the operations and compares every reply with the model. The outer error is an error of the engine; the inner
/// error is a contradiction.
pub(crate) fn perform(
    core: &Core,
    tx: &mut Tx<'_>,
    ops: &[Op],
    view: &mut View<'_>,
    scratch: &mut Vec<u8>,
    renewal: &mut Renewal,
) -> Result<Check, Error> {
    let mut beside = Beside {
        core,
        tx,
        view,
        scratch,
        renewal,
    };
    for op in ops {
        if let Some(wrong) = beside.perform(op)? {
            return Ok(Err(format!("{wrong}: {op:?}")));
        }
    }
    Ok(Ok(()))
}

/// A description of what is wrong with a reply. `None`: the reply is right.
type Wrong = Option<&'static str>;

/// A transaction of the engine, with the model's view of this transaction.
struct Beside<'a, 't, 'v> {
    core: &'a Core,
    tx: &'a mut Tx<'t>,
    view: &'a mut View<'v>,
    scratch: &'a mut Vec<u8>,
    renewal: &'a mut Renewal,
}

impl Beside<'_, '_, '_> {
    fn perform(&mut self, op: &Op) -> Result<Wrong, Error> {
        match op {
            Op::Get(place) => self.get(*place),
            Op::Put(place, content, expiry_ms) => self.put(*place, *content, *expiry_ms),
            Op::Edit(place, edit) => self.edit(*place, edit),
            Op::Delete(place) => self.delete(*place),
            Op::Expire(place, expiry_ms) => self.expire(*place, *expiry_ms),
            Op::Rename(from, to) => self.transfer(*from, *to, true),
            Op::Copy(from, to) => self.transfer(*from, *to, false),
            Op::Count(database) => self.count(*database),
            Op::Flush(database) => {
                self.core
                    .begin_flush(self.tx, Some(*database), self.renewal)?;
                self.view.flush(*database);
                Ok(None)
            }
            Op::Swap(a, b) => {
                self.core.swap_databases(self.tx, [*a, *b], self.renewal)?;
                self.view.swap(*a, *b);
                Ok(None)
            }
        }
    }

    /// Returns the table of a database. Takes this transaction's own flushes and swaps into account.
    fn table(&self, database: u8) -> TableId {
        let renewed = self.renewal.table(database);
        renewed.unwrap_or_else(|| self.core.database(database))
    }

    fn get(&mut self, place: Place) -> Result<Wrong, Error> {
        let table = self.table(place.0);
        let row = self.tx.get(table, &key_bytes(place.1))?;
        let same = match (row, self.view.visible(place)) {
            (None, None) => true,
            (Some(row), Some(expected)) => is_all(self.tx, table, row, expected, self.scratch)?,
            _ => false,
        };
        Ok((!same).then_some("a read differs from the model"))
    }

    fn put(
        &mut self,
        place: Place,
        content: Content,
        expiry_ms: Option<u64>,
    ) -> Result<Wrong, Error> {
        content.fill(self.scratch);
        let (table, key) = (self.table(place.0), key_bytes(place.1));
        self.tx.put(table, &key, self.scratch, expiry_ms)?;
        let value = Value::String(content);
        self.view.put(place, Row { value, expiry_ms });
        Ok(None)
    }

    fn edit(&mut self, place: Place, edit: &Edit) -> Result<Wrong, Error> {
        let table = self.table(place.0);
        let held = self.view.visible(place);
        let expiry_ms = held.and_then(|row| row.expiry_ms);
        let held = held.map(|row| &row.value);
        self.tx.set_packing(packing(self.view.now_ms));
        let reply = edit.run(self.tx, table, &key_bytes(place.1), held)?;
        let (after, expected) = edit.apply(held);
        match after {
            Some(value) => self.view.put(place, Row { value, expiry_ms }),
            None if held.is_some() => self.view.delete(place),
            None => {}
        }
        Ok((reply != expected).then_some("the reply to a change differs from the model"))
    }

    fn delete(&mut self, place: Place) -> Result<Wrong, Error> {
        let was_there = self.tx.delete(self.table(place.0), &key_bytes(place.1))?;
        let wrong = was_there != self.view.visible(place).is_some();
        self.view.delete(place);
        Ok(wrong.then_some("a delete differs from the model"))
    }

    fn expire(&mut self, place: Place, expiry_ms: Option<u64>) -> Result<Wrong, Error> {
        let (table, key) = (self.table(place.0), key_bytes(place.1));
        let was_there = self.tx.set_expiry(table, &key, expiry_ms)?;
        let row = self.view.visible(place).cloned();
        let wrong = was_there != row.is_some();
        if let Some(row) = row {
            self.view.put(place, Row { expiry_ms, ..row });
        }
        Ok(wrong.then_some("an expiry differs from the model"))
    }

    /// Runs a rename if `moves`, otherwise a copy.
    fn transfer(&mut self, from: Place, to: Place, moves: bool) -> Result<Wrong, Error> {
        let keys = [from, to].map(|place| (self.table(place.0), key_bytes(place.1)));
        let [(table, key), (to_table, to_key)] = &keys;
        let was_there = if moves {
            self.tx.rename(*table, key, *to_table, to_key)?
        } else {
            match copy(self.tx, *table, key, *to_table, to_key) {
                Ok(was_there) => was_there,
                Err(Fault::Abort(abort)) => return Err(abort),
                Err(Fault::WrongType) => return Ok(Some("a copy of no type")),
            }
        };
        let row = self.view.visible(from).cloned();
        let wrong = was_there != row.is_some();
        if let Some(row) = row.filter(|_| from != to) {
            self.view.put(to, row);
            if moves {
                self.view.delete(from);
            }
        }
        Ok(wrong.then_some("a rename or a copy differs from the model"))
    }

    fn count(&mut self, database: u8) -> Result<Wrong, Error> {
        let count = self.tx.len(self.table(database))?;
        let wrong = usize::try_from(count).ok() != Some(self.view.count(database));
        Ok(wrong.then_some("a count differs from the model"))
    }
}

fn draw_place(rng: &mut Rng, swarm: &Swarm) -> Place {
    (rng.u8(0..swarm.databases), rng.u8(0..swarm.keys))
}

fn draw_put(rng: &mut Rng, swarm: &Swarm, place: Place, now_ms: u64) -> Op {
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
    let seed = rng.u64(..);
    Op::Put(place, Content { seed, len }, expiry_ms)
}

/// Chooses one operation at random. `live` has the present rows. Most changes of collections address a row of a
/// suitable type.
pub(crate) fn draw(rng: &mut Rng, swarm: &Swarm, live: &State, now_ms: u64, writes: bool) -> Op {
    let place = draw_place(rng, swarm);
    let kind = rng.u8(0..if writes { 20 } else { 4 });
    if writes && kind > 2 && rng.u8(0..100) < swarm.collections {
        return draw_of_collections(rng, swarm, live, place);
    }
    match kind {
        0..=2 => Op::Get(place),
        3 if rng.u8(0..4) == 0 => Op::Count(place.0),
        3..=14 if writes => draw_put(rng, swarm, place, now_ms),
        15..=17 => Op::Delete(place),
        18 | 19 if swarm.expiry > 0 => {
            Op::Expire(place, rng.bool().then(|| now_ms + rng.u64(0..3000)))
        }
        _ if writes => Op::Delete(place),
        _ => Op::Get(place),
    }
}

/// Chooses, at random, a place that holds a row. Returns `other` in one of eight calls, or if no place holds a row.
fn draw_taken(rng: &mut Rng, live: &State, other: Place) -> Place {
    if live.is_empty() || rng.u8(0..8) == 0 {
        return other;
    }
    let taken = live.keys().nth(rng.usize(0..live.len()));
    taken.copied().unwrap_or(other)
}

fn draw_of_collections(rng: &mut Rng, swarm: &Swarm, live: &State, place: Place) -> Op {
    match rng.u8(0..64) {
        0..=7 => Op::Rename(draw_taken(rng, live, place), place),
        8..=9 => Op::Copy(draw_taken(rng, live, place), place),
        10..=12 => Op::Delete(draw_taken(rng, live, place)),
        13 if rng.u8(0..4) == 0 => Op::Flush(place.0),
        14 if swarm.databases > 1 => Op::Swap(place.0, (place.0 + 1) % swarm.databases),
        _ => {
            let drawn = Shape::ALL[rng.usize(0..swarm.shapes)];
            let any = if swarm.streams_alone {
                Shape::Stream
            } else {
                drawn
            };
            let there = live.get(&place).and_then(|row| row.value.shape());
            let shape = there.filter(|_| rng.u8(0..8) > 0).unwrap_or(any);
            Op::Edit(place, Edit::draw(rng, swarm, shape))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test for an old error of the oracle. If one transaction had put and deleted a row, the oracle expected
    /// readers of the row to wait for this transaction. The oracle reported the engine's right answer as a loss.
    #[test]
    fn a_row_that_is_put_and_deleted_in_one_transaction_was_never_written() {
        let row = Row {
            value: Value::String(Content { seed: 1, len: 8 }),
            expiry_ms: None,
        };
        let live = State::from([((0, 1), row.clone())]);
        let mut view = View::new(&live, 0);
        view.put((0, 2), row.clone());
        view.delete((0, 2));
        view.delete((0, 1));
        view.put((0, 1), row);
        assert_eq!(view.changes(), []);
        view.delete((0, 1));
        assert_eq!(view.changes(), [Change::Delete((0, 1))]);
    }

    #[test]
    fn a_swap_exchanges_what_two_databases_hold() {
        let row = |seed| Row {
            value: Value::String(Content { seed, len: 8 }),
            expiry_ms: None,
        };
        let live = State::from([((0, 1), row(1)), ((1, 1), row(2)), ((1, 2), row(3))]);
        let mut view = View::new(&live, 0);
        view.swap(0, 1);
        let swapped = [
            Change::Put((0, 1), row(2)),
            Change::Put((0, 2), row(3)),
            Change::Put((1, 1), row(1)),
            Change::Delete((1, 2)),
        ];
        assert_eq!(view.changes(), swapped);
        view.swap(1, 0);
        assert_eq!(view.changes(), []);
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
