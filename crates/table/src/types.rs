//! The types that a column can have, as data.

use std::fmt;

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::to_u64;

/// The longest array, bytes.
pub const ARRAY_BYTES_MAX: usize = 4096;

/// The type of a column's contents, regardless of whether the column is optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// `bool`
    Bool,
    /// `u8`
    U8,
    /// `u16`
    U16,
    /// `u32`
    U32,
    /// `u64`
    U64,
    /// `i8`
    I8,
    /// `i16`
    I16,
    /// `i32`
    I32,
    /// `i64`
    I64,
    /// `f64`
    F64,
    /// `[u8; N]`
    Array(usize),
    /// `String`
    String,
    /// `Vec<u8>`
    Bytes,
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    /// The type of the column's contents if the column is not empty.
    pub base: Base,
    /// True if a column may be empty (`None`).
    pub optional: bool,
}

const OPTIONAL: u8 = 0x80;
const ARRAY: u8 = 11;

/// All base types except arrays, with codes and Rust names.
const PLAIN: [(Base, u8, &str); 12] = [
    (Base::Bool, 1, "bool"),
    (Base::U8, 2, "u8"),
    (Base::U16, 3, "u16"),
    (Base::U32, 4, "u32"),
    (Base::U64, 5, "u64"),
    (Base::I8, 6, "i8"),
    (Base::I16, 7, "i16"),
    (Base::I32, 8, "i32"),
    (Base::I64, 9, "i64"),
    (Base::F64, 10, "f64"),
    (Base::String, 12, "String"),
    (Base::Bytes, 13, "Vec<u8>"),
];

impl Base {
    /// Returns the length, in bytes, of a column of this type; `None` if the length varies.
    #[must_use]
    pub const fn width(self) -> Option<usize> {
        match self {
            Base::Bool | Base::U8 | Base::I8 => Some(1),
            Base::U16 | Base::I16 => Some(2),
            Base::U32 | Base::I32 => Some(4),
            Base::U64 | Base::I64 | Base::F64 => Some(8),
            Base::Array(bytes) => Some(bytes),
            Base::String | Base::Bytes => None,
        }
    }
}

impl Type {
    /// Returns a type that is not optional.
    #[must_use]
    pub const fn plain(base: Base) -> Type {
        Type {
            base,
            optional: false,
        }
    }

    /// Returns the length, in bytes, that a column of this type has in a row; `None` if the length varies. The length
    /// of an optional column includes the byte that says whether the column is present.
    #[must_use]
    pub const fn width(self) -> Option<usize> {
        match self.base.width() {
            Some(width) if self.optional => Some(width + 1),
            width => width,
        }
    }

    /// Returns whether two types are equal. Constants need this function, because `==` is not constant.
    #[must_use]
    pub const fn is(self, other: Type) -> bool {
        let same_base = match (self.base, other.base) {
            (Base::Array(mine), Base::Array(theirs)) => mine == theirs,
            (mine, theirs) => mine.code() == theirs.code(),
        };
        same_base && self.optional == other.optional
    }

    /// Returns whether `bytes` are valid contents of a column of this type.
    #[must_use]
    pub fn holds(self, bytes: &[u8]) -> bool {
        if let Some(width) = self.width()
            && bytes.len() != width
        {
            return false;
        }
        match (self.optional, bytes) {
            (true, [0, rest @ ..]) => rest.iter().all(|byte| *byte == 0),
            (true, [1, rest @ ..]) => self.base.holds(rest),
            (true, _) => false,
            (false, bytes) => self.base.holds(bytes),
        }
    }

    /// Appends the type in the encoding of catalog rows.
    pub fn encode(self, out: &mut Vec<u8>) {
        debug_assert!(self.is_sound(), "types without a code are refused before");
        let flag = if self.optional { OPTIONAL } else { 0 };
        out.put_u8(self.base.code() | flag);
        if let Base::Array(bytes) = self.base {
            out.put_varint(to_u64(bytes));
        }
    }

    /// Reads a type; `None` if the bytes are not a type that this build knows.
    #[must_use]
    pub fn decode(r: &mut Reader<'_>) -> Option<Type> {
        let byte = r.u8()?;
        let (code, optional) = (byte & !OPTIONAL, byte & OPTIONAL != 0);
        let base = if code == ARRAY {
            Base::Array(r.varint_usize()?)
        } else {
            PLAIN.iter().find(|(_, known, _)| *known == code)?.0
        };
        let found = Type { base, optional };
        found.is_sound().then_some(found)
    }

    /// Returns whether columns of this type can exist.
    const fn is_sound(self) -> bool {
        match self.base {
            Base::Array(bytes) => 1 <= bytes && bytes <= ARRAY_BYTES_MAX,
            base => base.width().is_some() || !self.optional,
        }
    }
}

impl Base {
    const fn code(self) -> u8 {
        match self {
            Base::Bool => 1,
            Base::U8 => 2,
            Base::U16 => 3,
            Base::U32 => 4,
            Base::U64 => 5,
            Base::I8 => 6,
            Base::I16 => 7,
            Base::I32 => 8,
            Base::I64 => 9,
            Base::F64 => 10,
            Base::Array(_) => ARRAY,
            Base::String => 12,
            Base::Bytes => 13,
        }
    }

    /// Returns whether `bytes` are a valid value. Their length must be right for the type.
    fn holds(self, bytes: &[u8]) -> bool {
        match self {
            Base::Bool => matches!(bytes, [0 | 1]),
            Base::F64 => bytes.first_chunk().is_some_and(|bytes| {
                let number = f64::from_le_bytes(*bytes);
                normal(number).to_le_bytes() == *bytes
            }),
            Base::String => std::str::from_utf8(bytes).is_ok(),
            Base::U8
            | Base::U16
            | Base::U32
            | Base::U64
            | Base::I8
            | Base::I16
            | Base::I32
            | Base::I64
            | Base::Array(_)
            | Base::Bytes => true,
        }
    }
}

/// Returns the normal form of a number: every NaN becomes one NaN, and minus zero becomes zero.
#[inline]
#[must_use]
pub fn normal(number: f64) -> f64 {
    if number.is_nan() {
        f64::from_bits(0x7ff8_0000_0000_0000)
    } else if number == 0.0 {
        0.0
    } else {
        number
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Base::Array(bytes) => write!(f, "[u8; {bytes}]"),
            base => {
                let known = PLAIN.iter().find(|(plain, ..)| plain == base);
                f.write_str(known.map_or("?", |(_, _, name)| name))
            }
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.optional {
            write!(f, "Option<{}>", self.base)
        } else {
            self.base.fmt(f)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_a_type_with_one_code_or_none() {
        let mut known = 0;
        for code in 0..=u8::MAX {
            let bytes = [code, 24];
            let Some(found) = Type::decode(&mut Reader::new(&bytes)) else {
                continue;
            };
            let mut out = Vec::new();
            found.encode(&mut out);
            assert_eq!(out, bytes[..out.len()], "{found}");
            assert!(found.is(found) && !found.to_string().contains('?'));
            known += 1;
        }
        assert_eq!(known, 11 * 2 + 2, "strings and bytes are not optional");
    }

    #[test]
    fn lengths_of_arrays_are_checked() {
        for bytes in [&[ARRAY, 0][..], &[ARRAY, 0x81, 0x20], &[ARRAY]] {
            assert_eq!(Type::decode(&mut Reader::new(bytes)), None);
        }
    }

    #[test]
    fn an_optional_column_has_one_form_of_nothing() {
        let optional = Type {
            base: Base::U16,
            optional: true,
        };
        assert!(optional.holds(&[0, 0, 0]) && optional.holds(&[1, 7, 0]));
        for bad in [&[0, 7, 0][..], &[2, 7, 0], &[1, 7], &[]] {
            assert!(!optional.holds(bad));
        }
        let float = Type::plain(Base::F64);
        assert!(!float.holds(&(-0.0f64).to_le_bytes()) && float.holds(&0.5f64.to_le_bytes()));
    }
}
