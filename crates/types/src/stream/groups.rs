//! Groups of consumers.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_txn::Tx;

use super::{Consumer, Group, Id, Stream, Writing, damaged, rows};
use crate::Fault;

impl Stream<'_> {
    /// Returns the group that has this name, if there is one.
    ///
    /// # Errors
    /// The stream is damaged.
    pub fn group(&self, name: &[u8]) -> Result<Option<Group>, Fault> {
        let Some(row) = self.rows.get(&rows::group(name)) else {
            return Ok(None);
        };
        let group = Group::decode(&row.value());
        group.map(Some).ok_or_else(|| damaged("a group"))
    }

    /// Returns all groups with their names, in the order of the names.
    ///
    /// # Errors
    /// The stream is damaged.
    pub fn groups(&self) -> Result<Vec<(Vec<u8>, Group)>, Fault> {
        let groups = self.with_prefix(&[rows::GROUP]).map(|row| {
            let group = Group::decode(&row.value());
            let name = row.field().get(1..).map(<[u8]>::to_vec);
            name.zip(group).ok_or_else(|| damaged("a group"))
        });
        groups.collect()
    }

    /// Returns the consumer with this name in a group, if there is one.
    ///
    /// # Errors
    /// The stream is damaged.
    pub fn consumer(&self, group: &Group, name: &[u8]) -> Result<Option<Consumer>, Fault> {
        let Some(row) = self.rows.get(&rows::consumer_name(group.number, name)) else {
            return Ok(None);
        };
        let number = row.value().as_ref().try_into().map(u32::from_le_bytes);
        let number = number.map_err(|_| damaged("the number of a consumer"))?;
        self.consumer_of(group.number, number).map(Some)
    }

    /// Returns the consumer with this number in a group.
    pub(super) fn consumer_of(&self, group: u32, number: u32) -> Result<Consumer, Fault> {
        let row = self.rows.get(&rows::consumer(group, number));
        let consumer = row.and_then(|row| Consumer::decode(&row.value()));
        consumer.ok_or_else(|| damaged("a consumer"))
    }

    /// Returns all consumers of a group, in the order of their names.
    ///
    /// # Errors
    /// The stream is damaged.
    pub fn consumers(&self, group: &Group) -> Result<Vec<Consumer>, Fault> {
        let numbers = self.with_prefix(&rows::consumer_names(group.number));
        let consumers = numbers.map(|row| {
            let number = row.value().as_ref().try_into().map(u32::from_le_bytes);
            let number = number.map_err(|_| damaged("the number of a consumer"))?;
            self.consumer_of(group.number, number)
        });
        consumers.collect()
    }
}

impl Writing {
    /// Writes the state of a group.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn put_group(&self, tx: &mut Tx<'_>, name: &[u8], group: &Group) -> Result<(), Fault> {
        if armed(Flaw::GroupLastNotWritten)
            && let Some(written) = self.stream(tx)?.group(name)?
            && (written.pending, written.consumers) == (group.pending, group.consumers)
        {
            return Ok(());
        }
        self.put(tx, &rows::group(name), &group.encode())
    }

    /// Makes a group with an unused name. The new group counts as having read all entries up to the id `last`. `read`
    /// is the number of these entries, if known.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn make_group(
        &mut self,
        tx: &mut Tx<'_>,
        name: &[u8],
        last: Id,
        read: Option<u64>,
    ) -> Result<Group, Fault> {
        let group = Group {
            number: self.head.groups,
            consumers: 0,
            last,
            read,
            pending: 0,
        };
        self.head.groups += 1;
        self.put_group(tx, name, &group)?;
        Ok(group)
    }

    /// Removes a group with all consumers and pending entries.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn destroy_group(&self, tx: &mut Tx<'_>, name: &[u8], group: &Group) -> Result<(), Fault> {
        let prefixes = rows::of_group(group.number);
        let left = usize::from(armed(Flaw::DestroyedGroupRowsKept));
        for prefix in prefixes.iter().skip(left) {
            self.remove_all(tx, prefix)?;
        }
        self.remove(tx, &rows::group(name)).map(drop)
    }

    /// Removes the rows with names that begin with `prefix`. Returns the number of removed rows.
    fn remove_all(&self, tx: &mut Tx<'_>, prefix: &[u8]) -> Result<u64, Fault> {
        let names: Vec<Vec<u8>> = {
            let stream = self.stream(tx)?;
            let rows = stream.with_prefix(prefix);
            rows.map(|row| row.field().into_owned()).collect()
        };
        for name in &names {
            self.remove(tx, name)?;
        }
        Ok(to_u64(names.len()))
    }

    /// Makes a consumer with a name that is unused in the group. The caller must write the group.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn make_consumer(
        &self,
        tx: &mut Tx<'_>,
        group: &mut Group,
        name: &[u8],
        seen_ms: u64,
    ) -> Result<Consumer, Fault> {
        let consumer = Consumer {
            number: group.consumers,
            seen_ms,
            pending: 0,
            name: name.to_vec(),
        };
        group.consumers += 1;
        let number = consumer.number.to_le_bytes();
        self.put(tx, &rows::consumer_name(group.number, name), &number)?;
        self.put_consumer(tx, group, &consumer)?;
        Ok(consumer)
    }

    /// Writes the state of a consumer.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn put_consumer(
        &self,
        tx: &mut Tx<'_>,
        group: &Group,
        consumer: &Consumer,
    ) -> Result<(), Fault> {
        let name = rows::consumer(group.number, consumer.number);
        self.put(tx, &name, &consumer.encode())
    }

    /// Removes a consumer with its pending entries. The caller must write the group.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn delete_consumer(
        &self,
        tx: &mut Tx<'_>,
        group: &mut Group,
        consumer: &Consumer,
    ) -> Result<(), Fault> {
        let ids = self.stream(tx)?.ids_of(group, consumer, Id::MIN);
        for id in ids {
            if armed(Flaw::DeletedConsumerRowsKept) {
                let name = rows::consumer_pending(group.number, consumer.number, id);
                self.remove(tx, &name)?;
                continue;
            }
            let was_pending = self.remove_pending(tx, group, consumer.number, id)?;
            debug_assert!(was_pending, "both rows are there or none is");
        }
        self.remove(tx, &rows::consumer_name(group.number, &consumer.name))?;
        let name = rows::consumer(group.number, consumer.number);
        self.remove(tx, &name).map(drop)
    }
}
