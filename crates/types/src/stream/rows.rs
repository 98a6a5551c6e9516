//! The rows of a stream: names, which sort the rows, and values (docs/formats/stream.md).
//!
//! | name | row |
//! |---|---|
//! | `0` | the head |
//! | `1 group` | a group, by its name |
//! | `2 number consumer` | a consumer's number, by its name |
//! | `3 number number` | a consumer, by its number |
//! | `4 number id` | an entry that a group has delivered and that is not acknowledged |
//! | `5 number number id` | such an entry, by its consumer |
//! | `6 id` | a node |
//!
//! Groups and consumers have numbers, so that pending entries have short names. The heap's `name_place` uses the
//! numbers in kinds 4, 5 and 6 to distinguish most names without reading a row. If the positions of these numbers
//! change, `name_place` must change too.

use perdura_base::cursor::{Reader, Writer};

use super::id::Id;

/// The name of the head.
pub(super) const HEAD: &[u8] = &[0];
/// The first byte of the names of groups.
pub(super) const GROUP: u8 = 1;
/// The first byte of the names of rows that map a consumer's name to its number.
const CONSUMER_NAME: u8 = 2;
/// The first byte of the names of consumers' rows.
const CONSUMER: u8 = 3;
/// The first byte of the names of the rows that a group has for pending entries.
const PENDING: u8 = 4;
/// The first byte of the names of the rows that a consumer has for pending entries.
const CONSUMER_PENDING: u8 = 5;
/// The first byte of the names of nodes. It is the greatest of these bytes, so the last row is the
/// last node.
pub(super) const NODE: u8 = 6;

/// The name of a row. Most names are short enough to need no allocation.
pub(super) type Name = smallvec::SmallVec<[u8; 32]>;

fn name(kind: u8, parts: &[&[u8]]) -> Name {
    let mut name = Name::from_slice(&[kind]);
    parts.iter().for_each(|part| name.extend_from_slice(part));
    name
}

/// Returns the name of the node whose first entry has this id.
pub(super) fn node(id: Id) -> Name {
    name(NODE, &[&id.to_bytes()])
}

/// Returns the id in the name of a node; `None` if `name` belongs to a different row.
pub(super) fn node_id(name: &[u8]) -> Option<Id> {
    match name.split_first() {
        Some((&NODE, id)) => Some(Id::from_bytes(id.try_into().ok()?)),
        _ => None,
    }
}

/// Returns the name of a group's row, by the group's name.
pub(super) fn group(group: &[u8]) -> Name {
    name(GROUP, &[group])
}

/// Returns the name of the row that maps a consumer's name to its number.
pub(super) fn consumer_name(group: u32, consumer: &[u8]) -> Name {
    name(CONSUMER_NAME, &[&group.to_be_bytes(), consumer])
}

/// Returns the name of the row of the consumer with this number.
pub(super) fn consumer(group: u32, consumer: u32) -> Name {
    name(CONSUMER, &[&group.to_be_bytes(), &consumer.to_be_bytes()])
}

/// Returns the name of the row that a group has for a pending entry.
pub(super) fn pending(group: u32, id: Id) -> Name {
    let mut raw = [0; 21];
    raw[0] = PENDING;
    raw[1..5].copy_from_slice(&group.to_be_bytes());
    raw[5..].copy_from_slice(&id.to_bytes());
    Name::from_slice(&raw)
}

/// Returns the name of the row that a consumer has for a pending entry.
pub(super) fn consumer_pending(group: u32, consumer: u32, id: Id) -> Name {
    let mut raw = [0; 25];
    raw[0] = CONSUMER_PENDING;
    raw[1..5].copy_from_slice(&group.to_be_bytes());
    raw[5..9].copy_from_slice(&consumer.to_be_bytes());
    raw[9..].copy_from_slice(&id.to_bytes());
    Name::from_slice(&raw)
}

/// Returns a prefix. The rows with this prefix map the names of a group's consumers to numbers.
pub(super) fn consumer_names(group: u32) -> Name {
    name(CONSUMER_NAME, &[&group.to_be_bytes()])
}

/// Returns the prefixes of the names of all rows that belong to a group, except the group's own row.
pub(super) fn of_group(group: u32) -> [Name; 4] {
    [CONSUMER_NAME, CONSUMER, PENDING, CONSUMER_PENDING]
        .map(|kind| name(kind, &[&group.to_be_bytes()]))
}

/// Returns the id at the end of a pending entry's name.
pub(super) fn pending_id(name: &[u8]) -> Option<Id> {
    name.last_chunk().map(|bytes| Id::from_bytes(*bytes))
}

/// The facts about a whole stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// The id of the last added entry.
    pub last: Id,
    /// The id of the first entry; zero if the stream is empty.
    pub first: Id,
    /// The greatest id among the entries that were deleted by id. Trimmed entries do not count.
    pub deleted_max: Id,
    /// The number of entries that were ever added.
    pub added: u64,
    /// The number of entries that the stream has now.
    pub length: u64,
    /// The number of groups that were ever made.
    pub groups: u32,
}

/// A consumer group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// The group's number, which no other group of the stream has ever had.
    pub number: u32,
    /// The number of consumers that the group has ever had.
    pub consumers: u32,
    /// The last id that the group has delivered.
    pub last: Id,
    /// The number of entries that the group has read. `None`: it is not known.
    pub read: Option<u64>,
    /// The number of entries that wait to be acknowledged.
    pub pending: u64,
}

/// A consumer of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    /// The consumer's number, which no other consumer of the group has ever had.
    pub number: u32,
    /// The time of the consumer's last activity, milliseconds since 1970.
    pub seen_ms: u64,
    /// The number of entries that wait for the consumer's acknowledgement.
    pub pending: u64,
    /// The consumer's name.
    pub name: Vec<u8>,
}

/// A pending entry: delivered and not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// The number of the consumer that has the entry now.
    pub consumer: u32,
    /// The time of the entry's last delivery, milliseconds since 1970.
    pub delivered_ms: u64,
    /// The number of deliveries.
    pub deliveries: u64,
}

fn put_id(out: &mut impl Writer, id: Id) {
    out.put(&id.ms.to_le_bytes());
    out.put(&id.seq.to_le_bytes());
}

fn read_id(r: &mut Reader<'_>) -> Option<Id> {
    Some(Id {
        ms: r.u64()?,
        seq: r.u64()?,
    })
}

impl Head {
    /// Returns the value of the head's row.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(68);
        put_id(&mut out, self.last);
        put_id(&mut out, self.first);
        put_id(&mut out, self.deleted_max);
        out.put(&self.added.to_le_bytes());
        out.put(&self.length.to_le_bytes());
        out.put(&self.groups.to_le_bytes());
        out
    }

    /// Reads a value that [`encode`](Self::encode) has written; `None` if it is damaged.
    pub(super) fn decode(value: &[u8]) -> Option<Head> {
        let mut r = Reader::new(value);
        let head = Head {
            last: read_id(&mut r)?,
            first: read_id(&mut r)?,
            deleted_max: read_id(&mut r)?,
            added: r.u64()?,
            length: r.u64()?,
            groups: r.u32()?,
        };
        (r.remaining() == 0).then_some(head)
    }
}

impl Group {
    /// Returns the value of a group's row.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(40);
        out.put(&self.number.to_le_bytes());
        out.put(&self.consumers.to_le_bytes());
        put_id(&mut out, self.last);
        out.put(&self.read.unwrap_or(u64::MAX).to_le_bytes());
        out.put(&self.pending.to_le_bytes());
        out
    }

    /// Reads a value that [`encode`](Self::encode) has written; `None` if it is damaged.
    pub(super) fn decode(value: &[u8]) -> Option<Group> {
        let mut r = Reader::new(value);
        let group = Group {
            number: r.u32()?,
            consumers: r.u32()?,
            last: read_id(&mut r)?,
            read: Some(r.u64()?).filter(|read| *read != u64::MAX),
            pending: r.u64()?,
        };
        (r.remaining() == 0).then_some(group)
    }
}

impl Consumer {
    /// Returns the value of a consumer's row.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(20 + self.name.len());
        out.put(&self.number.to_le_bytes());
        out.put(&self.seen_ms.to_le_bytes());
        out.put(&self.pending.to_le_bytes());
        out.put(&self.name);
        out
    }

    /// Reads a value that [`encode`](Self::encode) has written; `None` if it is damaged.
    pub(super) fn decode(value: &[u8]) -> Option<Consumer> {
        let mut r = Reader::new(value);
        Some(Consumer {
            number: r.u32()?,
            seen_ms: r.u64()?,
            pending: r.u64()?,
            name: value[r.at()..].to_vec(),
        })
    }
}

impl Pending {
    /// Returns the value of a pending entry's row.
    pub(super) fn encode(&self) -> [u8; 20] {
        let mut out = [0; 20];
        out[..4].copy_from_slice(&self.consumer.to_le_bytes());
        out[4..12].copy_from_slice(&self.delivered_ms.to_le_bytes());
        out[12..].copy_from_slice(&self.deliveries.to_le_bytes());
        out
    }

    /// Reads a value that [`encode`](Self::encode) has written; `None` if it is damaged.
    pub(super) fn decode(value: &[u8]) -> Option<Pending> {
        let mut r = Reader::new(value);
        let pending = Pending {
            consumer: r.u32()?,
            delivered_ms: r.u64()?,
            deliveries: r.u64()?,
        };
        (r.remaining() == 0).then_some(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip_and_sort_by_kind_and_then_by_what_they_name() {
        let id = Id {
            ms: 1 << 40,
            seq: 7,
        };
        let names = [
            Name::from_slice(HEAD),
            group(b""),
            group(b"a\xff"),
            consumer_name(1, b"x"),
            consumer_name(2, b""),
            consumer(1, 2),
            consumer(256, 1),
            pending(1, id),
            pending(1, Id::MAX),
            consumer_pending(1, 1, id),
            consumer_pending(1, 2, Id::MIN),
            node(Id::MIN),
            node(id),
        ];
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(node_id(&node(id)), Some(id));
        assert_eq!(node_id(&pending(1, id)), None);
        assert_eq!(pending_id(&consumer_pending(1, 1, id)), Some(id));
        let head = Head {
            last: id,
            first: Id::MIN,
            deleted_max: Id::MAX,
            added: 5,
            length: 4,
            groups: 3,
        };
        assert_eq!(Head::decode(&head.encode()), Some(head));
        for read in [None, Some(0), Some(9)] {
            let group = Group {
                number: 1,
                consumers: 2,
                last: id,
                read,
                pending: 3,
            };
            assert_eq!(Group::decode(&group.encode()), Some(group));
        }
        let consumer = Consumer {
            number: 1,
            seen_ms: 2,
            pending: 3,
            name: b"name".to_vec(),
        };
        assert_eq!(Consumer::decode(&consumer.encode()), Some(consumer));
        let pending = Pending {
            consumer: 1,
            delivered_ms: 2,
            deliveries: 3,
        };
        assert_eq!(Pending::decode(&pending.encode()), Some(pending));
        for short in 0..20 {
            assert!(Head::decode(&[0; 60][..short]).is_none());
            assert!(Group::decode(&[0; 60][..short]).is_none());
            assert!(Consumer::decode(&[0; 60][..short]).is_none());
            assert!(Pending::decode(&[0; 60][..short]).is_none());
        }
    }
}
