//! A row inside a slot. The slot of a large row holds only the row's head, and a chain of pages holds the content.
//!
//! The format is in `docs/formats/record.md`, section "Row". Decoding checks every field. Until an index is built from
//! the slots, a slot may hold any bytes that were on the disk.

use perdura_base::PageId;
use perdura_base::cursor::{Reader, varint, varint_len};
use perdura_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use perdura_base::num::to_u64;

use crate::class::SlotClass;
use crate::kind::Kind;

/// Keys up to this many bytes stay in the head of a large row. Longer keys are in the row's chain of pages.
pub const HEAD_KEY_BYTES_MAX: usize = 1024;

const HAS_EXPIRY: u8 = 1;
const LARGE: u8 = 2;
const KEY_IN_CHAIN: u8 = 4;
const RESERVED: u8 = 8;
/// The kind is the flags' high nibble.
const KIND_SHIFT: u32 = 4;
/// The lowest flags byte of a header, an element or a small stream. Other rows have a lower flags byte.
const HEADERS_FROM: u8 = 5 << KIND_SHIFT;
/// The codes of the kinds of elements, as a bit set: bit `n` is set if code `n` is the kind of an element.
const ELEMENTS: u16 = 0b1001_1110_0000_0000;

/// The total length, in bytes, of two fields of a large row: the id of the first page, and the key's hash.
const LARGE_BYTES: usize = 12;

/// The maximum length of an element's key, in bytes. The key is the collection's id and a member. A member may be as
/// long as a value.
pub(crate) const ELEMENT_KEY_BYTES_MAX: usize = VALUE_BYTES_MAX + 10;

/// The place of the key and the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// Both in the slot.
    Inline {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// In a chain of pages: first the key, if the slot does not hold it, then the value.
    Large {
        /// The first page of the chain.
        first: PageId,
        /// The key's hash, so that an index can be built without the chain.
        hash: u64,
        /// The key, unless it is in the chain.
        key: Option<&'a [u8]>,
    },
}

/// A row. One codec reads and writes this struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    /// Its kind.
    pub kind: Kind,
    /// The row's expiry time, milliseconds since 1970.
    pub expiry_ms: Option<u64>,
    /// Bytes of the key.
    pub key_bytes: usize,
    /// Bytes of the value.
    pub value_bytes: usize,
    /// The content.
    pub place: Place<'a>,
}

impl<'a> Row<'a> {
    /// Returns a row with its content in the slot.
    #[must_use]
    pub fn inline(key: &'a [u8], value: &'a [u8], expiry_ms: Option<u64>) -> Self {
        Row {
            kind: Kind::String,
            expiry_ms,
            key_bytes: key.len(),
            value_bytes: value.len(),
            place: Place::Inline { key, value },
        }
    }

    /// Returns the head of a large row. The row's content is in a chain of pages.
    #[must_use]
    pub fn large(
        key: &'a [u8],
        value_bytes: usize,
        first: PageId,
        hash: u64,
        expiry_ms: Option<u64>,
    ) -> Self {
        let head_key = (key.len() <= HEAD_KEY_BYTES_MAX).then_some(key);
        Row {
            kind: Kind::String,
            expiry_ms,
            key_bytes: key.len(),
            value_bytes,
            place: Place::Large {
                first,
                hash,
                key: head_key,
            },
        }
    }

    /// Returns a copy of this row with `kind`.
    #[must_use]
    pub fn with_kind(self, kind: Kind) -> Self {
        Row { kind, ..self }
    }

    /// Returns the number of bytes that the row takes in its slot.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let body = match self.place {
            Place::Inline { .. } => self.key_bytes + self.value_bytes,
            Place::Large { key, .. } => LARGE_BYTES + key.map_or(0, <[u8]>::len),
        };
        head_bytes(self.key_bytes, self.value_bytes, self.expiry_ms.is_some()) + body
    }

    /// Returns the number of bytes that the row takes in its chain; 0 for an inline row.
    #[must_use]
    pub fn chain_bytes(&self) -> usize {
        match self.place {
            Place::Inline { .. } => 0,
            Place::Large { key: Some(_), .. } => self.value_bytes,
            Place::Large { key: None, .. } => self.key_bytes + self.value_bytes,
        }
    }

    /// Reads the row at the start of `slot`. `None`: the bytes are no row.
    #[must_use]
    pub fn decode(slot: &'a [u8]) -> Option<Row<'a>> {
        let mut r = Reader::new(slot);
        let flags = r.u8()?;
        let kind = Kind::from_code(flags >> KIND_SHIFT)?;
        if flags & RESERVED != 0
            || flags & (LARGE | KEY_IN_CHAIN) == KEY_IN_CHAIN
            || kind.is_element() && flags & HAS_EXPIRY != 0
        {
            return None;
        }
        let key_bytes = r.varint_usize()?;
        let value_bytes = r.varint_usize()?;
        let key_bytes_max = if kind.is_element() {
            ELEMENT_KEY_BYTES_MAX
        } else {
            KEY_BYTES_MAX
        };
        if key_bytes > key_bytes_max || value_bytes > VALUE_BYTES_MAX {
            return None;
        }
        let expiry_ms = if flags & HAS_EXPIRY != 0 {
            Some(r.u64()?)
        } else {
            None
        };
        let place = if flags & LARGE == 0 {
            Place::Inline {
                key: r.bytes(key_bytes)?,
                value: r.bytes(value_bytes)?,
            }
        } else {
            let first = PageId(r.u32()?);
            let hash = r.u64()?;
            let key = if flags & KEY_IN_CHAIN == 0 {
                Some(r.bytes(key_bytes)?)
            } else {
                None
            };
            Place::Large { first, hash, key }
        };
        let row = Row {
            kind,
            expiry_ms,
            key_bytes,
            value_bytes,
            place,
        };
        (flags & LARGE == 0 || row.chain_bytes() > 0).then_some(row)
    }

    /// Writes the row at the start of `slot`, which has room for [`bytes`](Self::bytes).
    pub fn encode(&self, slot: &mut [u8]) {
        let mut flags = self.kind.code() << KIND_SHIFT;
        if self.expiry_ms.is_some() {
            flags |= HAS_EXPIRY;
        }
        if let Place::Large { key, .. } = self.place {
            flags |= LARGE | if key.is_none() { KEY_IN_CHAIN } else { 0 };
        }
        slot[0] = flags;
        let mut at = 1;
        for len in [self.key_bytes, self.value_bytes] {
            if let Some(byte) = u8::try_from(len).ok().filter(|byte| *byte < 0x80) {
                slot[at] = byte;
                at += 1;
                continue;
            }
            let (bytes, n) = varint(to_u64(len));
            slot[at..at + n].copy_from_slice(&bytes[..n]);
            at += n;
        }
        let mut put = |bytes: &[u8]| {
            slot[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(expiry_ms) = self.expiry_ms {
            put(&expiry_ms.to_le_bytes());
        }
        match self.place {
            Place::Inline { key, value } => {
                put(key);
                put(value);
            }
            Place::Large { first, hash, key } => {
                put(&first.0.to_le_bytes());
                put(&hash.to_le_bytes());
                put(key.unwrap_or_default());
            }
        }
        debug_assert_eq!(at, self.bytes(), "the slot was chosen by the row's bytes");
        debug_assert_eq!(is_element(slot), self.kind.is_element());
    }
}

/// Returns the key of the row at the start of `slot`, without reading the rest of the row. `None`: the key is long, in
/// another place than in most rows, or malformed; [`Row::decode`] finds out.
#[must_use]
#[inline]
pub fn short_key(slot: &[u8]) -> Option<&[u8]> {
    let [flags, key_bytes @ 0..=0x7f, rest @ ..] = slot else {
        return None;
    };
    if flags & (HAS_EXPIRY | LARGE | KEY_IN_CHAIN | RESERVED) != 0 {
        return None;
    }
    let key = match rest {
        [0..=0x7f, rest @ ..] | [_, 1..=0x7f, rest @ ..] => rest,
        _ => return None,
    };
    key.get(..usize::from(*key_bytes))
}

/// Returns whether the row at the start of `slot` has an expiry time.
#[must_use]
pub fn has_expiry(slot: &[u8]) -> bool {
    slot.first().is_some_and(|flags| flags & HAS_EXPIRY != 0)
}

/// Returns the class of an inline row with these sizes; `None` if the row must be a large row.
#[must_use]
pub fn inline_class(key_bytes: usize, value_bytes: usize, expires: bool) -> Option<SlotClass> {
    let body = key_bytes.checked_add(value_bytes)?;
    if body > SlotClass::bytes_max() {
        return None;
    }
    SlotClass::for_bytes(head_bytes(key_bytes, value_bytes, expires) + body)
}

/// Returns whether the row in `slot` is special: a large row, a row with an expiry, a header, an element or a small
/// stream. A restart reads special rows even if their index entries are known.
#[must_use]
pub fn is_special(slot: &[u8]) -> bool {
    slot.first()
        .is_none_or(|flags| *flags & 0x0f != 0 || *flags >= HEADERS_FROM)
}

/// Returns the number of bytes at the start of `slot` that determine the row's kind and key. Changes to bytes after
/// them leave the row's index entry correct. `None`: the bytes are no row.
#[must_use]
pub fn identity_bytes(slot: &[u8]) -> Option<usize> {
    if let [flags, key_len @ (..0x80), (..0x80), ..] = *slot
        && flags & (HAS_EXPIRY | LARGE) == 0
    {
        let identity = 3 + usize::from(key_len);
        return (identity <= slot.len()).then_some(identity);
    }
    let mut r = Reader::new(slot);
    let flags = r.u8()?;
    let (key_bytes, _) = (r.varint_usize()?, r.varint_usize()?);
    let expiry = if flags & HAS_EXPIRY != 0 { 8 } else { 0 };
    let key = match (flags & LARGE != 0, flags & KEY_IN_CHAIN != 0) {
        (false, _) => key_bytes,
        (true, false) => key_bytes.checked_add(LARGE_BYTES)?,
        (true, true) => LARGE_BYTES,
    };
    let identity = key.checked_add(r.at() + expiry)?;
    (identity <= slot.len()).then_some(identity)
}

/// Returns whether the row in `slot` has a chain of pages.
#[must_use]
pub fn is_large(slot: &[u8]) -> bool {
    slot.first().is_some_and(|flags| *flags & LARGE != 0)
}

/// Returns whether the row in `slot` is an element of a collection and not a key.
#[must_use]
pub fn is_element(slot: &[u8]) -> bool {
    slot.first()
        .is_some_and(|flags| ELEMENTS >> (flags >> KIND_SHIFT) & 1 != 0)
}

fn head_bytes(key_bytes: usize, value_bytes: usize, expires: bool) -> usize {
    let len = |n: usize| varint_len(to_u64(n));
    1 + len(key_bytes) + len(value_bytes) + if expires { 8 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Shape;

    #[test]
    fn rows_of_every_shape_round_trip() {
        let long = vec![7; 2000];
        for expiry in [None, Some(1), Some(u64::MAX)] {
            for row in [
                Row::inline(b"", b"", expiry),
                Row::inline(b"key", b"value", expiry),
                Row::inline(&long, &long, expiry),
                Row::large(b"key", 1 << 29, PageId(9), 77, expiry),
                Row::large(&long, 0, PageId(9), 77, expiry),
                Row::inline(b"key", b"packed", expiry).with_kind(Kind::Small(Shape::Zset)),
                Row::inline(b"key", b"\x01\x02", expiry).with_kind(Kind::Header(Shape::List)),
                Row::inline(b"\x02field", b"value", None).with_kind(Kind::Element(Shape::Hash)),
                Row::large(&long, 0, PageId(9), 77, None).with_kind(Kind::Element(Shape::Set)),
                Row::inline(b"key", b"\x01\x02", expiry).with_kind(Kind::Header(Shape::Stream)),
                Row::inline(b"\x02\x00", b"head", None).with_kind(Kind::Element(Shape::Stream)),
            ] {
                let mut slot = vec![0xee; row.bytes() + 3];
                row.encode(&mut slot);
                assert_eq!(slot[row.bytes()..], [0xee; 3], "bytes() is exact");
                assert_eq!(Row::decode(&slot), Some(row));
                let short = match row.place {
                    Place::Inline { key, .. } if row.expiry_ms.is_none() && key.len() < 128 => {
                        Some(key)
                    }
                    _ => None,
                };
                assert_eq!(short_key(&slot), short);
                for cut in 0..row.bytes() {
                    assert_eq!(Row::decode(&slot[..cut]), None);
                }
            }
        }
    }

    #[test]
    fn unknown_flags_and_impossible_lengths_are_refused() {
        assert_eq!(Row::decode(&[8, 0, 0]), None);
        for code in 0..16 {
            let kind = Kind::from_code(code).expect("each nibble is a kind's");
            assert_eq!(is_element(&[code << KIND_SHIFT]), kind.is_element());
        }
        let expiring_element = 9 << KIND_SHIFT | HAS_EXPIRY;
        assert_eq!(
            Row::decode(&[expiring_element, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            None
        );
        assert_eq!(Row::decode(&[KEY_IN_CHAIN, 0, 0]), None);
        assert_eq!(Row::decode(&[0, 0xff, 0xff, 0xff, 0x7f, 0]), None);
        assert_eq!(Row::decode(&[]), None);
    }

    #[test]
    fn random_bytes_never_panic_a_decoder() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..200_000 {
            let mut slot = vec![0; rng.usize(0..64)];
            rng.fill(&mut slot);
            if let Some(first) = slot.first_mut() {
                *first &= 0xf7;
            }
            if let Some(row) = Row::decode(&slot) {
                assert!(row.bytes() <= slot.len());
            }
        }
    }
}
