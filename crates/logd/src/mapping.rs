//! Memory that a node shares with a writer on the node's machine. Both processes map the same memfd.
//!
//! Bytes that one process writes become visible to the other process without a system call. So a commit into this
//! memory waits neither for a system call nor for another process. The code here is unsafe because Rust's standard
//! library has no shared memory. [`perdura_mirror::HeapMemory`] needs no unsafe code, but only one process can use it.
//! The tests compare the two kinds of memory.
#![allow(unsafe_code)]

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use perdura_base::num::to_u64;
use perdura_mirror::{Memories, Shared};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The maximum length of a mapping, in bytes. The longest ring needs less.
const BYTES_MAX: usize = 1 << 40;

/// Mapped memory.
pub(crate) struct Mapping {
    begin: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
}

// SAFETY: the memory belongs to no thread. All access is by atomic words and by copies through raw pointers. No
// reference is made of these pointers. The mapping lasts as long as the value.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates memory filled with zeros. The length of the memory can never change.
    pub(crate) fn new(len: usize) -> Result<Mapping> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("perdura-ring", flags)?;
        ftruncate(&fd, to_u64(len))?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Mapping::map(fd, len)
    }

    /// Maps memory that another process has created.
    pub(crate) fn of(fd: OwnedFd) -> Result<Mapping> {
        // If the memory shrank while it is mapped, reading it would kill this process.
        let seals = fcntl_get_seals(&fd)?;
        if !seals.contains(SealFlags::SHRINK) {
            let why = "memory that its owner may take away";
            return Err(Error::new(ErrorKind::InvalidData, why));
        }
        let len = usize::try_from(fstat(&fd)?.st_size).unwrap_or(0);
        Mapping::map(fd, len)
    }

    fn map(fd: OwnedFd, len: usize) -> Result<Mapping> {
        if !(1..=BYTES_MAX).contains(&len) {
            return Err(ErrorKind::InvalidInput.into());
        }
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the address is the system's choice, so nothing that is mapped is replaced.
        let at = unsafe { mmap(ptr::null_mut(), len, rights, MapFlags::SHARED, &fd, 0)? };
        let begin = NonNull::new(at.cast::<u8>()).ok_or(ErrorKind::OutOfMemory)?;
        assert!(begin.as_ptr().addr().is_multiple_of(8), "a page's begin");
        Ok(Mapping { begin, len, fd })
    }

    /// Returns the address of the `len` bytes at offset `at`.
    fn at(&self, at: usize, len: usize) -> *mut u8 {
        let fits = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "{len} bytes at {at} of {}", self.len);
        // SAFETY: the address lies within the mapping.
        unsafe { self.begin.as_ptr().add(at) }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "a word at {at}");
        // SAFETY: the word lies within the mapping, which begins at a page boundary, so it is aligned. The mapping
        // outlives the reference. Other accesses to words are atomic too, here and in the other process.
        unsafe { AtomicU64::from_ptr(self.at(at, 8).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's, and no pointer to it is left.
        let _cannot_fail = unsafe { munmap(self.begin.as_ptr().cast(), self.len) };
    }
}

impl Shared for Mapping {
    fn len(&self) -> usize {
        self.len
    }

    fn load(&self, at: usize) -> u64 {
        u64::from_le(self.word(at).load(Ordering::SeqCst))
    }

    fn store(&self, at: usize, word: u64) {
        self.word(at).store(word.to_le(), Ordering::SeqCst);
    }

    fn read(&self, at: usize, out: &mut [u8]) {
        let from = self.at(at, out.len());
        // SAFETY: both ranges are valid, and a mapping overlaps no slice. The other process may write the bytes at the
        // same time. Any value is then acceptable, since readers check a checksum and load the words again.
        unsafe { ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        // The words that are loaded next are not older than these bytes: see "Order" of `Shared`.
        fence(Ordering::Acquire);
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.at(at, bytes.len());
        // The words that were stored before are not newer than these bytes: see "Order" of `Shared`.
        fence(Ordering::Release);
        // SAFETY: both ranges are valid, and a mapping overlaps no slice; one process writes at a time.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

/// Returns the source of memory for a node's rings.
pub(crate) fn memories() -> Memories {
    Memories(Arc::new(|len| {
        let mapping = Mapping::new(len).ok()?;
        Some(Arc::new(mapping) as Arc<dyn Shared>)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perdura_mirror::HeapMemory;

    #[test]
    fn two_mappings_are_one_memory_and_do_what_the_safe_twin_does() {
        let ours = Mapping::new(10_000).unwrap();
        let theirs = Mapping::of(ours.fd.try_clone().unwrap()).unwrap();
        let twin = HeapMemory::new(10_000);
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let (one, other) = match random.bool() {
                true => (&ours, &theirs),
                false => (&theirs, &ours),
            };
            let len = random.usize(..300);
            let at = random.usize(..=10_000 - len);
            let (mut found, mut expected) = (vec![0; len], vec![0; len]);
            let bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
            match random.u8(..4) {
                0 => {
                    one.write(at, &bytes);
                    twin.write(at, &bytes);
                }
                1 => {
                    let (at, word) = (random.usize(..1250) * 8, random.u64(..));
                    one.store(at, word);
                    twin.store(at, word);
                    assert_eq!(other.load(at), word);
                }
                2 => {
                    let at = random.usize(..1250) * 8;
                    assert_eq!(one.load(at), twin.load(at));
                }
                _ => {}
            }
            other.read(at, &mut found);
            twin.read(at, &mut expected);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn memory_that_can_be_taken_away_is_refused() {
        let fd = memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, 4096).unwrap();
        assert!(Mapping::of(fd).is_err());
        let ours = Mapping::new(4096).unwrap();
        assert!(ftruncate(&ours.fd, 0).is_err() && ftruncate(&ours.fd, 8192).is_err());
        assert!(Mapping::new(0).is_err() && Mapping::new(usize::MAX).is_err());
    }

    #[test]
    #[should_panic(expected = "8 bytes at 4096 of 4096")]
    fn nothing_outside_is_touched() {
        Mapping::new(4096).unwrap().load(4096);
    }
}
