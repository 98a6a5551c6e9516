//! Reads the fields of a payload. A checksum shows that its bytes are those that were written, but they may still break
//! the format.

use std::fmt;

use crate::cursor::{Reader, Writer};
use crate::num::to_u64;

/// The first byte of a payload that breaks its format, and the expected content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// Its offset from the start of the payload.
    pub at: usize,
    /// The content that was expected there.
    pub expected: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: expected {}", self.at, self.expected)
    }
}

/// Returns the fault of a payload that does not have the expected content at `at`.
#[must_use]
pub fn malformed(at: usize, expected: &'static str) -> Malformed {
    Malformed { at, expected }
}

/// A reader that reports the place of a failure, and the expected content.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    /// The reader, for fields that need no name.
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

    /// Reads a field by `read`, which returns `None` if it finds no such field.
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

    /// Reads a varint that has 32 bits at most.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn varint_u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.take(what, |r| r.varint().and_then(|v| u32::try_from(v).ok()))
    }

    /// Reads a length, then that many bytes.
    ///
    /// # Errors
    /// As [`take`](Self::take).
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
