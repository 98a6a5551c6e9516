//! A stream in the model: the entries, and the groups with pending entries.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Bytes, number, ok, parsed};
use crate::support::Reply;

/// An id: milliseconds and a sequence number.
pub type Id = (i64, i64);

/// The names that groups can have.
pub const GROUPS: [&[u8]; 2] = [b"g", b"h"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    pub entries: BTreeMap<Id, Vec<Bytes>>,
    /// The id of the last entry that was added.
    pub last: Id,
    pub groups: BTreeMap<Bytes, Group>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// The id of the last entry that was delivered.
    pub last: Id,
    pub consumers: BTreeSet<Bytes>,
    /// The pending entries, each with a consumer and a count of deliveries.
    pub pending: BTreeMap<Id, (Bytes, i64)>,
}

pub fn id(text: &[u8]) -> Id {
    let dash = text.iter().position(|byte| *byte == b'-').unwrap();
    (parsed(&text[..dash]), parsed(&text[dash + 1..]))
}

pub fn text(id: Id) -> Reply {
    Reply::Bulk(Some(format!("{}-{}", id.0, id.1).into_bytes()))
}

/// Returns an entry in the form of a reply. A deleted entry has no fields.
fn shown(id: Id, fields: Option<&Vec<Bytes>>) -> Reply {
    let fields = fields.map_or(Reply::Bulk(None), |fields| {
        let words = fields.iter().map(|word| Reply::Bulk(Some(word.clone())));
        Reply::Array(words.collect())
    });
    Reply::Array(vec![text(id), fields])
}

impl Stream {
    /// Returns the id that the server gives to an entry added as `ms-*`. Returns `None` if the last id has a later
    /// `ms`.
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

    /// Removes all but the last `most` entries. Returns the number of removed entries.
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

    /// Runs `XGROUP verb` on a group. `None`: the group does not exist.
    pub fn manage(&mut self, verb: &[u8], name: &Bytes, rest: &[Bytes]) -> Option<Reply> {
        if verb == b"CREATE" {
            if self.groups.contains_key(name) {
                let text = "BUSYGROUP Consumer Group name already exists";
                return Some(Reply::Error(text.into()));
            }
            self.groups.insert(name.clone(), Group::default());
            return Some(ok());
        }
        if verb == b"DESTROY" {
            let gone = self.groups.remove(name);
            return Some(number(usize::from(gone.is_some())));
        }
        let group = self.groups.get_mut(name)?;
        Some(match verb {
            b"SETID" => {
                group.last = id(&rest[0]);
                ok()
            }
            b"CREATECONSUMER" => number(usize::from(group.consumers.insert(rest[0].clone()))),
            b"DELCONSUMER" => {
                group.consumers.remove(&rest[0]);
                let before = group.pending.len();
                group.pending.retain(|_, held| held.0 != rest[0]);
                number(before - group.pending.len())
            }
            other => panic!("XGROUP {} is not in the model", other.escape_ascii()),
        })
    }

    /// Delivers up to `how.most` new entries. If `how.keeps`, they become pending. `None`: the group does not exist.
    pub fn deliver(&mut self, key: &[u8], name: &Bytes, how: &Delivery) -> Option<Reply> {
        let group = self.groups.get_mut(name)?;
        let new = self
            .entries
            .iter()
            .filter(|(id, _)| **id > group.last)
            .take(usize::try_from(how.most).unwrap());
        let mut given = Vec::new();
        let mut last = group.last;
        for (id, fields) in new {
            last = *id;
            if how.keeps {
                group.pending.insert(*id, (how.consumer.clone(), 1));
            }
            given.push(shown(*id, Some(fields)));
        }
        group.last = last;
        if given.is_empty() {
            return Some(Reply::Bulk(None));
        }
        group.consumers.insert(how.consumer.clone());
        let key = Reply::Bulk(Some(key.to_vec()));
        Some(Reply::Array(vec![Reply::Array(vec![
            key,
            Reply::Array(given),
        ])]))
    }

    pub fn acknowledge(&mut self, name: &Bytes, ids: &[Bytes]) -> Reply {
        let Some(group) = self.groups.get_mut(name) else {
            return number(0);
        };
        let gone = ids
            .iter()
            .filter(|text| group.pending.remove(&id(text)).is_some());
        number(gone.count())
    }

    /// Gives the named pending entries to a consumer. If the stream no longer has a named entry, the entry stops being
    /// pending. `None`: the group does not exist.
    pub fn claim(&mut self, name: &Bytes, consumer: &Bytes, rest: &[Bytes]) -> Option<Reply> {
        let group = self.groups.get_mut(name)?;
        let just_ids = rest.last().is_some_and(|word| word == b"JUSTID");
        let mut given = Vec::new();
        for id in rest
            .iter()
            .filter(|word| *word != b"JUSTID")
            .map(|word| id(word))
        {
            let Some(fields) = self.entries.get(&id) else {
                group.pending.remove(&id);
                continue;
            };
            if let Some(held) = group.pending.get_mut(&id) {
                held.0.clone_from(consumer);
                held.1 += i64::from(!just_ids);
                group.consumers.insert(consumer.clone());
                given.push(if just_ids {
                    text(id)
                } else {
                    shown(id, Some(fields))
                });
            }
        }
        Some(Reply::Array(given))
    }

    /// Gives the first `most` pending entries to a consumer. `None`: the group does not exist.
    pub fn claim_first(&mut self, name: &Bytes, consumer: &Bytes, most: usize) -> Option<Reply> {
        let group = self.groups.get_mut(name)?;
        let mut given = Vec::new();
        let mut gone = Vec::new();
        let all: Vec<Id> = group.pending.keys().copied().collect();
        let (first, rest) = all.split_at(most.min(all.len()));
        for id in first {
            let Some(fields) = self.entries.get(id) else {
                group.pending.remove(id);
                gone.push(text(*id));
                continue;
            };
            let held = group.pending.get_mut(id).expect("it is pending");
            *held = (consumer.clone(), held.1 + 1);
            group.consumers.insert(consumer.clone());
            given.push(shown(*id, Some(fields)));
        }
        let next = rest.first().copied().unwrap_or_default();
        Some(Reply::Array(vec![
            text(next),
            Reply::Array(given),
            Reply::Array(gone),
        ]))
    }
}

/// A delivery of new entries.
pub struct Delivery {
    pub consumer: Bytes,
    pub most: i64,
    /// True if the entries become pending (no NOACK).
    pub keeps: bool,
}
