//! The bytes of a simulated file, in chunks. Files and snapshots can share a chunk. The live and the durable bytes of a
//! file can also share a chunk. A change first copies a shared chunk.
//!
//! Most of a file is zeros that were never written, and most crashes and syncs affect little of it. So a chunk of zeros
//! takes no memory, and making a chunk durable copies only a reference. The bytes of a write are kept as references to
//! chunks. These are the chunks that the write changed, as they were after it.
//!
//! # Invariants
//!
//! The number of chunks is the length divided by the chunk size, rounded up. In the last chunk of a file, all bytes
//! after the end of the file are zeros.

use std::ops::Range;
use std::sync::Arc;

/// The size of a chunk, in bytes.
const CHUNK_BYTES: usize = 4096;

#[derive(Clone, Default)]
pub(super) struct Content {
    len: usize,
    /// The chunks. `None`: the chunk is all zeros.
    chunks: Vec<Option<Arc<[u8]>>>,
}

/// Splits a range at the chunk boundaries. Returns the chunk number and the range in the chunk for each piece.
fn parts(range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let left = range.end.checked_sub(at).filter(|left| *left > 0)?;
        let (chunk, start) = (at / CHUNK_BYTES, at % CHUNK_BYTES);
        let count = left.min(CHUNK_BYTES - start);
        at += count;
        Some((chunk, start..start + count))
    })
}

impl Content {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Fills `out` with the bytes from `start` on. The whole range must be within the length.
    pub(super) fn read(&self, start: usize, mut out: &mut [u8]) {
        assert!(start + out.len() <= self.len, "a read beyond the end");
        for (chunk, range) in parts(start..start + out.len()) {
            let (now, rest) = out.split_at_mut(range.len());
            match &self.chunks[chunk] {
                Some(bytes) => now.copy_from_slice(&bytes[range]),
                None => now.fill(0),
            }
            out = rest;
        }
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        self.read(0, &mut out);
        out
    }

    /// Returns a chunk for writing. If it is shared, this file first gets a copy.
    fn own(&mut self, chunk: usize) -> &mut [u8] {
        let bytes = &mut self.chunks[chunk];
        Arc::make_mut(bytes.get_or_insert_with(|| Arc::from(&[0; CHUNK_BYTES][..])))
    }

    /// Overwrites bytes. If the write ends beyond the end of the file, the file grows.
    pub(super) fn write(&mut self, offset: usize, mut data: &[u8]) {
        let end = offset + data.len();
        if end > self.len {
            self.resize(end);
        }
        assert!(
            self.len <= self.chunks.len() * CHUNK_BYTES,
            "the chunks hold {} bytes",
            self.len
        );
        for (chunk, range) in parts(offset..end) {
            let (now, rest) = data.split_at(range.len());
            if now.len() == CHUNK_BYTES {
                self.chunks[chunk] = Some(Arc::from(now));
            } else {
                self.own(chunk)[range].copy_from_slice(now);
            }
            data = rest;
        }
    }

    /// Shortens the file, or lengthens it with zeros.
    pub(super) fn resize(&mut self, len: usize) {
        self.chunks.resize(len.div_ceil(CHUNK_BYTES), None);
        let used = len % CHUNK_BYTES;
        if len < self.len && used > 0 && self.chunks.last().is_some_and(Option::is_some) {
            self.own(len / CHUNK_BYTES)[used..].fill(0);
        }
        self.len = len;
    }

    /// Gives this file the length of `other`, and shares with `other` every chunk that the range touches.
    pub(super) fn share(&mut self, other: &Content, range: &Range<usize>) {
        self.resize(other.len);
        assert_eq!(
            self.chunks.len(),
            other.chunks.len(),
            "files of one length have as many chunks"
        );
        let first = range.start / CHUNK_BYTES;
        let end = range.end.min(other.len).div_ceil(CHUNK_BYTES);
        for chunk in first..end {
            self.chunks[chunk].clone_from(&other.chunks[chunk]);
        }
    }

    /// Flips the bits of `mask` in one byte. `byte` is its offset. Returns whether the file has that byte.
    pub(super) fn flip(&mut self, byte: usize, mask: u8) -> bool {
        let found = byte < self.len;
        if found {
            self.own(byte / CHUNK_BYTES)[byte % CHUNK_BYTES] ^= mask;
        }
        found
    }

    /// Sets all bytes from `at` on to zero.
    pub(super) fn zero_from(&mut self, at: usize) {
        let len = self.len;
        self.resize(at.min(len));
        self.resize(len);
    }
}

/// The bytes of a write: the chunks that it touched, as they were after it.
#[derive(Clone)]
pub(super) struct Written {
    range: Range<usize>,
    /// The chunks that the write touched. The first chunk's offset in the file is `base`, a multiple of the chunk size.
    chunks: Content,
}

impl Written {
    /// Returns the bytes of the last write to `file`. That write wrote exactly this range.
    pub(super) fn of(file: &Content, range: Range<usize>) -> Written {
        let first = range.start / CHUNK_BYTES;
        let chunks = file.chunks[first..range.end.div_ceil(CHUNK_BYTES)].to_vec();
        let len = range.end - first * CHUNK_BYTES;
        assert_eq!(
            chunks.len(),
            len.div_ceil(CHUNK_BYTES),
            "the chunks hold the range"
        );
        Written {
            range,
            chunks: Content { len, chunks },
        }
    }

    /// Returns the range of the write in the file.
    pub(super) fn range(&self) -> &Range<usize> {
        &self.range
    }

    /// Returns the chunks' offset in the file.
    fn base(&self) -> usize {
        self.range.start / CHUNK_BYTES * CHUNK_BYTES
    }

    /// Copies the bytes of range `part` from the write into `file`. The range has the same offsets in both files.
    pub(super) fn put(&self, part: Range<usize>, file: &mut Content) {
        assert!(
            self.range.start <= part.start && part.end <= self.range.end,
            "the part lies in the write"
        );
        if part.end > file.len {
            file.resize(part.end);
        }
        assert!(
            part.end <= file.len && part.end <= self.base() + self.chunks.len,
            "both files hold the part"
        );
        let base = self.base() / CHUNK_BYTES;
        for (chunk, range) in parts(part) {
            let bytes = &self.chunks.chunks[chunk - base];
            if range.len() == CHUNK_BYTES {
                file.chunks[chunk].clone_from(bytes);
            } else if let Some(bytes) = bytes {
                file.own(chunk)[range.clone()].copy_from_slice(&bytes[range]);
            } else if file.chunks[chunk].is_some() {
                file.own(chunk)[range].fill(0);
            }
        }
    }

    /// Flips the bits of `mask` in one byte, if the write contains that byte. `byte` is its offset in the file.
    pub(super) fn flip(&mut self, byte: usize, mask: u8) {
        if self.range.contains(&byte) {
            self.chunks.flip(byte - self.base(), mask);
        }
    }

    /// Sets to zero the bytes of the write that are at offset `at` of the file or later.
    pub(super) fn zero_from(&mut self, at: usize) {
        self.chunks.zero_from(at.saturating_sub(self.base()));
    }

    /// Removes the bytes of the write that are at offset `len` of the file or later. Returns whether any bytes are
    /// left.
    pub(super) fn truncate(&mut self, len: usize) -> bool {
        let end = self.range.end.min(len).max(self.range.start);
        let left = end - self.base();
        assert!(
            left <= self.chunks.len,
            "a write of {} bytes is cut to {left}",
            self.chunks.len
        );
        self.chunks.resize(left);
        self.range.end = end;
        !self.range.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    /// Returns a random range. It begins at `len` or before, and may end after `len`. Its length is below a limit that
    /// is chosen at random: 5 bytes, one chunk or three chunks.
    fn range(rng: &mut Rng, len: usize) -> Range<usize> {
        let start = rng.usize(0..=len);
        let most = [5, CHUNK_BYTES, 3 * CHUNK_BYTES][rng.usize(0..3)];
        start..start + rng.usize(0..most)
    }

    #[test]
    fn shared_chunks_read_as_bytes_that_nobody_shares() {
        for seed in 0..200 {
            let mut rng = Rng::with_seed(seed);
            let mut files = [Content::default(), Content::default()];
            let mut twins = [Vec::new(), Vec::new()];
            for _ in 0..60 {
                let at = rng.usize(0..2);
                let (file, twin) = (&mut files[at], &mut twins[at]);
                let Range { start, end } = range(&mut rng, twin.len());
                match rng.u8(0..6) {
                    0..3 => {
                        let data: Vec<u8> = (start..end).map(|_| rng.u8(..)).collect();
                        file.write(start, &data);
                        if !data.is_empty() {
                            twin.resize(end.max(twin.len()), 0);
                            twin[start..end].copy_from_slice(&data);
                        }
                    }
                    3 => {
                        file.resize(end);
                        twin.resize(end, 0);
                    }
                    4 => {
                        file.zero_from(start);
                        twin[start..].fill(0);
                    }
                    _ => {
                        assert_eq!(file.flip(start, 4), start < twin.len());
                        twin.iter_mut()
                            .skip(start)
                            .take(1)
                            .for_each(|byte| *byte ^= 4);
                    }
                }
                // All differences are within the range, so sharing it makes the files equal.
                if rng.u8(0..8) == 0 {
                    files[1 - at] = files[at].clone();
                    twins[1 - at] = twins[at].clone();
                    let data = vec![7; end - start];
                    files[at].write(start, &data);
                    let whole = files[at].clone();
                    files[1 - at].share(&whole, &(start..end));
                    twins = [files[at].to_vec(), files[at].to_vec()];
                }
                for (file, twin) in files.iter().zip(&twins) {
                    assert!(file.to_vec() == *twin, "seed {seed}");
                    assert_eq!(file.len(), twin.len(), "seed {seed}");
                }
            }
        }
    }
}
