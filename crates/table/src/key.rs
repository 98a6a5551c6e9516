//! Keys. Columns are encoded so that the byte order of keys is the order of the columns' values.

use perdura_base::PartitionId;
use perdura_base::cursor::{Reader, Writer};
use perdura_heap::Geometry;

use crate::types::{Base, Type, normal};

/// The bytes that end an escaped column.
const END: [u8; 2] = [0, 0];
/// The escaped form of a byte 0.
const ZERO: [u8; 2] = [0, 0xff];

/// The length, in bytes, of the longest key that [`KeyBytes`] stores without an allocation.
const IN_PLACE: usize = 48;

/// The bytes of a key. A short key needs no allocation. Most columns have only a few bytes, and the compiler knows
/// their length. So appending such a column is fast.
#[derive(Clone)]
pub struct KeyBytes {
    /// The number of bytes used in `bytes`.
    len: usize,
    bytes: [u8; IN_PLACE],
    /// All bytes of a key that does not fit into `bytes`; otherwise empty.
    long: Vec<u8>,
}

impl Default for KeyBytes {
    #[inline]
    fn default() -> Self {
        KeyBytes {
            len: 0,
            bytes: [0; IN_PLACE],
            long: Vec::new(),
        }
    }
}

impl std::fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl AsRef<[u8]> for KeyBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl PartialEq for KeyBytes {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for KeyBytes {}

impl KeyBytes {
    /// Returns an empty key.
    #[inline]
    #[must_use]
    pub fn new() -> KeyBytes {
        KeyBytes::default()
    }

    /// Returns the bytes.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        if self.long.is_empty() {
            &self.bytes[..self.len]
        } else {
            &self.long
        }
    }

    #[cold]
    fn put_long(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.bytes[..self.len]);
        }
        self.long.extend_from_slice(bytes);
    }
}

impl Writer for KeyBytes {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        match self.bytes.get_mut(self.len..end) {
            Some(room) if self.long.is_empty() => {
                room.copy_from_slice(bytes);
                self.len = end;
            }
            _ => self.put_long(bytes),
        }
    }
}

/// The rule that derives a row's partition from the first column of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement<'a> {
    /// By a number, modulo the number of partitions.
    Number(u64),
    /// By the hash of these bytes.
    Hash(&'a [u8]),
}

impl Placement<'_> {
    #[inline]
    pub(crate) fn home(self, geometry: &Geometry) -> PartitionId {
        let home = match self {
            Placement::Number(number) => {
                let rest = number % u64::from(geometry.partitions);
                PartitionId(u16::try_from(rest).unwrap_or(0))
            }
            Placement::Hash(bytes) => geometry.partition_of(geometry.hash(bytes)),
        };
        debug_assert!(home.0 < geometry.partitions, "a row has a home");
        home
    }
}

/// Appends bytes in escaped form. The form marks the end of the bytes and keeps the order of byte strings.
pub(crate) fn put_escaped<W: Writer>(bytes: &[u8], out: &mut W) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == 0) {
        out.put(&rest[..at]);
        out.put(&ZERO);
        rest = &rest[at + 1..];
    }
    out.put(rest);
    out.put(&END);
}

/// Reads an escaped column. `None`: the column has no end mark, or has an invalid escape.
pub(crate) fn take_escaped(r: &mut Reader<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        match r.u8()? {
            0 => match r.u8()? {
                0 => return Some(out),
                0xff => out.push(0),
                _ => return None,
            },
            byte => out.push(byte),
        }
    }
}

/// Reads one column of a key. Returns the encoded bytes, including the end mark if there is one. `None`: the bytes are
/// not a column of this type.
pub(crate) fn take_column<'a>(base: Base, r: &mut Reader<'a>) -> Option<&'a [u8]> {
    let Some(width) = base.width() else {
        let mut ahead = r.clone();
        take_escaped(&mut ahead)?;
        return r.bytes(ahead.at() - r.at());
    };
    r.bytes(width)
}

/// Converts a column from its encoding in keys to its encoding in values. `None`: the column is malformed.
pub(crate) fn to_value(base: Base, column: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    match base {
        Base::String | Base::Bytes => {
            let mut r = Reader::new(column);
            let bytes = take_escaped(&mut r)?;
            out.put((r.remaining() == 0).then_some(&bytes)?);
        }
        Base::Bool | Base::Array(_) => out.put(column),
        Base::U8 | Base::U16 | Base::U32 | Base::U64 => out.extend(column.iter().rev()),
        Base::I8 | Base::I16 | Base::I32 | Base::I64 => {
            out.extend(column.iter().rev());
            *out[start..].last_mut()? ^= 0x80;
        }
        Base::F64 => {
            let bits = u64::from_be_bytes(*column.first_chunk()?);
            out.put_u64(float_of_order(bits).to_bits());
        }
    }
    Type::plain(base).holds(&out[start..]).then_some(())
}

/// Converts a column from its encoding in values to its encoding in keys. Appends nothing if the column is malformed.
pub(crate) fn from_value<W: Writer>(base: Base, column: &[u8], out: &mut W) {
    match base {
        Base::String | Base::Bytes => put_escaped(column, out),
        Base::Bool | Base::Array(_) => out.put(column),
        Base::U8 | Base::U16 | Base::U32 | Base::U64 => {
            for byte in column.iter().rev() {
                out.put_u8(*byte);
            }
        }
        Base::I8 | Base::I16 | Base::I32 | Base::I64 => {
            for (at, byte) in column.iter().rev().enumerate() {
                out.put_u8(if at == 0 { byte ^ 0x80 } else { *byte });
            }
        }
        Base::F64 => {
            if let Some(bytes) = column.first_chunk() {
                let bits = order_of_float(f64::from_le_bytes(*bytes));
                out.put(&bits.to_be_bytes());
            }
        }
    }
}

/// Returns the placement of a row with this first column; `None` if the column is malformed.
pub(crate) fn placement(base: Base, column: &[u8]) -> Option<Placement<'_>> {
    debug_assert!(
        base.width().is_none_or(|width| width == column.len()),
        "the caller took the column by its type"
    );
    let (signed, bytes) = match base {
        Base::Bool | Base::U8 | Base::U16 | Base::U32 | Base::U64 => (false, column),
        Base::I8 | Base::I16 | Base::I32 | Base::I64 => (true, column),
        Base::F64 | Base::Array(_) | Base::String | Base::Bytes => {
            return Some(Placement::Hash(column));
        }
    };
    let first = bytes.first()? ^ if signed { 0x80 } else { 0 };
    let fill = if signed && first & 0x80 != 0 { 0xff } else { 0 };
    let mut wide = [fill; 8];
    let place = wide.len().checked_sub(bytes.len())?;
    wide[place..].copy_from_slice(bytes);
    wide[place] = first;
    Some(Placement::Number(u64::from_be_bytes(wide)))
}

const SIGN: u64 = 1 << 63;

/// Converts a number to an unsigned integer. The order of such integers is the order of the numbers.
pub(crate) fn order_of_float(number: f64) -> u64 {
    let bits = normal(number).to_bits();
    let ordered = if bits & SIGN == 0 { bits ^ SIGN } else { !bits };
    debug_assert!(number.is_nan() || (ordered >= SIGN) == (number >= 0.0));
    ordered
}

/// Returns the number that [`order_of_float`] converts to these bits.
pub(crate) fn float_of_order(ordered: u64) -> f64 {
    let bits = if ordered & SIGN == 0 {
        !ordered
    } else {
        ordered ^ SIGN
    };
    f64::from_bits(bits)
}

/// Returns the least byte string that is greater than all byte strings with this prefix. `None`: no greater byte string
/// exists.
pub(crate) fn successor(prefix: &[u8]) -> Option<KeyBytes> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut bytes = KeyBytes::new();
    bytes.put(&prefix[..last]);
    bytes.put_u8(prefix[last] + 1);
    debug_assert!(bytes.as_slice() > prefix, "it is behind them");
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_escaped_column_are_refused() {
        for bad in [&[][..], &[1, 2], &[0], &[5, 0, 1, 0, 0], &[0, 0xff]] {
            assert_eq!(take_escaped(&mut Reader::new(bad)), None, "{bad:?}");
        }
    }

    #[test]
    fn escaped_bytes_come_back_and_keep_their_order() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut all: Vec<Vec<u8>> = (0..500)
            .map(|_| {
                (0..rng.usize(..6))
                    .map(|_| [0, 1, 0xff][rng.usize(..3)])
                    .collect()
            })
            .collect();
        all.sort();
        let escaped = |bytes: &Vec<u8>| {
            let mut out = Vec::new();
            put_escaped(bytes, &mut out);
            assert_eq!(take_escaped(&mut Reader::new(&out)).as_ref(), Some(bytes));
            out
        };
        let keys: Vec<_> = all.iter().map(escaped).collect();
        assert!(keys.is_sorted());
    }

    #[test]
    fn the_order_of_floats_is_that_of_numbers() {
        let all = [
            f64::NEG_INFINITY,
            -2.5,
            -f64::MIN_POSITIVE,
            0.0,
            f64::MIN_POSITIVE,
            2.5,
            f64::INFINITY,
            f64::NAN,
        ];
        assert!(all.map(order_of_float).is_sorted());
        assert_eq!(order_of_float(-0.0), order_of_float(0.0));
        for number in all {
            assert_eq!(
                float_of_order(order_of_float(number)).to_bits(),
                normal(number).to_bits()
            );
        }
    }

    #[test]
    fn the_successor_is_behind_every_key_with_the_prefix() {
        assert_eq!(successor(&[1, 0xff]).unwrap().as_slice(), [2]);
        assert_eq!(successor(&[1, 2]).unwrap().as_slice(), [1, 3]);
        assert_eq!(successor(&[0xff, 0xff]), None);
        assert_eq!(successor(&[]), None);
    }
}
