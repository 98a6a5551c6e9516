//! Streams in the model. A stream has numbered entries and one group with three consumers and pending entries. This
//! module also chooses random changes of streams, and compares the model with the engine.

use std::collections::BTreeMap;

use fastrand::Rng;
use perdura::types::Fault;
use perdura::types::stream::{Consumer, Group, Id, Stream, Threshold, Trim, Writing};
use perdura::{TableId, Tx};
use perdura_base::num::{to_u64, to_usize};

use crate::content::Content;

const GROUP: &[u8] = b"group";
const FIELD: &[u8] = b"field";
/// The number of entries that have the same millisecond in their ids.
const IN_MS: u64 = 5;

/// A stream in the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamModel {
    /// The present entries, by number.
    entries: BTreeMap<u64, Content>,
    /// The number of the newest entry. 0: the stream has never existed.
    last: u64,
    /// The number of the entry that was last delivered to the group.
    delivered: u64,
    /// A map from each pending entry to its consumer and the count of its deliveries.
    pending: BTreeMap<u64, (u8, u64)>,
}

/// A change of a stream.
#[derive(Debug, Clone)]
pub(crate) enum StreamEdit {
    Add(Vec<Content>),
    /// Deletes the entries at these indexes.
    Delete(Vec<usize>),
    /// Deletes all but the given number of entries.
    Trim(usize),
    /// Delivers at most the given count of new entries to a consumer. With `true`, the entries are pending until they
    /// are acknowledged. With `false`, they need no acknowledgement.
    Deliver(u8, usize, bool),
    /// Acknowledges at most the given count of pending entries, the oldest first.
    Acknowledge(usize),
    /// Gives a consumer at most the given count of pending entries, the oldest first.
    Claim(u8, usize),
    /// Deletes a consumer and its pending entries.
    DeleteConsumer(u8),
    /// Deletes the group with all its consumers. Then creates a new group at the old group's position.
    Renew,
}

fn id_of(number: u64) -> Id {
    Id {
        ms: 1 + number / IN_MS,
        seq: number % IN_MS,
    }
}

fn consumer_name(consumer: u8) -> Vec<u8> {
    format!("consumer {consumer}").into_bytes()
}

fn bytes_of(content: Content) -> Vec<u8> {
    let mut bytes = Vec::new();
    content.fill(&mut bytes);
    bytes
}

impl StreamEdit {
    pub(crate) fn draw(rng: &mut Rng, count: usize, item: impl FnMut() -> Content) -> StreamEdit {
        let consumer = rng.u8(0..3);
        // A clone of `rng` draws this number. `rng` itself does not advance, so that old seeds still lead to the same
        // runs.
        let aside = rng.clone().u8(..);
        match rng.u8(0..16) {
            0..=5 => StreamEdit::Add(std::iter::repeat_with(item).take(count).collect()),
            6 | 7 => StreamEdit::Delete((0..count).map(|_| rng.usize(..1000)).collect()),
            8 => StreamEdit::Trim(rng.usize(..40)),
            9..=11 => StreamEdit::Deliver(consumer, count, !aside.is_multiple_of(4)),
            12 | 13 => StreamEdit::Acknowledge(count),
            14 => StreamEdit::Claim(consumer, count),
            _ if aside.is_multiple_of(3) => StreamEdit::Renew,
            _ => StreamEdit::DeleteConsumer(consumer),
        }
    }

    /// Applies the change to the model and returns the reply.
    pub(crate) fn apply(&self, model: &mut StreamModel) -> u64 {
        if model.last == 0 && !matches!(self, StreamEdit::Add(_)) {
            return 0;
        }
        match self {
            StreamEdit::Add(contents) => {
                for content in contents {
                    model.last += 1;
                    model.entries.insert(model.last, *content);
                }
                to_u64(model.entries.len())
            }
            StreamEdit::Delete(places) => {
                let gone = model.at(places);
                model.entries.retain(|number, _| !gone.contains(number));
                to_u64(gone.len())
            }
            StreamEdit::Trim(max) => {
                let gone = model.entries.len().saturating_sub(*max);
                for _ in 0..gone {
                    model.entries.pop_first();
                }
                to_u64(gone)
            }
            StreamEdit::Deliver(consumer, count, stays_pending) => {
                let new = model.new_ones(*count);
                for number in &new {
                    if *stays_pending {
                        model.pending.insert(*number, (*consumer, 1));
                    }
                    model.delivered = *number;
                }
                to_u64(new.len())
            }
            StreamEdit::Acknowledge(count) => {
                let gone = (*count).min(model.pending.len());
                for _ in 0..gone {
                    model.pending.pop_first();
                }
                to_u64(gone)
            }
            StreamEdit::Claim(consumer, count) => {
                let taken = model.pending.values_mut().take(*count);
                to_u64(taken.map(|held| *held = (*consumer, held.1 + 1)).count())
            }
            StreamEdit::DeleteConsumer(consumer) => {
                let before = model.pending.len();
                model.pending.retain(|_, held| held.0 != *consumer);
                to_u64(before - model.pending.len())
            }
            StreamEdit::Renew => {
                let gone = to_u64(model.pending.len());
                model.pending.clear();
                gone
            }
        }
    }

    /// Applies the change to the engine and returns the reply. `model` is the model before the change.
    pub(crate) fn run(
        &self,
        tx: &mut Tx<'_>,
        (table, key): (TableId, &[u8]),
        model: &StreamModel,
    ) -> Result<u64, Fault> {
        let mut writing = match (Writing::open(tx, table, key)?, self) {
            (Some(writing), _) => writing,
            (None, StreamEdit::Add(_)) => {
                let mut made = Writing::open_or_make(tx, table, key, None)?;
                made.make_group(tx, GROUP, Id::MIN, Some(0))?;
                made
            }
            (None, _) => return Ok(0),
        };
        let reply = self.run_on(tx, &mut writing, model)?;
        writing.finish(tx)?;
        Ok(reply)
    }

    fn run_on(
        &self,
        tx: &mut Tx<'_>,
        writing: &mut Writing,
        model: &StreamModel,
    ) -> Result<u64, Fault> {
        let found = writing.stream(tx)?.group(GROUP)?;
        let mut group = found.ok_or(Fault::WrongType)?;
        Ok(match self {
            StreamEdit::Add(contents) => {
                for (content, number) in contents.iter().zip(model.last + 1..) {
                    writing.add(tx, id_of(number), &[FIELD, &bytes_of(*content)])?;
                }
                writing.head.length
            }
            StreamEdit::Delete(places) => {
                let mut gone = 0;
                for number in model.at(places) {
                    gone += u64::from(writing.delete(tx, id_of(number))?);
                }
                gone
            }
            StreamEdit::Trim(max) => {
                let trim = Trim {
                    threshold: Threshold::Length(to_u64(*max)),
                    is_rough: false,
                    limit: 0,
                };
                writing.trim(tx, &trim)?
            }
            StreamEdit::Deliver(name, count, stays_pending) => {
                let new = model.new_ones(*count);
                let mut consumer = consumer(tx, writing, &mut group, *name)?;
                for number in &new {
                    let id = id_of(*number);
                    writing.head.delivered(&mut group, id);
                    if *stays_pending {
                        writing.give(tx, &mut group, &mut consumer, (id, 1, 1))?;
                    }
                }
                writing.put_consumer(tx, &group, &consumer)?;
                writing.put_group(tx, GROUP, &group)?;
                to_u64(new.len())
            }
            StreamEdit::Acknowledge(count) => {
                let ids = model.pending.keys().take(*count);
                let ids: Vec<Id> = ids.map(|number| id_of(*number)).collect();
                writing.acknowledge(tx, GROUP, &mut group, &ids)?
            }
            StreamEdit::Claim(name, count) => {
                let taken = model.pending.iter().take(*count);
                let taken: Vec<_> = taken.map(|(number, held)| (*number, held.1)).collect();
                let mut consumer = consumer(tx, writing, &mut group, *name)?;
                for (number, deliveries) in &taken {
                    let delivery = (id_of(*number), 1, deliveries + 1);
                    writing.give(tx, &mut group, &mut consumer, delivery)?;
                }
                writing.put_consumer(tx, &group, &consumer)?;
                writing.put_group(tx, GROUP, &group)?;
                to_u64(taken.len())
            }
            StreamEdit::DeleteConsumer(name) => {
                let name = consumer_name(*name);
                let Some(consumer) = writing.stream(tx)?.consumer(&group, &name)? else {
                    return Ok(0);
                };
                writing.delete_consumer(tx, &mut group, &consumer)?;
                writing.put_group(tx, GROUP, &group)?;
                consumer.pending
            }
            StreamEdit::Renew => {
                writing.destroy_group(tx, GROUP, &group)?;
                writing.make_group(tx, GROUP, group.last, group.read)?;
                group.pending
            }
        })
    }
}

fn consumer(
    tx: &mut Tx<'_>,
    writing: &Writing,
    group: &mut Group,
    number: u8,
) -> Result<Consumer, Fault> {
    let name = consumer_name(number);
    if let Some(found) = writing.stream(tx)?.consumer(group, &name)? {
        return Ok(found);
    }
    writing.make_consumer(tx, group, &name, 1)
}

impl StreamModel {
    /// Returns whether the stream has never existed.
    pub(crate) fn is_absent(&self) -> bool {
        self.last == 0
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the numbers of the entries at these indexes, without duplicates. An index beyond the end wraps around.
    fn at(&self, places: &[usize]) -> Vec<u64> {
        let numbers: Vec<u64> = self.entries.keys().copied().collect();
        let place = |place: &usize| place.checked_rem(numbers.len()).map(|at| numbers[at]);
        let mut found: Vec<u64> = places.iter().filter_map(place).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns the numbers of the first `count` entries that were not yet delivered to the group.
    fn new_ones(&self, count: usize) -> Vec<u64> {
        let new = self.entries.range(self.delivered + 1..);
        new.map(|(number, _)| *number).take(count).collect()
    }

    /// Returns whether a stream of the engine equals this model. Reads the stream in every possible way. `rows` is the
    /// stream's count of rows.
    pub(crate) fn is(&self, stream: &Stream<'_>, rows: u64) -> bool {
        self.has_entries(stream).unwrap_or(false)
            && self.has_pending(stream).unwrap_or(false)
            && self.rows_in(stream).is_ok_and(|known| known == rows)
    }

    /// Returns how many rows the engine needs for the stream. The head, the group and each node take one row. Each
    /// consumer and each pending entry take two rows.
    fn rows_in(&self, stream: &Stream<'_>) -> Result<u64, Fault> {
        let consumers = match stream.group(GROUP)? {
            Some(group) => stream.consumers(&group)?.len(),
            None => 0,
        };
        Ok(2 + stream.nodes() + 2 * to_u64(consumers + self.pending.len()))
    }

    fn has_entries(&self, stream: &Stream<'_>) -> Result<bool, Fault> {
        let head = stream.head();
        let first = self.entries.first_key_value();
        let counts = (head.length, head.added) == (to_u64(self.entries.len()), self.last)
            && head.last == id_of(self.last)
            && head.first == first.map_or(Id::MIN, |(number, _)| id_of(*number));
        let mut same = counts;
        for reverse in [false, true] {
            let mut model: Vec<_> = self.entries.iter().collect();
            if reverse {
                model.reverse();
            }
            let mut model = model.into_iter();
            stream.entries::<Fault>(Id::MIN..=Id::MAX, reverse, |entry| {
                let pair = entry.pairs().next();
                same &= model
                    .next()
                    .zip(pair)
                    .is_some_and(|((number, content), pair)| {
                        entry.id == id_of(*number) && *pair.0 == *FIELD && content.matches(&pair.1)
                    });
                Ok(same)
            })?;
            same &= model.next().is_none();
        }
        Ok(same)
    }

    fn has_pending(&self, stream: &Stream<'_>) -> Result<bool, Fault> {
        let Some(group) = stream.group(GROUP)? else {
            return Ok(false);
        };
        let delivered = if self.delivered == 0 {
            Id::MIN
        } else {
            id_of(self.delivered)
        };
        let mut same = group.last == delivered && group.pending == to_u64(self.pending.len());
        let mut model = self.pending.iter();
        let mut by_consumer: BTreeMap<Vec<u8>, Vec<Id>> = BTreeMap::new();
        stream.each_pending(&group, Id::MIN..=Id::MAX, false, |id, pending| {
            let holder = stream.holder(&group, &pending)?.name;
            same &= model
                .next()
                .is_some_and(|(number, (consumer, deliveries))| {
                    id == id_of(*number)
                        && holder == consumer_name(*consumer)
                        && pending.deliveries == *deliveries
                });
            by_consumer.entry(holder).or_default().push(id);
            Ok(same)
        })?;
        for consumer in stream.consumers(&group)? {
            let ids = by_consumer.remove(&consumer.name).unwrap_or_default();
            same &= to_usize(consumer.pending) == ids.len()
                && stream.ids_of(&group, &consumer, Id::MIN) == ids;
        }
        Ok(same && model.next().is_none() && by_consumer.is_empty())
    }
}
