//! The sparse XOR difference of two states of a page.
//!
//! The difference is a list of *fragments*: runs of bytes to XOR. A fragment has no zeros at its ends. A run of eight
//! or more unchanged bytes splits a fragment, because a fragment's head costs two or three bytes. XOR is its own
//! inverse and commutes. So records of one page can be applied in any order, and log streams can be replayed in
//! parallel.
//!
//! # Source
//! Differential logging: J. Lee, K. Kim, S. K. Cha, "Differential Logging: A Commutative and
//! Associative Logging Scheme for Highly Parallel Main Memory Databases".

use perdura_base::cursor::{Reader, Writer};

use crate::layout::{META_BYTES, PAGE_BYTES};

/// A writer that appends the fragments of one page to a buffer, in ascending order of their offsets.
pub struct FragmentWriter<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
    count: u32,
}

impl<'a> FragmentWriter<'a> {
    /// Returns a writer for the fragments of one page.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        FragmentWriter {
            out,
            end: META_BYTES,
            count: 0,
        }
    }

    /// Returns the number of fragments written so far; 0 if the page has not changed.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Appends the fragments of a range that begins at `offset` in the page. The caller must append the ranges in
    /// ascending order, and they must not overlap.
    pub fn range(&mut self, offset: usize, before: &[u8], now: &[u8]) {
        assert!(before.len() == now.len() && offset >= self.end);
        assert!(offset + now.len() <= PAGE_BYTES);
        if let (Ok(before), Ok(now)) = (before.try_into(), now.try_into()) {
            return self.word(offset, xor(before, now));
        }
        let mut from = 0;
        while let Some(start) = first_difference(before, now, from) {
            let end = fragment_end(before, now, start);
            self.head(offset + start - self.end, end - start);
            let bytes = before[start..end].iter().zip(&now[start..end]);
            self.out.extend(bytes.map(|(b, n)| b ^ n));
            self.end = offset + end;
            self.count += 1;
            from = end;
        }
    }

    /// Appends the fragment of one word, such as a word of the bitmap. Fewer than eight bytes never split a fragment.
    fn word(&mut self, offset: usize, word: u64) {
        if word == 0 {
            return;
        }
        let start = usize::try_from(word.trailing_zeros() / 8).unwrap_or(0);
        let end = 8 - usize::try_from(word.leading_zeros() / 8).unwrap_or(0);
        self.head(offset + start - self.end, end - start);
        self.out.put(&word.to_le_bytes()[start..end]);
        self.end = offset + end;
        self.count += 1;
    }

    /// Appends the head of a fragment of `bytes` that begins `gap` bytes after the last one.
    #[inline]
    fn head(&mut self, gap: usize, bytes: usize) {
        if let (Ok(gap @ ..0x80), Ok(bytes @ ..0x80)) = (u8::try_from(gap), u8::try_from(bytes)) {
            return self.out.put(&[gap, bytes]);
        }
        self.out.put_varint(widen(gap));
        self.out.put_varint(widen(bytes));
    }

    /// Appends a range as one fragment, unchanged bytes included.
    pub fn whole(&mut self, offset: usize, before: &[u8], now: &[u8]) {
        assert!(before.len() == now.len() && offset >= self.end);
        assert!(!now.is_empty() && offset + now.len() <= PAGE_BYTES);
        self.head(offset - self.end, now.len());
        let bytes = before.iter().zip(now);
        self.out.extend(bytes.map(|(b, n)| b ^ n));
        self.end = offset + now.len();
        self.count += 1;
    }
}

fn widen(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Returns the XOR of the next eight bytes. If fewer are left, zeros follow them. `None`: no byte is left.
#[inline]
fn xor_word(a: &[u8], b: &[u8], at: usize) -> Option<u64> {
    let (rest_a, rest_b) = (a.get(at..)?, b.get(at..)?);
    match (rest_a.first_chunk(), rest_b.first_chunk()) {
        (Some(a), Some(b)) => Some(xor(a, b)),
        _ if rest_a.is_empty() => None,
        _ => Some(xor_tail(a, b, rest_a.len())),
    }
}

#[inline]
fn xor(a: &[u8; 8], b: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b)
}

/// Returns the XOR of the last `left` bytes, of which there are one to seven.
#[inline]
fn xor_tail(a: &[u8], b: &[u8], left: usize) -> u64 {
    match (a.last_chunk(), b.last_chunk()) {
        (Some(a), Some(b)) => xor(a, b) >> (64 - 8 * left),
        _ => (a.len() - left..a.len())
            .rev()
            .fold(0, |word, i| word << 8 | u64::from(a[i] ^ b[i])),
    }
}

/// Returns whether the last byte of each of the next four words has changed. If so, the fragment continues after the
/// four words. The first seven bytes of each word do not matter.
fn differ_at_their_ends(before: &[u8], now: &[u8], at: usize) -> bool {
    let (Some(before), Some(now)) = (before.get(at..at + 32), now.get(at..at + 32)) else {
        return false;
    };
    [7, 15, 23, 31].iter().all(|i| before[*i] != now[*i])
}

/// Returns whether the next 64 bytes have not changed. This is often so in a row that grows at its end.
fn go_on_alike(before: &[u8], now: &[u8], at: usize) -> bool {
    let next = || {
        let (before, now) = (before.get(at..)?, now.get(at..)?);
        Some((before.first_chunk::<64>()?, now.first_chunk::<64>()?))
    };
    next().is_some_and(|(before, now)| before == now)
}

fn first_difference(before: &[u8], now: &[u8], mut at: usize) -> Option<usize> {
    while go_on_alike(before, now, at) {
        at += 64;
    }
    while let Some(word) = xor_word(before, now, at) {
        if word != 0 {
            return Some(at + usize::try_from(word.trailing_zeros() / 8).unwrap_or(0));
        }
        at += 8;
    }
    None
}

/// Returns the end of the fragment that starts at `start`, a changed byte. The fragment ends after a changed byte that
/// is followed by eight unchanged bytes, or else after the last changed byte of the range.
fn fragment_end(before: &[u8], now: &[u8], start: usize) -> usize {
    let mut end = start + 1;
    while differ_at_their_ends(before, now, end) {
        end += 32;
    }
    while let Some(word) = xor_word(before, now, end) {
        if word == 0 {
            return end;
        }
        end += 8 - usize::try_from(word.leading_zeros() / 8).unwrap_or(0);
    }
    debug_assert!(end == now.len() && before[end - 1] != now[end - 1]);
    end
}

/// One run of bytes to XOR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Its offset, bytes from the start of the page.
    pub offset: usize,
    /// The bytes to XOR.
    pub bytes: &'a [u8],
}

/// Reads the head of the next fragment, given the end of the previous one. Returns the fragment's offset in the page
/// and its length.
pub(crate) fn next_span(reader: &mut Reader<'_>, end: usize) -> Option<(usize, usize)> {
    let gap = reader.varint_usize()?;
    let len = reader.varint_usize()?;
    let offset = end.checked_add(gap)?;
    let fits = len > 0 && offset.checked_add(len)? <= PAGE_BYTES;
    fits.then_some((offset, len))
}

/// An iterator that reads `count` fragments and checks each. It ends early at a malformed fragment.
#[derive(Debug, Clone)]
pub struct Fragments<'a> {
    reader: Reader<'a>,
    left: u64,
    end: usize,
}

impl<'a> Fragments<'a> {
    /// Returns an iterator over the first `count` fragments in `bytes`. The bytes are not checked yet.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8], count: u64) -> Self {
        Fragments {
            reader: Reader::new(bytes),
            left: count,
            end: META_BYTES,
        }
    }

    /// Reads to the end of the list. Returns the list's length in bytes; `None` if the list is malformed.
    #[inline]
    #[must_use]
    pub fn check(mut self) -> Option<usize> {
        for _ in 0..self.left {
            self.step()?;
        }
        Some(self.reader.at())
    }

    fn step(&mut self) -> Option<Fragment<'a>> {
        let (offset, len) = next_span(&mut self.reader, self.end)?;
        self.end = offset + len;
        Some(Fragment {
            offset,
            bytes: self.reader.bytes(len)?,
        })
    }
}

impl<'a> Iterator for Fragments<'a> {
    type Item = Fragment<'a>;

    fn next(&mut self) -> Option<Fragment<'a>> {
        self.left = self.left.checked_sub(1)?;
        self.step()
    }
}

/// XORs `bytes` into `target`. The lengths must be equal.
pub fn xor_into(target: &mut [u8], bytes: &[u8]) {
    assert_eq!(target.len(), bytes.len());
    for (t, b) in target.iter_mut().zip(bytes) {
        *t ^= b;
    }
}
