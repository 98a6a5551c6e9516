//! The reading of a payload's fields. A right checksum shows only that the bytes are as they were written. The bytes
//! may still break the format.

use std::fmt;

use crate::cursor::{Reader, Writer};
use crate::num::to_u64;

/// The first format error in a payload: its offset, and the content expected there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// The offset from the start of the payload.
    pub at: usize,
    /// The content expected at this offset.
    pub expected: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: expected {}", self.at, self.expected)
    }
}

/// Returns the fault of a payload that does not have the `expected` content at offset `at`.
#[must_use]
pub fn malformed(at: usize, expected: &'static str) -> Malformed {
    Malformed { at, expected }
}

/// A reader of a payload's fields. For a field that cannot be read, the error has the field's offset and the expected
/// content.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    /// The reader of the bytes. It is used directly for fields that need no description of a failure.
    pub reader: Reader<'a>,
}

impl<'a> Fields<'a> {
    /// Reads from the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Fields {
            reader: Reader::new(bytes),
        }
    }

    /// Reads a field with `read`, which returns `None` if it cannot read the field.
    ///
    /// # Errors
    /// Returns the field's offset, with `what` as the expected content.
    pub fn take<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
    ) -> Result<T, Malformed> {
        let at = self.reader.at();
        let field = read(&mut self.reader);
        debug_assert!(at <= self.reader.at(), "fields are read forward");
        field.ok_or(malformed(at, what))
    }

    /// Reads a varint that must fit 32 bits.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub fn varint_u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.take(what, |r| r.varint().and_then(|v| u32::try_from(v).ok()))
    }

    /// Reads a length, then that many bytes.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        self.take(what, |r| {
            let len = r.varint_usize()?;
            r.bytes(len)
        })
    }
}

/// Appends the length of `bytes`, then the bytes.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_varint(to_u64(bytes.len()));
    out.put(bytes);
    debug_assert!(out.ends_with(bytes), "the bytes stand behind their length");
}
