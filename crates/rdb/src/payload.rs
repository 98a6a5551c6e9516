//! The payloads of DUMP and RESTORE: a type byte, the value, the version (2 bytes), and the checksum of all bytes
//! before the checksum (8 bytes). Version and checksum are little-endian.
//!
//! Perdura reads every encoding and writes only the plain encodings. A payload from Perdura is therefore longer than a
//! payload from Redis. Redis 7.0 and later versions accept payloads from Perdura.

use crate::error::{Error, Result};
use crate::source::{BUFFER_BYTES, CRC64, Source};
use crate::stream;
use crate::value::{self, Found, Value, plain};
use crate::{VERSION_MAX, VERSION_WRITTEN};
use crc::{Digest, Table};

/// A payload for a string that arrives in pieces. The checksum is updated with each piece as it arrives.
pub struct StringPayload {
    sum: Digest<'static, u64, Table<16>>,
}

impl StringPayload {
    /// Writes to `out` the beginning of the payload for a string of `len` bytes.
    #[must_use]
    pub fn begin(len: usize, out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.push(plain::STRING);
        put_length(out, len);
        let mut sum = CRC64.digest();
        sum.update(&out[start..]);
        StringPayload { sum }
    }

    /// Appends a piece of the string.
    pub fn put(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        self.sum.update(piece);
        out.extend_from_slice(piece);
    }

    /// Appends version and checksum.
    pub fn end(&self, out: &mut Vec<u8>) {
        let version = VERSION_WRITTEN.to_le_bytes();
        let mut sum = self.sum.clone();
        sum.update(&version);
        out.extend_from_slice(&version);
        out.extend_from_slice(&sum.finalize().to_le_bytes());
    }

    /// Returns the size of the whole payload for a string of `len` bytes.
    #[must_use]
    pub fn bytes(len: usize) -> usize {
        let mut head = Vec::new();
        put_length(&mut head, len);
        1 + head.len() + len + size_of_val(&VERSION_WRITTEN) + size_of::<u64>()
    }
}

impl std::fmt::Debug for StringPayload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StringPayload").finish_non_exhaustive()
    }
}

/// Returns the payload for a value.
#[must_use]
pub fn dump(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::String(bytes) => {
            out.push(plain::STRING);
            put_string(&mut out, bytes);
        }
        Value::List(items) => put_strings(&mut out, plain::LIST, items),
        Value::Set(members) => put_strings(&mut out, plain::SET, members),
        Value::Zset(pairs) => {
            out.push(plain::ZSET);
            put_length(&mut out, pairs.len());
            for (member, score) in pairs {
                put_string(&mut out, member);
                out.extend_from_slice(&score.to_le_bytes());
            }
        }
        Value::Hash(pairs) => {
            out.push(plain::HASH);
            put_length(&mut out, pairs.len());
            for (field, value) in pairs {
                put_string(&mut out, field);
                put_string(&mut out, value);
            }
        }
        Value::Stream(all) => {
            out.push(stream::WRITTEN);
            stream::put(&mut out, all);
        }
    }
    sealed(out)
}

/// Appends version and checksum to `body`, a type byte and a value. Returns the payload.
pub fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    body.extend_from_slice(&VERSION_WRITTEN.to_le_bytes());
    let checksum = CRC64.checksum(&body);
    body.extend_from_slice(&checksum.to_le_bytes());
    body
}

fn put_strings(out: &mut Vec<u8>, kind: u8, strings: &[Vec<u8>]) {
    out.push(kind);
    put_length(out, strings.len());
    strings.iter().for_each(|string| put_string(out, string));
}

/// Appends the length of a string, then the string.
pub fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a length in its shortest form.
pub fn put_length(out: &mut Vec<u8>, len: usize) {
    put_number(out, u64::try_from(len).unwrap_or(u64::MAX));
}

/// Appends a number in the encoding of lengths.
pub fn put_number(out: &mut Vec<u8>, len: u64) {
    match (u8::try_from(len), u16::try_from(len), u32::try_from(len)) {
        (Ok(short @ 0..=0x3f), _, _) => out.push(short),
        (_, Ok(middle @ 0..=0x3fff), _) => {
            out.extend_from_slice(&(0x4000 | middle).to_be_bytes());
        }
        (_, _, Ok(long)) => {
            out.push(0x80);
            out.extend_from_slice(&long.to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
}

/// Checks the version and the checksum of a payload. Returns the bytes before them.
pub fn body_of(payload: &[u8]) -> Result<&[u8]> {
    let short = || Error::Truncated {
        at: u64::try_from(payload.len()).unwrap_or(u64::MAX),
        of: "a payload",
    };
    let (rest, sum) = payload.split_last_chunk::<8>().ok_or_else(short)?;
    let (body, version) = rest.split_last_chunk::<2>().ok_or_else(short)?;
    let version = u32::from(u16::from_le_bytes(*version));
    if version > VERSION_MAX {
        return Err(Error::Version {
            found: version,
            newest: VERSION_MAX,
        });
    }
    let (found, computed) = (u64::from_le_bytes(*sum), CRC64.checksum(rest));
    if found != computed {
        return Err(Error::Checksum { found, computed });
    }
    Ok(body)
}

/// Returns the value in a payload.
///
/// # Errors
/// Returns [`Error::Version`] or [`Error::Checksum`] if the version or the checksum is wrong. Returns
/// [`Error::Corrupt`] or [`Error::Truncated`] if the value is wrong or the payload too short. RESTORE in Redis has one
/// message for the first two errors, and a second message for the last two errors.
pub fn parse_dump(payload: &[u8]) -> Result<Value> {
    let body = body_of(payload)?;
    let mut source = Source::new(body, body.len().min(BUFFER_BYTES));
    let kind = source.byte()?;
    let value = match value::read(&mut source, kind)? {
        Found::Value(value, _) => value,
        Found::Module => {
            return Err(source.corrupt("modules' values cannot be kept here"));
        }
    };
    if usize::try_from(source.position()) != Ok(body.len()) {
        return Err(source.corrupt("there are extra bytes after the value"));
    }
    if value.is_empty() {
        return Err(source.corrupt("a collection without elements"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_put_in_pieces_has_the_payload_of_the_whole_one() {
        for len in [0_usize, 1, 63, 64, 16_383, 16_384, 70_000] {
            let bytes: Vec<u8> = (0..len).map(|i| i.to_le_bytes()[0]).collect();
            let mut out = Vec::new();
            let mut payload = StringPayload::begin(bytes.len(), &mut out);
            bytes
                .chunks(1000)
                .for_each(|piece| payload.put(piece, &mut out));
            payload.end(&mut out);
            assert_eq!(out.len(), StringPayload::bytes(bytes.len()));
            assert_eq!(out, dump(&Value::String(bytes)));
        }
    }
}
