//! The kinds of rows: a key with the whole value, a collection's header, or an element.
//!
//! A small collection is one row, packed by the layer above. A big one is a *header* and a row for each element. The
//! header is the row of the collection's key. The header's value names the collection's *home*. The key of an element
//! begins with the collection's id, and not with the collection's key. So renaming or deleting a collection changes
//! only its header. All elements of a collection are in the partition of its home. The hashes of the elements do not
//! matter.
//!
//! The codes are the high nibble of a row's flags. `docs/formats/record.md` has the table.

use perdura_base::PartitionId;
use perdura_base::cursor::{Reader, Writer, varint_into};

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// A key and its value.
    #[default]
    String,
    /// A key and all elements of its collection, packed.
    Small(Shape),
    /// A key and the home of its collection's elements.
    Header(Shape),
    /// An element of a collection.
    Element(Shape),
}

/// The kind of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Fields with values.
    Hash,
    /// Items in the order of their insertion.
    List,
    /// Members.
    Set,
    /// Members with scores, in the order of score and member.
    Zset,
    /// Names with values, in the order of the names' bytes.
    Stream,
}

/// One of the two ends of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Before the first item.
    Front,
    /// Behind the last item.
    Back,
}

/// The id of a collection. Each partition numbers its collections separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionId(pub u64);

/// The place of the elements of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Home {
    /// The partition of the elements.
    pub partition: PartitionId,
    /// The collection's id in that partition.
    pub id: CollectionId,
}

impl Shape {
    /// Every shape, in the order of their codes.
    pub const ALL: [Shape; 5] = [
        Shape::Hash,
        Shape::List,
        Shape::Set,
        Shape::Zset,
        Shape::Stream,
    ];

    /// Returns three codes: for a small collection, for the header of a big collection, and for an element.
    const fn codes(self) -> [u8; 3] {
        match self {
            Shape::Hash => [1, 5, 9],
            Shape::List => [2, 6, 10],
            Shape::Set => [3, 7, 11],
            Shape::Zset => [4, 8, 12],
            Shape::Stream => [13, 14, 15],
        }
    }
}

impl Kind {
    /// Returns the code: the high nibble of a row's flags.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Kind::String => 0,
            Kind::Small(shape) => shape.codes()[0],
            Kind::Header(shape) => shape.codes()[1],
            Kind::Element(shape) => shape.codes()[2],
        }
    }

    /// Returns the kind that has a code: the inverse of [`code`](Self::code).
    #[must_use]
    pub fn from_code(code: u8) -> Option<Kind> {
        const OF_CODE: [Kind; 16] = {
            let mut kinds = [Kind::String; 16];
            let mut at = 0;
            while at < Shape::ALL.len() {
                let shape = Shape::ALL[at];
                let [small, header, element] = shape.codes();
                kinds[small as usize] = Kind::Small(shape);
                kinds[header as usize] = Kind::Header(shape);
                kinds[element as usize] = Kind::Element(shape);
                at += 1;
            }
            kinds
        };
        OF_CODE.get(usize::from(code)).copied()
    }

    /// Returns the name of the kind in dumps.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Small(Shape::Hash) => "small hash",
            Kind::Small(Shape::List) => "small list",
            Kind::Small(Shape::Set) => "small set",
            Kind::Small(Shape::Zset) => "small sorted set",
            Kind::Small(Shape::Stream) => "small stream",
            Kind::Header(Shape::Hash) => "hash",
            Kind::Header(Shape::List) => "list",
            Kind::Header(Shape::Set) => "set",
            Kind::Header(Shape::Zset) => "sorted set",
            Kind::Header(Shape::Stream) => "stream",
            Kind::Element(Shape::Hash) => "field",
            Kind::Element(Shape::List) => "item",
            Kind::Element(Shape::Set) => "member",
            Kind::Element(Shape::Zset) => "scored member",
            Kind::Element(Shape::Stream) => "part of a stream",
        }
    }

    /// Returns whether the row is an element and not a key.
    #[must_use]
    pub fn is_element(self) -> bool {
        matches!(self, Kind::Element(_))
    }

    /// Returns the shape of the collection that the row holds, heads or belongs to; `None` for a string.
    #[must_use]
    pub fn shape(self) -> Option<Shape> {
        match self {
            Kind::String => None,
            Kind::Small(shape) | Kind::Header(shape) | Kind::Element(shape) => Some(shape),
        }
    }
}

impl Home {
    /// Returns the value of the header of a collection with this home.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(12);
        out.put_varint(u64::from(self.partition.0));
        out.put_varint(self.id.0);
        debug_assert_eq!(Home::decode(&out), Some(self), "a restart finds the home");
        out
    }

    /// Reads the home from the value of a header. `None`: the value is malformed.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Home> {
        let mut r = Reader::new(value);
        let partition = PartitionId(u16::try_from(r.varint()?).ok()?);
        let id = CollectionId(r.varint()?);
        (r.remaining() == 0).then_some(Home { partition, id })
    }
}

/// Writes the key of an element's row: the collection's id, then the field or member. If `field` is empty, writes only
/// the id: the prefix of all keys of the collection, list items included.
pub fn put_element_key(out: &mut impl Writer, id: CollectionId, field: &[u8]) {
    out.put_varint(id.0);
    out.put(field);
}

/// Returns the key of a list's item, and its length in bytes. Labels near zero are short, whatever their sign.
#[must_use]
#[inline]
pub fn item_key(id: CollectionId, label: i64) -> ([u8; 20], usize) {
    let mut key = [0; 20];
    let id_bytes = varint_into(&mut key, id.0);
    let label = (label << 1 ^ label >> 63).cast_unsigned();
    let label_bytes = varint_into(&mut key[id_bytes..], label);
    (key, id_bytes + label_bytes)
}

/// Splits an element's key into the collection's id and the rest.
#[must_use]
pub fn split_element_key(key: &[u8]) -> Option<(CollectionId, &[u8])> {
    let mut r = Reader::new(key);
    let id = CollectionId(r.varint()?);
    Some((id, &key[r.at()..]))
}

/// Reads the label of an item from `rest`, the part of the item's key after the collection's id. `None`: the label is
/// malformed.
#[must_use]
pub fn read_label(rest: &[u8]) -> Option<i64> {
    let mut r = Reader::new(rest);
    let zigzag = r.varint()?;
    let label = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
    (r.remaining() == 0).then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_homes_and_keys_round_trip() {
        for code in 0..=u8::MAX {
            let kind = Kind::from_code(code);
            assert_eq!(kind.is_some(), code < 16);
            assert!(kind.is_none_or(|kind| kind.code() == code));
        }
        for id in [0, 1, 127, 128, u64::MAX].map(CollectionId) {
            let home = Home {
                partition: PartitionId(255),
                id,
            };
            assert_eq!(Home::decode(&home.encode()), Some(home));
            let mut key = Vec::new();
            put_element_key(&mut key, id, b"field");
            assert_eq!(split_element_key(&key), Some((id, &b"field"[..])));
            for label in [0, 1, -1, 1 << 20, i64::MAX, i64::MIN] {
                let mut key = Vec::new();
                let (item, bytes) = item_key(id, label);
                key.put(&item[..bytes]);
                let (_, rest) = split_element_key(&key).expect("a key");
                assert_eq!(read_label(rest), Some(label));
            }
        }
        assert_eq!(Home::decode(&[1]), None);
        assert_eq!(Home::decode(&[1, 1, 1]), None);
        assert_eq!(read_label(&[2, 0]), None);
    }
}
