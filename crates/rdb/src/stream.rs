//! Streams: entries packed in nodes, and groups of consumers.
//!
//! | type | Redis | adds |
//! |---|---|---|
//! | 15 | 5.0 | |
//! | 19 | 7.0 | the first id, the greatest deleted id, the count of entries added, each group's count of entries read |
//! | 21 | 7.2 | the time at which each consumer was last active |
//!
//! A node is a listpack. The listpack begins with the number of entries, the number of deleted entries, the first
//! entry's field names, and a zero. An entry consists of flags, the entry's id minus the node's id, fields, and the
//! number of these parts. All three types are read, and type 19 is written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;

use crate::error::Result;
use crate::packed::{self, ListpackWriter};
use crate::payload::{put_length, put_number, put_string};
use crate::source::Source;

/// The id of an entry: milliseconds, and a number within the millisecond.
pub type StreamId = (u64, u64);

/// A stream, or a piece of a stream. Each piece has some of the entries. Only the last piece has the other fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stream {
    /// The entries that were not deleted. Their ids ascend.
    pub entries: Vec<StreamEntry>,
    /// The last id given to an entry.
    pub last: StreamId,
    /// The greatest id of an individually deleted entry, or zero.
    pub deleted_max: StreamId,
    /// The number of entries that were ever added.
    pub added: u64,
    /// Its groups of consumers.
    pub groups: Vec<StreamGroup>,
}

/// An entry of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEntry {
    /// Its id.
    pub id: StreamId,
    /// Fields and values.
    pub pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A group of consumers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamGroup {
    /// Its name.
    pub name: Vec<u8>,
    /// The last id that the group has delivered.
    pub last: StreamId,
    /// The number of entries that it has read. `None`: unknown.
    pub read: Option<u64>,
    /// Its consumers.
    pub consumers: Vec<StreamConsumer>,
}

/// A consumer of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamConsumer {
    /// Its name.
    pub name: Vec<u8>,
    /// The time of the consumer's last activity, milliseconds since 1970.
    pub seen_ms: u64,
    /// The entries that it has not acknowledged. Their ids ascend.
    pub pending: Vec<StreamPending>,
}

/// A delivered entry without an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPending {
    /// Its id. The entry itself may have been deleted.
    pub id: StreamId,
    /// The time of its last delivery, milliseconds since 1970.
    pub delivered_ms: u64,
    /// The number of its deliveries.
    pub deliveries: u64,
}

/// The type byte of the streams that this crate writes.
pub const WRITTEN: u8 = 19;
/// The lowest type byte of streams that store the time of each consumer's last activity.
const WITH_ACTIVITY: u8 = 21;

/// The limits for a node that this crate writes. Redis has the same limits. A node has at most `NODE_ENTRIES_MAX`
/// entries. A node with `NODE_BYTES_ENOUGH` bytes gets no more entries.
const NODE_ENTRIES_MAX: usize = 100;
const NODE_BYTES_ENOUGH: usize = 4096;

/// The flag of an entry that is deleted.
const DELETED: u64 = 1;
/// The flag of an entry that has the field names of the node's first entry, and does not repeat them.
const SAME_FIELDS: u64 = 2;

/// The maximum size of a node's unpacked entries, as a multiple of the node's size. Unpacked entries take more bytes
/// than the node, because the node stores shared field names once.
const UNPACKED_MAX: usize = 128;

/// The value that a dump stores for a group's count of read entries if the count is unknown.
const NOT_KNOWN: u64 = u64::MAX;

/// Reads a stream of one of the three types.
pub fn read<R: Read>(source: &mut Source<R>, kind: u8) -> Result<Stream> {
    let mut stream = Stream::default();
    for _ in 0..source.length()? {
        let base = source.string()?;
        let Ok(base) = <[u8; 16]>::try_from(base) else {
            return Err(source.corrupt("the name of a stream's node has another length than an id"));
        };
        let node = source.string()?;
        let room = node.len().saturating_mul(UNPACKED_MAX);
        let node = packed::listpack(&node).and_then(|parts| {
            let damaged = "a node of a stream is damaged";
            node_entries(id_of(base), room, parts, &mut stream.entries).ok_or(damaged)
        });
        node.map_err(|why| source.corrupt(why))?;
    }
    let length = source.length()?;
    if usize::try_from(length) != Ok(stream.entries.len()) {
        return Err(source.corrupt("a stream has another number of entries than it says"));
    }
    stream.last = read_id(source)?;
    stream.added = length;
    if kind >= WRITTEN {
        read_id(source)?; // the first id, which is that of the first entry
        stream.deleted_max = read_id(source)?;
        stream.added = source.length()?;
    }
    let mut last = (0, 0);
    for entry in &stream.entries {
        if entry.id <= last {
            return Err(source.corrupt("the ids of a stream do not ascend"));
        }
        last = entry.id;
    }
    if stream.last < last {
        return Err(source.corrupt("a stream has entries behind its last id"));
    }
    let mut names = HashSet::new();
    for _ in 0..source.length()? {
        let group = read_group(source, kind, &stream)?;
        if !names.insert(group.name.clone()) {
            return Err(source.corrupt("a stream has two groups of one name"));
        }
        stream.groups.push(group);
    }
    debug_assert_eq!(
        names.len(),
        stream.groups.len(),
        "each group has a name of its own"
    );
    Ok(stream)
}

fn id_of(bytes: [u8; 16]) -> StreamId {
    let number = u128::from_be_bytes(bytes);
    let half = |half: u128| u64::try_from(half & u128::from(u64::MAX)).unwrap_or(u64::MAX);
    (half(number >> 64), half(number))
}

fn bytes_of((ms, seq): StreamId) -> [u8; 16] {
    (u128::from(ms) << 64 | u128::from(seq)).to_be_bytes()
}

fn read_id<R: Read>(source: &mut Source<R>) -> Result<StreamId> {
    Ok((source.length()?, source.length()?))
}

/// Appends a node's entries, except the deleted entries. `None`: the node is damaged, or its entries take more than
/// `room` bytes.
fn node_entries(
    base: StreamId,
    mut room: usize,
    parts: Vec<Vec<u8>>,
    entries: &mut Vec<StreamEntry>,
) -> Option<()> {
    let mut parts = parts.into_iter();
    let count = number(&parts.next()?)?;
    let deleted = number(&parts.next()?)?;
    let fields = usize::try_from(number(&parts.next()?)?).ok()?;
    let names: Vec<Vec<u8>> = parts.by_ref().take(fields).collect();
    if names.len() != fields || number(&parts.next()?)? != 0 {
        return None;
    }
    let mut found = [0; 2];
    while let Some(flags) = parts.next() {
        let flags = number(&flags)?;
        let ms = base.0.wrapping_add(signed(&parts.next()?)?);
        let seq = base.1.wrapping_add(signed(&parts.next()?)?);
        let is_same = flags & SAME_FIELDS != 0;
        let len = match is_same {
            true => fields,
            false => usize::try_from(number(&parts.next()?)?).ok()?,
        };
        let mut pairs = Vec::with_capacity(len.min(parts.len()));
        let mut same = names.iter();
        for _ in 0..len {
            let name = match is_same {
                true => same.next()?.clone(),
                false => parts.next()?,
            };
            pairs.push((name, parts.next()?));
        }
        let behind = if is_same { len + 3 } else { 2 * len + 4 };
        if usize::try_from(number(&parts.next()?)?) != Ok(behind) {
            return None;
        }
        let is_deleted = flags & DELETED != 0;
        found[usize::from(is_deleted)] += 1;
        if !is_deleted {
            let id = (ms, seq);
            let entry = StreamEntry { id, pairs };
            room = room.checked_sub(entry.bytes())?;
            entries.push(entry);
        }
    }
    (found == [count, deleted]).then_some(())
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads a signed number of 64 bits. Returns the number's bits as an unsigned number, for a wrapping addition.
fn signed(text: &[u8]) -> Option<u64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(number.cast_unsigned())
}

fn read_group<R: Read>(source: &mut Source<R>, kind: u8, stream: &Stream) -> Result<StreamGroup> {
    let name = source.string()?;
    let last = read_id(source)?;
    let read = match kind {
        WRITTEN.. => Some(source.length()?).filter(|read| *read != NOT_KNOWN),
        _ => read_up_to(last, stream),
    };
    let mut pending = HashMap::new();
    for _ in 0..source.length()? {
        let id = id_of(source.array()?);
        let delivered_ms = u64::from_le_bytes(source.array()?);
        let deliveries = source.length()?;
        let one = StreamPending {
            id,
            delivered_ms,
            deliveries,
        };
        if pending.insert(id, one).is_some() {
            return Err(source.corrupt("an entry is pending twice in a group"));
        }
    }
    let (mut consumers, mut names) = (Vec::new(), HashSet::new());
    for _ in 0..source.length()? {
        let consumer = read_consumer(source, kind, &mut pending)?;
        if !names.insert(consumer.name.clone()) {
            return Err(source.corrupt("a group has two consumers of one name"));
        }
        consumers.push(consumer);
    }
    if !pending.is_empty() {
        return Err(source.corrupt("an entry is pending in a group and no consumer has it"));
    }
    debug_assert_eq!(
        names.len(),
        consumers.len(),
        "each consumer has a name of its own"
    );
    Ok(StreamGroup {
        name,
        last,
        read,
        consumers,
    })
}

/// Returns the number of entries that a group has read if `id` is the last entry that it delivered. `None`: the number
/// is unknown. Streams of type 15 do not store this number. The function takes the first
/// remaining entry as the first entry that was ever added.
fn read_up_to(id: StreamId, stream: &Stream) -> Option<u64> {
    let Some(first) = stream.entries.first() else {
        return Some(0);
    };
    match id {
        _ if id == stream.last => Some(stream.added),
        _ if id > stream.last => None,
        _ if id < first.id => Some(0),
        _ => (id == first.id).then_some(1),
    }
}

fn read_consumer<R: Read>(
    source: &mut Source<R>,
    kind: u8,
    of_group: &mut HashMap<StreamId, StreamPending>,
) -> Result<StreamConsumer> {
    let name = source.string()?;
    let seen_ms = u64::from_le_bytes(source.array()?);
    if kind >= WITH_ACTIVITY {
        source.array::<8>()?;
    }
    let mut pending = BTreeMap::new();
    for _ in 0..source.length()? {
        let id = id_of(source.array()?);
        let one = of_group.remove(&id).ok_or_else(|| {
            source
                .corrupt("a consumer has an entry that is not pending in its group, or not its own")
        })?;
        pending.insert(id, one);
    }
    Ok(StreamConsumer {
        name,
        seen_ms,
        pending: pending.into_values().collect(),
    })
}

/// Appends a stream of type [`WRITTEN`].
pub fn put(out: &mut Vec<u8>, stream: &Stream) {
    let nodes = nodes(&stream.entries);
    put_length(out, nodes.len());
    for node in nodes {
        put_string(out, &bytes_of(node[0].id));
        put_string(out, &packed_node(node));
    }
    put_length(out, stream.entries.len());
    put_id(out, stream.last);
    put_id(out, stream.entries.first().map_or((0, 0), |entry| entry.id));
    put_id(out, stream.deleted_max);
    put_number(out, stream.added);
    put_length(out, stream.groups.len());
    stream.groups.iter().for_each(|group| put_group(out, group));
}

fn put_id(out: &mut Vec<u8>, (ms, seq): StreamId) {
    put_number(out, ms);
    put_number(out, seq);
}

/// Splits the entries into nodes. No node is empty.
fn nodes(entries: &[StreamEntry]) -> Vec<&[StreamEntry]> {
    let mut nodes = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (at, entry) in entries.iter().enumerate() {
        if at > from && (at - from == NODE_ENTRIES_MAX || bytes >= NODE_BYTES_ENOUGH) {
            nodes.push(&entries[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += entry.bytes();
    }
    if from < entries.len() {
        nodes.push(&entries[from..]);
    }
    let packed: usize = nodes.iter().map(|node: &&[StreamEntry]| node.len()).sum();
    debug_assert_eq!(packed, entries.len(), "each entry is in one node");
    nodes
}

impl StreamEntry {
    /// Returns the total size of the fields and values, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pairs.iter().map(|(a, b)| a.len() + b.len()).sum()
    }

    fn names(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.pairs.iter().map(|(name, _)| name)
    }
}

fn packed_node(entries: &[StreamEntry]) -> Vec<u8> {
    assert!(!entries.is_empty(), "a node has an entry");
    assert!(
        entries.len() <= NODE_ENTRIES_MAX,
        "a node is closed when it is full"
    );
    let first = &entries[0];
    let mut node = ListpackWriter::new();
    node.count(entries.len());
    node.number(0);
    node.count(first.pairs.len());
    first.names().for_each(|name| node.text(name));
    node.number(0);
    for entry in entries {
        let is_same = entry.names().eq(first.names());
        node.number(if is_same {
            SAME_FIELDS.cast_signed()
        } else {
            0
        });
        node.number(entry.id.0.wrapping_sub(first.id.0).cast_signed());
        node.number(entry.id.1.wrapping_sub(first.id.1).cast_signed());
        let len = entry.pairs.len();
        if !is_same {
            node.count(len);
        }
        for (name, value) in &entry.pairs {
            if !is_same {
                node.text(name);
            }
            node.text(value);
        }
        node.count(if is_same { len + 3 } else { 2 * len + 4 });
    }
    node.end()
}

fn put_group(out: &mut Vec<u8>, group: &StreamGroup) {
    put_string(out, &group.name);
    put_id(out, group.last);
    put_number(out, group.read.unwrap_or(NOT_KNOWN));
    let of = |consumer: &StreamConsumer| consumer.pending.clone();
    let mut pending: Vec<StreamPending> = group.consumers.iter().flat_map(of).collect();
    pending.sort_unstable_by_key(|one| one.id);
    put_length(out, pending.len());
    for one in pending {
        out.extend_from_slice(&bytes_of(one.id));
        out.extend_from_slice(&one.delivered_ms.to_le_bytes());
        put_number(out, one.deliveries);
    }
    put_length(out, group.consumers.len());
    for consumer in &group.consumers {
        put_string(out, &consumer.name);
        out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
        put_length(out, consumer.pending.len());
        for one in &consumer.pending {
            out.extend_from_slice(&bytes_of(one.id));
        }
    }
}
