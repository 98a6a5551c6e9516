//! Reading the fields of a payload whose bytes a checksum has vouched for, but not their sense.

use std::fmt;

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::to_u64;

/// The first byte of what was read that is not as the format says, and what should have been there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// Its offset from the begin of what was read.
    pub at: usize,
    /// What was expected there.
    pub expected: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: expected {}", self.at, self.expected)
    }
}

pub(crate) fn malformed(at: usize, expected: &'static str) -> Malformed {
    Malformed { at, expected }
}

/// A reader that says where it failed, and at what.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    pub(crate) reader: Reader<'a>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Fields {
            reader: Reader::new(bytes),
        }
    }

    pub(crate) fn take<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
    ) -> Result<T, Malformed> {
        let at = self.reader.at();
        read(&mut self.reader).ok_or(malformed(at, what))
    }

    pub(crate) fn varint_u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.take(what, |r| r.varint().and_then(|v| u32::try_from(v).ok()))
    }

    pub(crate) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        self.take(what, |r| {
            let len = r.varint_usize()?;
            r.bytes(len)
        })
    }
}

/// Appends bytes behind their length.
#[inline]
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_varint(to_u64(bytes.len()));
    out.put(bytes);
}
