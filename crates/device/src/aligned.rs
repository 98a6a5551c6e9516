//! A byte buffer whose start is aligned for direct I/O, without unsafe code: it allocates an extra
//! sector and starts at the first aligned byte.

use std::ops::{Deref, DerefMut};

use perdura_base::limits::SECTOR_BYTES;

/// A fixed-size, zeroed buffer at a 4 KiB boundary.
pub struct AlignedBuf {
    raw: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// A zeroed buffer of `len` bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let raw = vec![0; len + SECTOR_BYTES];
        let misaligned = raw.as_ptr().addr() % SECTOR_BYTES;
        let start = (SECTOR_BYTES - misaligned) % SECTOR_BYTES;
        assert!(
            start + len <= raw.len(),
            "one sector more than asked for suffices"
        );
        assert!(
            raw[start..].as_ptr().addr().is_multiple_of(SECTOR_BYTES),
            "byte {start} is aligned"
        );
        AlignedBuf { raw, start, len }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.raw[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..self.start + self.len]
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_start_at_a_sector_boundary() {
        for len in [0, 1, 4096, 100_000] {
            let buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr().addr() % SECTOR_BYTES, 0);
        }
    }
}
