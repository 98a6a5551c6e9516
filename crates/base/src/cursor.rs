//! The little-endian cursor. Every codec reads through [`Reader`] and writes through [`Writer`]. So no decoder can run
//! past its input, and no encoding depends on the host's byte order.

/// A reader of little-endian fields from a byte slice. Every read is checked. A read returns `None` if the input ends
/// early or the field is malformed. The caller turns `None` into an error that names the file and offset.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Returns a reader at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// Returns the offset of the next byte.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the number of bytes that are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        debug_assert!(self.at <= self.bytes.len(), "no read passes the end");
        self.bytes.len() - self.at
    }

    /// Takes the next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let out = self.bytes.get(self.at..end)?;
        debug_assert_eq!(self.remaining() - len, self.bytes.len() - end);
        self.at = end;
        Some(out)
    }

    /// Takes a fixed-size array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N)?);
        Some(out)
    }

    /// Takes a byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|b| b[0])
    }

    /// Takes a 16-bit integer.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Takes a 32-bit integer.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Takes a 64-bit integer.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes an unsigned LEB128 integer of at most ten bytes. Only the shortest encoding of an integer is accepted.
    ///
    /// Integers of one and two bytes are read inline, without a loop. Every offset in a page takes one or two bytes,
    /// and replay reads several offsets in each record.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        match self.bytes.get(self.at..) {
            Some([low, ..]) if *low < 0x80 => {
                self.at += 1;
                Some(u64::from(*low))
            }
            Some([low, high, ..]) if (1..0x80).contains(high) => {
                self.at += 2;
                Some(u64::from(low & 0x7f) | u64::from(*high) << 7)
            }
            _ => self.long_varint(),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        let mut shift = 0;
        for byte in self.bytes.get(self.at..)? {
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || (shift == 63 && bits > 1) {
                return None;
            }
            value |= bits << shift;
            self.at += 1;
            shift += 7;
            if byte & 0x80 == 0 {
                debug_assert!(*byte == 0 || 7 * varint_len(value) == shift);
                return (*byte != 0 || shift == 7).then_some(value);
            }
        }
        None
    }

    /// Takes a varint that must fit `usize`.
    #[inline]
    pub fn varint_usize(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?).ok()
    }

    /// Takes `len` bytes that must all be zero: the reserved bytes of a format.
    pub fn zeros(&mut self, len: usize) -> Option<()> {
        self.bytes(len)?.iter().all(|b| *b == 0).then_some(())
    }
}

/// Appends little-endian fields to a byte vector.
pub trait Writer {
    /// Appends bytes as they are.
    fn put(&mut self, bytes: &[u8]);

    /// Appends a byte.
    fn put_u8(&mut self, v: u8) {
        self.put(&[v]);
    }

    /// Appends a 16-bit integer.
    fn put_u16(&mut self, v: u16) {
        self.put(&v.to_le_bytes());
    }

    /// Appends a 32-bit integer.
    fn put_u32(&mut self, v: u32) {
        self.put(&v.to_le_bytes());
    }

    /// Appends a 64-bit integer.
    fn put_u64(&mut self, v: u64) {
        self.put(&v.to_le_bytes());
    }

    /// Appends an unsigned LEB128 integer.
    #[inline]
    fn put_varint(&mut self, v: u64) {
        match u8::try_from(v) {
            Ok(byte) if byte < 0x80 => self.put_u8(byte),
            _ => put_long_varint(self, v),
        }
    }

    /// Appends `len` zero bytes.
    fn put_zeros(&mut self, len: usize) {
        for _ in 0..len {
            self.put_u8(0);
        }
    }
}

impl Writer for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }

    fn put_zeros(&mut self, len: usize) {
        self.resize(self.len() + len, 0);
    }
}

/// Appends an unsigned LEB128 integer of two bytes or more.
#[inline(never)]
fn put_long_varint(out: &mut (impl Writer + ?Sized), v: u64) {
    debug_assert!(varint_len(v) > 1, "a short one is written inline");
    let [first, second, ..] = v.to_le_bytes();
    if v < 1 << 14 {
        debug_assert_eq!(varint_len(v), 2);
        return out.put(&[first | 0x80, second << 1 | first >> 7]);
    }
    let (bytes, n) = varint(v);
    out.put(&bytes[..n]);
}

/// Returns the number of bytes that [`Writer::put_varint`] appends for `v`.
#[must_use]
#[inline]
pub fn varint_len(v: u64) -> usize {
    if v < 0x80 {
        return 1;
    }
    let bits = usize::try_from(64 - (v | 1).leading_zeros()).unwrap_or(64);
    bits.div_ceil(7)
}

/// Returns the LEB128 encoding of an integer, and the length of the encoding in bytes.
#[must_use]
pub fn varint(v: u64) -> ([u8; 10], usize) {
    let mut out = [0; 10];
    let n = varint_into(&mut out, v);
    (out, n)
}

/// Writes the LEB128 encoding of an integer to the front of `out`. Returns the encoding's length in bytes, at most 10.
///
/// # Panics
/// If `out` is too short.
#[inline]
pub fn varint_into(out: &mut [u8], mut v: u64) -> usize {
    let len = varint_len(v);
    let mut n = 0;
    loop {
        let low = v.to_le_bytes()[0] & 0x7f;
        v >>= 7;
        out[n] = if v == 0 { low } else { low | 0x80 };
        n += 1;
        if v == 0 {
            debug_assert_eq!(n, len, "the length that was announced");
            return n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_have_one_form() {
        for v in [
            0,
            1,
            127,
            128,
            300,
            16_383,
            16_384,
            u64::from(u32::MAX),
            u64::MAX,
        ] {
            let mut out = Vec::new();
            out.put_varint(v);
            assert_eq!(out.len(), varint_len(v));
            assert_eq!(Reader::new(&out).varint(), Some(v));
            for cut in 0..out.len() {
                assert_eq!(Reader::new(&out[..cut]).varint(), None);
            }
        }
        assert_eq!(
            Reader::new(&[0x80, 0x00]).varint(),
            None,
            "a longer form of zero"
        );
        assert_eq!(Reader::new(&[0xff; 11]).varint(), None);
    }

    #[test]
    fn reads_past_the_end_are_refused() {
        let mut r = Reader::new(&[1, 2, 3]);
        assert_eq!(r.u16(), Some(0x0201));
        assert_eq!(r.u16(), None);
        assert_eq!(r.bytes(usize::MAX), None);
        assert_eq!(r.u8(), Some(3));
    }
}
