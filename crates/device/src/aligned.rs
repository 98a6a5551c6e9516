//! A byte buffer with an aligned start, for direct I/O. The buffer needs no unsafe code: it allocates one sector more
//! than needed and starts at the first aligned byte.

use std::ops::{Deref, DerefMut};

use perdura_base::limits::SECTOR_BYTES;

/// A buffer that starts at a multiple of 4 KiB. It has a fixed size, or it grows up to a fixed capacity.
pub struct AlignedBuf {
    raw: Vec<u8>,
    start: usize,
    len: usize,
    /// The capacity, bytes.
    room: usize,
}

impl AlignedBuf {
    /// Returns a zeroed buffer of `len` bytes.
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
        AlignedBuf {
            raw,
            start,
            len,
            room: len,
        }
    }

    /// Returns an empty buffer with a capacity of `room` bytes. Memory is touched only when bytes are written to it.
    #[must_use]
    pub fn with_room(room: usize) -> Self {
        let mut raw: Vec<u8> = Vec::with_capacity(room + SECTOR_BYTES);
        let misaligned = raw.as_ptr().addr() % SECTOR_BYTES;
        let start = (SECTOR_BYTES - misaligned) % SECTOR_BYTES;
        raw.resize(start, 0);
        let len = 0;
        AlignedBuf {
            raw,
            start,
            len,
            room,
        }
    }

    /// Returns a buffer with a copy of these bytes.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = AlignedBuf::with_room(bytes.len());
        buf.push(bytes);
        buf
    }

    /// Returns the capacity, bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Appends bytes. The buffer must have room for them.
    pub fn push(&mut self, bytes: &[u8]) {
        assert!(
            self.len + bytes.len() <= self.room,
            "{} bytes behind {} in a buffer of {}",
            bytes.len(),
            self.len,
            self.room
        );
        self.raw.truncate(self.start + self.len);
        self.raw.extend_from_slice(bytes);
        self.len += bytes.len();
        assert!(
            self.raw[self.start..]
                .as_ptr()
                .addr()
                .is_multiple_of(SECTOR_BYTES),
            "the room is in one place"
        );
    }

    /// Empties the buffer. Its capacity stays.
    pub fn clear(&mut self) {
        self.len = 0;
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

    #[test]
    fn a_buffer_with_room_fills_up_and_stays_in_its_place() {
        for room in [0, 1, 4096, 100_000] {
            let mut buf = AlignedBuf::with_room(room);
            for round in 1..4 {
                assert_eq!((buf.len(), buf.room()), (0, room));
                let (first, second) = (vec![round; room / 3], vec![round + 7; room - room / 3]);
                buf.push(&first);
                buf.push(&second);
                assert_eq!(*buf, [first, second].concat());
                assert_eq!(buf.as_ptr().addr() % SECTOR_BYTES, 0);
                buf.clear();
            }
        }
    }

    #[test]
    #[should_panic(expected = "5 bytes behind 4096 in a buffer of 4100")]
    fn a_buffer_takes_no_more_than_it_has_room_for() {
        let mut buf = AlignedBuf::with_room(4100);
        buf.push(&[1; 4096]);
        buf.push(&[2; 5]);
    }
}
