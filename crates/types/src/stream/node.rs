//! A node: some neighbouring entries in one row, packed (docs/formats/stream.md).
//!
//! The row's name has the id of the first entry added to the node. A deleted entry is marked and stays where it is, so
//! a deletion changes a byte or two and moves nothing. The value has free bytes after the entries. Appending an entry
//! changes only some of these bytes and the head.

use perdura_base::cursor::{Reader, Writer};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::{to_u64, to_usize};

use super::id::Id;
use crate::number::parse_i64;
use crate::small::Cell;

/// The maximum number of entries in a node, deleted entries included, as in Redis.
pub const NODE_ENTRIES_MAX: u16 = 100;
/// The usual lengths of a node's value, in bytes. A row with a value of one of these lengths fills its slot. An entry
/// that does not fit in the greatest length has a node with a longer value, and no other entry joins it.
pub const NODE_BYTES: [usize; 5] = [120, 248, 488, 968, 1888];

/// Returns the greatest length to which a node's value may grow if each entry takes `entry_bytes`. Each write copies
/// the node and searches it for changes. Therefore the node stays shorter if the shorter length fits eight entries.
fn longest(entry_bytes: usize) -> usize {
    match entry_bytes.saturating_mul(8) <= NODE_BYTES[3] {
        true => NODE_BYTES[3],
        false => NODE_BYTES[4],
    }
}

/// The number of bytes before the field names of the node's first entry.
const HEAD_BYTES: usize = 8;
/// The flag of a deleted entry.
const DELETED: u8 = 1;
/// The flag of an entry that has the field names of the node's first entry, and so does not store names.
const SAME_FIELDS: u8 = 2;

/// The greatest lead (first byte of a packed text) that is the length of a text. The text follows the lead.
const SHORT_MAX: u8 = 127;
/// The lead of a longer text. The length follows the lead.
const LONG: u8 = 128;
/// The greatest lead of an integer of one to eight bytes. The least lead of these integers is above [`LONG`].
const WIDE_MAX: u8 = 136;
/// The lowest lead that encodes a small integer by itself, without further bytes.
const INLINE: u8 = 137;

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    if let Some(value) = parse_i64(text) {
        let inline = u8::try_from(value).ok().and_then(|v| v.checked_add(INLINE));
        if let Some(lead) = inline {
            return out.push(lead);
        }
        let bits = 65 - (value ^ (value >> 63)).leading_zeros();
        let bytes = to_usize(u64::from(bits.div_ceil(8))).min(8);
        out.push(LONG + u8::try_from(bytes).unwrap_or(8));
        return out.extend_from_slice(&value.to_le_bytes()[..bytes]);
    }
    match u8::try_from(text.len()) {
        Ok(len) if len <= SHORT_MAX => out.push(len),
        _ => {
            out.push(LONG);
            out.put_varint(to_u64(text.len()));
        }
    }
    out.extend_from_slice(text);
}

fn read_text<'n>(r: &mut Reader<'n>) -> Option<Cell<'n>> {
    let lead = r.u8()?;
    Some(match lead {
        0..=SHORT_MAX => Cell::Text(r.bytes(usize::from(lead))?),
        LONG => {
            let len = r.varint_usize()?;
            Cell::Text(r.bytes(len)?)
        }
        129..=WIDE_MAX => {
            let body = r.bytes(usize::from(lead - LONG))?;
            let negative = body.last().is_some_and(|top| top & 0x80 != 0);
            let mut raw = [if negative { 0xff } else { 0 }; 8];
            raw[..body.len()].copy_from_slice(body);
            Cell::of_integer(i64::from_le_bytes(raw))
        }
        INLINE.. => Cell::of_integer(i64::from(lead - INLINE)),
    })
}

/// Skips a text.
fn skip_text(r: &mut Reader<'_>) -> Option<()> {
    let lead = r.u8()?;
    let len = match lead {
        0..=SHORT_MAX => usize::from(lead),
        LONG => r.varint_usize()?,
        129..=WIDE_MAX => usize::from(lead - LONG),
        INLINE.. => 0,
    };
    r.bytes(len).map(drop)
}

/// A node that is being read.
#[derive(Debug, Clone, Copy)]
pub struct Node<'n> {
    base: Id,
    live: u16,
    /// The bytes in use.
    used: &'n [u8],
    entries_at: usize,
}

impl<'n> Node<'n> {
    /// Parses the node of a row; `None` if it is damaged.
    #[must_use]
    pub fn parse(base: Id, value: &'n [u8]) -> Option<Node<'n>> {
        let mut r = Reader::new(value);
        let used = value.get(..to_usize(u64::from(r.u32()?)))?;
        let (live, count) = (r.u16()?, r.u16()?);
        if live > count {
            return None;
        }
        let mut r = Reader::new(used);
        r.bytes(HEAD_BYTES)?;
        for _ in 0..r.varint()? {
            skip_text(&mut r)?;
        }
        Some(Node {
            base,
            live,
            used,
            entries_at: r.at(),
        })
    }

    /// Returns the number of entries that are not deleted.
    #[must_use]
    pub fn live(&self) -> u64 {
        u64::from(self.live)
    }

    /// Returns the entries in order, without deleted entries. The iterator ends early if the node is damaged, which
    /// [`is_whole`](Self::is_whole) detects.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'n>> + use<'n> {
        let node = *self;
        let mut at = self.entries_at;
        std::iter::from_fn(move || {
            loop {
                let (entry, end) = node.entry_at(at)?;
                at = end;
                if !entry.is_deleted {
                    return Some(entry);
                }
            }
        })
    }

    /// Returns whether all entries parse, the ids ascend, and the head's count of entries is right.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let (mut at, mut live) = (self.entries_at, 0);
        let mut last = None;
        while let Some((entry, end)) = self.entry_at(at) {
            if last.is_some_and(|last| entry.id <= last) {
                return false;
            }
            last = Some(entry.id);
            live += u64::from(!entry.is_deleted);
            at = end;
        }
        at == self.used.len() && live == self.live()
    }

    fn entry_at(&self, at: usize) -> Option<(Entry<'n>, usize)> {
        let mut r = Reader::new(self.used.get(at..)?);
        let flags = r.u8()?;
        let ms = self.base.ms.checked_add(r.varint()?)?;
        let seq = r.varint()?;
        let seq = match ms == self.base.ms {
            true => self.base.seq.checked_add(seq)?,
            false => seq,
        };
        let is_same = flags & SAME_FIELDS != 0;
        let len = match is_same {
            true => Reader::new(self.used.get(HEAD_BYTES..)?).varint()?,
            false => r.varint()?,
        };
        let pairs_at = at + r.at();
        for _ in 0..if is_same { len } else { len.checked_mul(2)? } {
            skip_text(&mut r)?;
        }
        let entry = Entry {
            id: Id { ms, seq },
            len,
            used: self.used,
            pairs_at,
            flags_at: at,
            is_same,
            is_deleted: flags & DELETED != 0,
        };
        Some((entry, at + r.at()))
    }
}

/// An entry that is being read.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'n> {
    /// Its id.
    pub id: Id,
    len: u64,
    used: &'n [u8],
    pairs_at: usize,
    flags_at: usize,
    is_same: bool,
    is_deleted: bool,
}

impl<'n> Entry<'n> {
    /// Returns the number of fields of the entry.
    #[must_use]
    pub fn len(&self) -> usize {
        to_usize(self.len)
    }

    /// Returns whether the entry has no fields. No command adds an entry without fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the fields of the entry with their values.
    pub fn pairs(&self) -> impl Iterator<Item = (Cell<'n>, Cell<'n>)> + use<'n> {
        let mut values = Reader::new(self.used.get(self.pairs_at..).unwrap_or(&[]));
        let mut names = Reader::new(self.used.get(HEAD_BYTES..).unwrap_or(&[]));
        let is_same = self.is_same;
        if is_same {
            names.varint();
        }
        let mut left = self.len;
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let name = read_text(if is_same { &mut names } else { &mut values })?;
            Some((name, read_text(&mut values)?))
        })
    }
}

/// Returns the value of a new node with one entry and room for more. `is_first` is true if the stream has no other
/// node. In that case the room for more entries is small.
#[must_use]
pub fn new_node(fields: &[&[u8]], is_first: bool) -> Vec<u8> {
    assert!(fields.len().is_multiple_of(2), "fields and values by turns");
    let mut value = vec![0; HEAD_BYTES];
    value.put_varint(to_u64(fields.len() / 2));
    fields
        .iter()
        .step_by(2)
        .for_each(|name| put_text(&mut value, name));
    put_entry(&mut value, 0, 0, fields, true);
    set_head(&mut value, 1, 1);
    let used = value.len();
    let room = if is_first { used } else { longest(used) };
    let room = NODE_BYTES.iter().find(|bytes| **bytes >= room.max(used));
    value.resize(room.copied().unwrap_or(used), 0);
    debug_assert!(Node::parse(Id::MIN, &value).is_some_and(|node| node.is_whole()));
    value
}

/// Appends an entry to the value of a node. Returns false, and leaves the value unchanged, if there was no room.
#[must_use]
pub fn append(value: &mut Vec<u8>, base: Id, id: Id, fields: &[&[u8]]) -> bool {
    let mut r = Reader::new(value);
    let (Some(used), Some(live), Some(count)) = (r.u32(), r.u16(), r.u16()) else {
        return false;
    };
    let (used, room) = (to_usize(u64::from(used)), value.len());
    if count >= NODE_ENTRIES_MAX
        || live > count
        || id <= base
        || !(HEAD_BYTES..=room).contains(&used)
    {
        return false;
    }
    let mut names = Reader::new(&value[HEAD_BYTES..used]);
    let is_same = names.varint() == Some(to_u64(fields.len() / 2))
        && fields
            .iter()
            .step_by(2)
            .all(|field| read_text(&mut names).is_some_and(|name| *name == **field));
    let ms = id.ms - base.ms;
    let seq = if ms == 0 { id.seq - base.seq } else { id.seq };
    let mut entry = Vec::with_capacity(64);
    put_entry(&mut entry, ms, seq, fields, is_same);
    let end = used + entry.len();
    let most = longest(end / usize::from(count + 1)).max(room);
    let mut rooms = NODE_BYTES.iter().filter(|bytes| **bytes <= most);
    let Some(room) = rooms.find(|bytes| **bytes >= end.max(room)) else {
        return false;
    };
    let grows = *room > value.len();
    value.resize(*room, 0);
    value[used..end].copy_from_slice(&entry);
    if !(grows && armed(Flaw::GrownNodeTorn)) {
        set_used(value, end);
    }
    set_counts(value, live + 1, count + 1);
    true
}

/// Marks the entry with this id as deleted. Returns the number of entries left; `None` if the node does not have the
/// entry.
#[must_use]
pub fn delete(value: &mut [u8], base: Id, id: Id) -> Option<u64> {
    let node = Node::parse(base, value)?;
    let found = node.entries().find(|entry| entry.id >= id)?;
    if found.id != id {
        return None;
    }
    let (at, live) = (found.flags_at, node.live - 1);
    value[at] |= DELETED;
    value[4..6].copy_from_slice(&live.to_le_bytes());
    Some(u64::from(live))
}

/// Marks the first `count` entries as deleted. The node must have more than `count` entries.
pub fn delete_first(value: &mut [u8], base: Id, count: u64) {
    let Some(node) = Node::parse(base, value) else {
        return;
    };
    assert!(count < node.live(), "a node without entries is removed");
    let marks: Vec<usize> = node
        .entries()
        .take(to_usize(count))
        .map(|entry| entry.flags_at)
        .collect();
    let left = node.live - u16::try_from(marks.len()).unwrap_or(node.live);
    for at in marks {
        value[at] |= DELETED;
    }
    value[4..6].copy_from_slice(&left.to_le_bytes());
}

fn put_entry(out: &mut Vec<u8>, ms: u64, seq: u64, fields: &[&[u8]], is_same: bool) {
    out.push(if is_same { SAME_FIELDS } else { 0 });
    out.put_varint(ms);
    out.put_varint(seq);
    if is_same {
        let values = fields.iter().skip(1).step_by(2);
        return values.for_each(|value| put_text(out, value));
    }
    out.put_varint(to_u64(fields.len() / 2));
    fields.iter().for_each(|text| put_text(out, text));
}

fn set_head(value: &mut [u8], live: u16, count: u16) {
    set_used(value, value.len());
    set_counts(value, live, count);
}

fn set_used(value: &mut [u8], used: usize) {
    value[..4].copy_from_slice(&perdura_base::num::to_u32(used).to_le_bytes());
}

fn set_counts(value: &mut [u8], live: u16, count: u16) {
    assert!(live <= count, "{live} of {count} entries are not deleted");
    value[4..6].copy_from_slice(&live.to_le_bytes());
    value[6..8].copy_from_slice(&count.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(rng: &mut fastrand::Rng) -> Vec<u8> {
        match rng.u8(0..6) {
            0 => rng.i64(..).to_string().into_bytes(),
            1 => rng.i64(-200..200).to_string().into_bytes(),
            2 => vec![b'x'; rng.usize(120..140)],
            3 => vec![rng.u8(..); rng.usize(0..4)],
            4 => b"00".to_vec(),
            _ => format!("field {}", rng.u8(0..3)).into_bytes(),
        }
    }

    type Model = Vec<(Id, Vec<Vec<u8>>)>;

    fn read(base: Id, value: &[u8]) -> Model {
        let node = Node::parse(base, value).expect("a node");
        assert!(node.is_whole());
        let flat = |entry: Entry<'_>| {
            let pairs = entry.pairs();
            let texts = pairs.flat_map(|(name, value)| [name.to_vec(), value.to_vec()]);
            (entry.id, texts.collect())
        };
        node.entries().map(flat).collect()
    }

    #[test]
    fn nodes_hold_what_was_appended_and_not_deleted() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let fields = |rng: &mut fastrand::Rng| -> Vec<Vec<u8>> {
                (0..2 * rng.usize(1..4)).map(|_| text(rng)).collect()
            };
            let base = Id {
                ms: rng.u64(..1 << 40),
                seq: rng.u64(..5),
            };
            let first = fields(&mut rng);
            let refs: Vec<&[u8]> = first.iter().map(Vec::as_slice).collect();
            let mut value = new_node(&refs, rng.bool());
            let mut model: Model = vec![(base, first)];
            let mut last = base;
            for _ in 0..rng.usize(0..150) {
                if rng.u8(0..20) == 0 && !model.is_empty() {
                    let count = rng.usize(..model.len());
                    model.drain(..count);
                    delete_first(&mut value, base, to_u64(count));
                    continue;
                }
                if rng.u8(0..4) == 0 && !model.is_empty() {
                    let at = rng.usize(..model.len());
                    let id = model.remove(at).0;
                    assert_eq!(delete(&mut value, base, id), Some(to_u64(model.len())));
                    assert_eq!(delete(&mut value, base, id), None);
                    continue;
                }
                let id = match rng.bool() {
                    true => last.next().expect("far from the end"),
                    false => Id {
                        ms: last.ms + rng.u64(1..1 << 20),
                        seq: rng.u64(..),
                    },
                };
                let new = match rng.bool() {
                    true => model
                        .first()
                        .map_or_else(|| fields(&mut rng), |m| m.1.clone()),
                    false => fields(&mut rng),
                };
                let texts = new.clone();
                let refs: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
                let before = value.clone();
                if append(&mut value, base, id, &refs) {
                    model.push((id, new));
                    last = id;
                    assert!(NODE_BYTES.contains(&value.len()));
                } else {
                    assert_eq!(value, before);
                }
                assert!(!append(&mut value, base, base, &refs), "ids ascend");
            }
            assert_eq!(read(base, &value), model);
        }
    }

    #[test]
    fn the_example_of_the_format_is_what_is_written() {
        let base = Id { ms: 1, seq: 0 };
        let mut value = new_node(&[b"f", b"x"], true);
        assert!(append(
            &mut value,
            base,
            Id { ms: 1, seq: 1 },
            &[b"f", b"7"]
        ));
        let head = [0x14, 0, 0, 0, 2, 0, 2, 0, 1, 1, 0x66];
        let entries = [2, 0, 0, 1, 0x78, 2, 0, 1, 0x90];
        assert_eq!(value[..20], [&head[..], &entries].concat());
        assert_eq!(value[20..], [0; 100]);
    }

    #[test]
    fn no_bytes_panic() {
        for seed in 0..20_000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut value = new_node(&[b"field", b"12345", b"x", b"y"], rng.bool());
            let base = Id { ms: 5, seq: 5 };
            for _ in 0..20 {
                let id = Id {
                    ms: 5 + u64::from(rng.u8(..)),
                    seq: 9,
                };
                let _full = append(&mut value, base, id, &[b"a", b"b"]);
            }
            for _ in 0..rng.usize(1..8) {
                let at = rng.usize(..value.len());
                value[at] = rng.u8(..);
            }
            value.truncate(rng.usize(..=value.len()));
            if let Some(node) = Node::parse(base, &value) {
                let texts = node.entries().flat_map(|entry| entry.pairs());
                let _bytes: usize = texts.map(|(name, text)| name.len() + text.len()).sum();
                let _whole = node.is_whole();
            }
            let _gone = delete(&mut value, base, Id { ms: 6, seq: 9 });
            let _full = append(&mut value, base, Id::MAX, &[b"a", b"b"]);
        }
    }
}
