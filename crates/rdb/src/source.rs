//! Bytes from a reader, with their count and checksum. A dump consists of lengths and strings. This module reads both.

use std::io::Read;

use crc::{CRC_64_REDIS, Crc, Digest, Table};

use crate::error::{Error, Result};
use crate::lzf;

/// The checksum of dumps. Its table has sixteen lanes, so that computing the checksum is as fast as a disk.
pub static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The size of the buffer for a file, bytes.
pub const BUFFER_BYTES: usize = 1 << 16;

/// A reader with a position, and with the checksum of the bytes before the position.
///
/// The checksum is updated when the buffer is refilled or the caller asks for it. Taking a single byte therefore costs
/// no more than an array access.
pub struct Source<R> {
    input: R,
    buffer: Box<[u8]>,
    at: usize,
    end: usize,
    /// The number of the buffer's bytes that the checksum covers already.
    summed: usize,
    digest: Digest<'static, u64, Table<16>>,
    /// The position of the buffer's first byte.
    base: u64,
}

/// A length, or the code of a string's special encoding: an integer or compressed bytes.
enum Length {
    Plain(u64),
    Special(u8),
}

impl<R: Read> Source<R> {
    /// Returns a source at the beginning of `input` with a buffer of at least a byte.
    pub fn new(input: R, buffer_bytes: usize) -> Self {
        Source {
            input,
            buffer: vec![0; buffer_bytes.max(1)].into_boxed_slice(),
            at: 0,
            end: 0,
            summed: 0,
            digest: CRC64.digest(),
            base: 0,
        }
    }

    /// Returns the position of the next byte.
    pub fn position(&self) -> u64 {
        self.base + count(self.at)
    }

    /// Returns the checksum of all bytes taken so far.
    pub fn checksum(&mut self) -> u64 {
        self.sum();
        self.digest.clone().finalize()
    }

    fn sum(&mut self) {
        debug_assert!(self.summed <= self.at, "only what was read is summed");
        self.digest.update(&self.buffer[self.summed..self.at]);
        self.summed = self.at;
    }

    /// Makes at least one byte available. Returns `false` at the end of the input.
    fn fill(&mut self) -> Result<bool> {
        if self.at < self.end {
            return Ok(true);
        }
        self.sum();
        self.base += count(self.at);
        (self.at, self.end, self.summed) = (0, 0, 0);
        loop {
            match self.input.read(&mut self.buffer) {
                Ok(got) => {
                    assert!(
                        got <= self.buffer.len(),
                        "a reader gives no more than there is room for"
                    );
                    self.end = got;
                    return Ok(got > 0);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let at = self.position();
                    return Err(Error::Io { at, source });
                }
            }
        }
    }

    fn truncated(&self, of: &'static str) -> Error {
        Error::Truncated {
            at: self.position(),
            of,
        }
    }

    /// Returns an error at the position of the next byte.
    pub fn corrupt(&self, why: &'static str) -> Error {
        Error::Corrupt {
            at: self.position(),
            why,
        }
    }

    /// Takes a byte.
    pub fn byte(&mut self) -> Result<u8> {
        if !self.fill()? {
            return Err(self.truncated("a byte"));
        }
        let byte = self.buffer[self.at];
        self.at += 1;
        Ok(byte)
    }

    /// Takes `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        for byte in &mut out {
            *byte = self.byte()?;
        }
        Ok(out)
    }

    /// Takes `len` bytes. Memory grows with the received bytes, not with the length that the dump claims.
    pub fn bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.each_part(len, |part| out.extend_from_slice(part))?;
        Ok(out)
    }

    /// Steps over `len` bytes.
    pub fn skip(&mut self, len: u64) -> Result<()> {
        self.each_part(len, |_| {})
    }

    fn each_part(&mut self, len: u64, mut take: impl FnMut(&[u8])) -> Result<()> {
        let mut left = len;
        while left > 0 {
            if !self.fill()? {
                return Err(self.truncated("a string"));
            }
            let here = self.end - self.at;
            let part = usize::try_from(left).map_or(here, |left| left.min(here));
            take(&self.buffer[self.at..self.at + part]);
            self.at += part;
            left -= count(part);
        }
        debug_assert!(self.at <= self.end, "no byte is taken that was not read");
        Ok(())
    }

    /// Takes a length, or the code of a string's special encoding. The two top bits of the first byte select the form.
    fn any_length(&mut self) -> Result<Length> {
        let first = self.byte()?;
        let low = first & 0x3f;
        Ok(match first >> 6 {
            0 => Length::Plain(u64::from(low)),
            1 => Length::Plain(u64::from(u16::from_be_bytes([low, self.byte()?]))),
            2 if first == 0x80 => Length::Plain(u64::from(u32::from_be_bytes(self.array()?))),
            2 if first == 0x81 => Length::Plain(u64::from_be_bytes(self.array()?)),
            2 => return Err(self.corrupt("no such length")),
            _ => Length::Special(low),
        })
    }

    /// Takes a length, or a number that is encoded like a length.
    pub fn length(&mut self) -> Result<u64> {
        match self.any_length()? {
            Length::Plain(length) => Ok(length),
            Length::Special(_) => Err(self.corrupt("a length is expected, not a string")),
        }
    }

    /// Takes a string, which is encoded as plain bytes, a number, or compressed bytes.
    pub fn string(&mut self) -> Result<Vec<u8>> {
        let number = |number: i32| number.to_string().into_bytes();
        match self.any_length()? {
            Length::Plain(length) => self.bytes(length),
            Length::Special(0) => Ok(number(i8::from_le_bytes(self.array()?).into())),
            Length::Special(1) => Ok(number(i16::from_le_bytes(self.array()?).into())),
            Length::Special(2) => Ok(number(i32::from_le_bytes(self.array()?))),
            Length::Special(3) => {
                let (packed, full) = (self.length()?, self.length()?);
                let packed = self.bytes(packed)?;
                lzf::unpack(&packed, full).map_err(|why| self.corrupt(why))
            }
            Length::Special(_) => Err(self.corrupt("no such encoding of a string")),
        }
    }

    /// Takes the beginning of a string and leaves the rest in the input. Returns the first bytes, the string's length,
    /// and the number of bytes in the rest. The caller steps over the rest. At least `count` bytes are returned, or
    /// fewer if the string is shorter or damaged.
    pub fn begin_of_string(&mut self, count: u64) -> Result<(Vec<u8>, u64, u64)> {
        match self.any_length()? {
            Length::Plain(length) => {
                let here = length.min(count);
                Ok((self.bytes(here)?, length, length - here))
            }
            Length::Special(3) => {
                let (packed, full) = (self.length()?, self.length()?);
                // An unpacked byte takes at most two packed bytes. The last run may be longer than needed: up to 33
                // bytes with its control byte.
                let here = packed.min(count.saturating_mul(2).saturating_add(33));
                let begin = self.bytes(here)?;
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                let full = full.min(packed.saturating_mul(self::count(lzf::RATIO_MAX)));
                Ok((lzf::unpack_begin(&begin, count), full, packed - here))
            }
            Length::Special(_) => {
                Err(self.corrupt("a packed collection is expected, not a number"))
            }
        }
    }

    /// Steps over a string.
    pub fn skip_string(&mut self) -> Result<()> {
        let len = match self.any_length()? {
            Length::Plain(length) => length,
            Length::Special(0) => 1,
            Length::Special(1) => 2,
            Length::Special(2) => 4,
            Length::Special(3) => {
                let packed = self.length()?;
                self.length()?;
                packed
            }
            Length::Special(_) => return Err(self.corrupt("no such encoding of a string")),
        };
        self.skip(len)
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
