//! A stream of the model: its entries, and one group with what is pending in it.

use std::collections::BTreeMap;

use crate::model::{Bytes, number, ok, parsed};
use crate::support::Reply;

/// An id: milliseconds and a number.
pub type Id = (i64, i64);

/// The name of the group that streams have, if they have one.
pub const GROUP: &[u8] = b"g";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    pub entries: BTreeMap<Id, Vec<Bytes>>,
    /// The id of the last entry that was added.
    pub last: Id,
    pub group: Option<Group>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// The id of the last entry that was delivered.
    pub last: Id,
    /// What is not acknowledged: by whom, and how often it was delivered.
    pub pending: BTreeMap<Id, (Bytes, i64)>,
}

pub fn id(text: &[u8]) -> Id {
    let dash = text.iter().position(|byte| *byte == b'-').unwrap();
    (parsed(&text[..dash]), parsed(&text[dash + 1..]))
}

fn text(id: Id) -> Reply {
    Reply::Bulk(Some(format!("{}-{}", id.0, id.1).into_bytes()))
}

impl Stream {
    /// The id that an entry of `ms-*` gets.
    pub fn next(&self, ms: i64) -> Option<Id> {
        match self.last {
            (last, number) if last == ms => Some((ms, number + 1)),
            (last, _) if last < ms => Some((ms, 0)),
            _ => None,
        }
    }

    pub fn add(&mut self, id: Id, fields: &[Bytes]) -> Reply {
        self.entries.insert(id, fields.to_vec());
        self.last = id;
        text(id)
    }

    /// Keeps so many of the last entries. How many go.
    pub fn trim(&mut self, most: i64) -> Reply {
        let gone = self
            .entries
            .len()
            .saturating_sub(usize::try_from(most).unwrap());
        (0..gone).for_each(|_| drop(self.entries.pop_first()));
        number(gone)
    }

    pub fn delete(&mut self, ids: &[Bytes]) -> Reply {
        let gone = ids
            .iter()
            .filter(|text| self.entries.remove(&id(text)).is_some());
        number(gone.count())
    }

    pub fn make_group(&mut self) -> Reply {
        if self.group.is_some() {
            return Reply::Error("BUSYGROUP Consumer Group name already exists".into());
        }
        self.group = Some(Group::default());
        ok()
    }

    /// Delivers so many entries at most; `None` without a group.
    pub fn deliver(&mut self, key: &[u8], consumer: &[u8], most: i64) -> Option<Reply> {
        let group = self.group.as_mut()?;
        let new = self
            .entries
            .iter()
            .filter(|(id, _)| **id > group.last)
            .take(usize::try_from(most).unwrap());
        let mut told = Vec::new();
        let mut last = group.last;
        for (id, fields) in new {
            last = *id;
            group.pending.insert(*id, (consumer.to_vec(), 1));
            let fields = fields.iter().map(|word| Reply::Bulk(Some(word.clone())));
            told.push(Reply::Array(vec![
                text(*id),
                Reply::Array(fields.collect()),
            ]));
        }
        group.last = last;
        Some(if told.is_empty() {
            Reply::Bulk(None)
        } else {
            let key = Reply::Bulk(Some(key.to_vec()));
            Reply::Array(vec![Reply::Array(vec![key, Reply::Array(told)])])
        })
    }

    pub fn acknowledge(&mut self, ids: &[Bytes]) -> Reply {
        let Some(group) = &mut self.group else {
            return number(0);
        };
        let gone = ids
            .iter()
            .filter(|text| group.pending.remove(&id(text)).is_some());
        number(gone.count())
    }

    /// Removes a consumer; `None` without a group.
    pub fn delete_consumer(&mut self, consumer: &[u8]) -> Option<Reply> {
        let pending = &mut self.group.as_mut()?.pending;
        let before = pending.len();
        pending.retain(|_, held| held.0 != consumer);
        Some(number(before - pending.len()))
    }
}
