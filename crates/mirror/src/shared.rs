//! Memory that two processes share, or that a simulator makes as if they did.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;

/// A piece of memory that others may change at any time. Words are little-endian, at offsets that 8 divides.
///
/// # Order
/// Loads and stores of words have one order for all threads (sequentially consistent). Bytes are ordered with the words
/// of their side. A *write* comes before the stores behind it and after those before it. A *read* comes after the loads
/// before it and before those behind it. The table shows the needs of the mapped rings (docs/formats/logd.md), and the
/// means on a processor that reorders:
///
/// | one side | the other side | what must hold | by |
/// |---|---|---|---|
/// | write bytes, store entry, store *count* | load *count*, load entry, read bytes | who sees the count sees the append | a store releases, a load acquires |
/// | store *low*, then write over what is below | read bytes, then load *low* | who reads bytes that were written over sees the higher *low* | a release fence before a write's copy, an acquire fence behind a read's |
/// | store *count*, load *closed* | store *closed*, load *count* | one of the two sees the other's store | the one order of all words |
///
/// A store alone does not keep later writes behind it, and a load alone does not keep earlier reads before it. So the
/// second row needs fences. On x86 they cost nothing but the compiler's freedom.
///
/// # Panics
/// All methods, for bytes outside of the memory.
pub trait Shared: Send + Sync {
    /// Returns its length, bytes.
    fn len(&self) -> usize;
    /// Returns whether its length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns a word.
    fn load(&self, at: usize) -> u64;
    /// Changes a word.
    fn store(&self, at: usize, word: u64);
    /// Copies bytes out.
    fn read(&self, at: usize, out: &mut [u8]);
    /// Copies bytes in.
    fn write(&self, at: usize, bytes: &[u8]);
    /// Returns the descriptor that passes the memory to another process. `None`: it cannot be passed.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl fmt::Debug for dyn Shared + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of shared memory", self.len())
    }
}

/// A function that makes memory of a length, filled with zeros. `None`: no memory could be had.
pub type Make = dyn Fn(usize) -> Option<Arc<dyn Shared>> + Send + Sync;

/// The source of memory that a node can share.
#[derive(Clone)]
pub struct Memories(pub Arc<Make>);

impl Memories {
    /// Returns a source of memory of this process alone: for simulators, and for tests of mapped memory.
    #[must_use]
    pub fn on_heap() -> Memories {
        Memories(Arc::new(|len| Some(Arc::new(HeapMemory::new(len)))))
    }
}

impl fmt::Debug for Memories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memories")
    }
}

/// Memory of this process.
pub struct HeapMemory(Mutex<Vec<u8>>);

impl HeapMemory {
    /// Makes memory of a length, filled with zeros.
    #[must_use]
    pub fn new(len: usize) -> HeapMemory {
        HeapMemory(Mutex::new(vec![0; len]))
    }
}

impl Shared for HeapMemory {
    fn len(&self) -> usize {
        self.0.lock().len()
    }

    fn load(&self, at: usize) -> u64 {
        assert!(at.is_multiple_of(8), "a word at {at}");
        let mut word = [0; 8];
        self.read(at, &mut word);
        u64::from_le_bytes(word)
    }

    fn store(&self, at: usize, word: u64) {
        assert!(at.is_multiple_of(8), "a word at {at}");
        self.write(at, &word.to_le_bytes());
    }

    fn read(&self, at: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0.lock()[at..at + out.len()]);
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.0.lock()[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
