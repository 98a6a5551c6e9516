//! Pending entries: delivered and not acknowledged.
//!
//! Each pending entry has two rows. The group's row has a value, which names the consumer. The consumer's row has a
//! name but no value.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_txn::Tx;

use super::{Consumer, Group, Id, Pending, Stream, Writing, damaged, rows};
use crate::Fault;

impl Stream<'_> {
    /// Returns the group's pending entry with this id, if there is one.
    ///
    /// # Errors
    /// The stream is damaged.
    pub fn pending(&self, group: &Group, id: Id) -> Result<Option<Pending>, Fault> {
        let Some(row) = self.rows.get(&rows::pending(group.number, id)) else {
            return Ok(None);
        };
        let pending = Pending::decode(&row.value());
        pending.map(Some).ok_or_else(|| damaged("a pending entry"))
    }

    /// Passes the pending entries of a group between two ids, inclusive, to `f` until `f` returns false. The ids
    /// ascend, or descend if `reverse`.
    ///
    /// # Errors
    /// The stream is damaged, or `f` returned an error.
    pub fn each_pending(
        &self,
        group: &Group,
        ids: RangeInclusive<Id>,
        reverse: bool,
        mut f: impl FnMut(Id, Pending) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        if ids.is_empty() {
            return Ok(());
        }
        let name = |id: &Id| rows::pending(group.number, *id);
        let first = self.rows.names_before(&name(ids.start()));
        let end = self.names_up_to(&name(ids.end()));
        let mut range = self.rows.range(first, end);
        loop {
            let next = if reverse {
                range.next_back()
            } else {
                range.next()
            };
            let Some((_, row)) = next else {
                return Ok(());
            };
            let found = rows::pending_id(&row.field()).zip(Pending::decode(&row.value()));
            let (id, pending) = found.ok_or_else(|| damaged("a pending entry"))?;
            if !f(id, pending)? {
                return Ok(());
            }
        }
    }

    /// Returns the ids from `from` on that wait for a consumer's acknowledgement.
    #[must_use]
    pub fn ids_of(&self, group: &Group, consumer: &Consumer, from: Id) -> Vec<Id> {
        self.each_id_of(group, consumer, from).collect()
    }

    /// Iterates over the ids that [`ids_of`](Self::ids_of) returns.
    pub fn each_id_of<'s>(
        &'s self,
        group: &Group,
        consumer: &Consumer,
        from: Id,
    ) -> impl Iterator<Item = Id> + use<'s> {
        let name = |id| rows::consumer_pending(group.number, consumer.number, id);
        let (from, to) = (name(from), name(Id::MAX));
        let first = self.rows.names_before(&from);
        let end = self.names_up_to(&to);
        let ids = self.rows.range(first, end);
        ids.filter_map(|(_, row)| rows::pending_id(&row.field()))
    }

    /// Returns the consumer that got a pending entry last.
    ///
    /// # Errors
    /// The stream is damaged.
    pub fn holder(&self, group: &Group, pending: &Pending) -> Result<Consumer, Fault> {
        self.consumer_of(group.number, pending.consumer)
    }
}

impl Writing {
    /// Gives an entry to a consumer and takes it from the previous consumer, if any. The caller must write the group
    /// and the new consumer. This call writes the previous consumer.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn give(
        &self,
        tx: &mut Tx<'_>,
        group: &mut Group,
        consumer: &mut Consumer,
        (id, delivered_ms, deliveries): (Id, u64, u64),
    ) -> Result<(), Fault> {
        let had = self.stream(tx)?.pending(group, id)?;
        match had {
            Some(had) if had.consumer == consumer.number => {}
            Some(had) => {
                let mut other = self.stream(tx)?.holder(group, &had)?;
                other.pending = other.pending.saturating_sub(1);
                self.put_consumer(tx, group, &other)?;
                let name = rows::consumer_pending(group.number, other.number, id);
                if !armed(Flaw::ClaimedRowKept) {
                    self.remove(tx, &name)?;
                }
                consumer.pending += 1;
            }
            None => {
                group.pending += 1;
                consumer.pending += 1;
            }
        }
        let pending = Pending {
            consumer: consumer.number,
            delivered_ms,
            deliveries,
        };
        self.put(tx, &rows::pending(group.number, id), &pending.encode())?;
        if had.is_none_or(|had| had.consumer != consumer.number) {
            let name = rows::consumer_pending(group.number, consumer.number, id);
            self.put(tx, &name, &[])?;
        }
        debug_assert!(
            consumer.pending <= group.pending,
            "a part of what is pending"
        );
        Ok(())
    }

    /// Records that a pending entry was delivered once more to the consumer that has it.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn deliver_again(
        &self,
        tx: &mut Tx<'_>,
        group: &Group,
        id: Id,
        delivered_ms: u64,
    ) -> Result<(), Fault> {
        let Some(mut pending) = self.stream(tx)?.pending(group, id)? else {
            return Ok(());
        };
        pending.delivered_ms = delivered_ms;
        pending.deliveries += 1;
        self.put(tx, &rows::pending(group.number, id), &pending.encode())
    }

    /// Removes pending entries of any consumer from a group, and writes the group. Returns the
    /// number of removed entries.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn acknowledge(
        &self,
        tx: &mut Tx<'_>,
        name: &[u8],
        group: &mut Group,
        ids: &[Id],
    ) -> Result<u64, Fault> {
        // `losses` counts the entries that each consumer loses. Most calls acknowledge entries of a
        // single consumer.
        let (mut last, mut losses) = (None, BTreeMap::<u32, u64>::new());
        let before = group.pending;
        for id in ids {
            let row = rows::pending(group.number, *id);
            let taken = tx.element_take(self.table, self.home, &row, |row| {
                Pending::decode(&row.value())
            })?;
            let Some(pending) = taken else {
                continue;
            };
            let pending = pending.ok_or_else(|| damaged("a pending entry"))?;
            group.pending = group.pending.saturating_sub(1);
            if !armed(Flaw::AcknowledgedRowKept) {
                let held = rows::consumer_pending(group.number, pending.consumer, *id);
                self.remove(tx, &held)?;
            }
            match &mut last {
                Some((consumer, lost)) if *consumer == pending.consumer => *lost += 1,
                _ => {
                    if let Some((consumer, lost)) = last.replace((pending.consumer, 1)) {
                        *losses.entry(consumer).or_default() += lost;
                    }
                }
            }
        }
        if let Some((consumer, lost)) = last {
            let earlier = losses.remove(&consumer).unwrap_or_default();
            self.lose(tx, group, consumer, lost + earlier)?;
            for (consumer, lost) in losses {
                self.lose(tx, group, consumer, lost)?;
            }
            self.put_group(tx, name, group)?;
        }
        debug_assert!(group.pending <= before, "what was pending becomes less");
        Ok(before - group.pending)
    }

    /// Subtracts `lost` from a consumer's number of pending entries, and writes the consumer.
    fn lose(&self, tx: &mut Tx<'_>, group: &Group, consumer: u32, lost: u64) -> Result<(), Fault> {
        let mut consumer = self.stream(tx)?.consumer_of(group.number, consumer)?;
        debug_assert!(lost > 0, "a consumer that loses nothing is not written");
        consumer.pending = consumer.pending.saturating_sub(lost);
        self.put_consumer(tx, group, &consumer)
    }

    /// Removes the two rows of a pending entry. The caller must write the group and the consumer. Returns whether the
    /// entry was pending.
    pub(super) fn remove_pending(
        &self,
        tx: &mut Tx<'_>,
        group: &mut Group,
        consumer: u32,
        id: Id,
    ) -> Result<bool, Fault> {
        let was_pending = self.remove(tx, &rows::pending(group.number, id))?;
        let name = rows::consumer_pending(group.number, consumer, id);
        if !armed(Flaw::AcknowledgedRowKept) {
            let was_there = self.remove(tx, &name)?;
            debug_assert_eq!(was_pending, was_there, "both rows are there or none is");
        }
        group.pending = group
            .pending
            .saturating_sub(to_u64(usize::from(was_pending)));
        Ok(was_pending)
    }
}
