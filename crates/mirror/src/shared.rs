//! Memory that two processes share. Simulators use memory of a single process instead.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;

/// Memory that a second process may change at any time. Words are little-endian, and their offsets are multiples of 8.
///
/// # Order
/// All threads see the loads and stores of words in one order (sequentially consistent). Reads and writes of bytes are
/// ordered only relative to accesses to words by the same process. A *write* of bytes comes after the earlier stores
/// and before the later stores. A *read* of bytes comes after the earlier loads and before the later loads. The table
/// shows the orders that mapped rings need (docs/formats/logd.md), and what ensures each order on a processor that
/// reorders memory accesses:
///
/// | one process | the other process | what must hold | ensured by |
/// |---|---|---|---|
/// | write bytes, store entry, store *count* | load *count*, load entry, read bytes | if the count is seen, so is the append | a store releases, a load acquires |
/// | store *low*, then overwrite bytes below it | read bytes, then load *low* | if overwritten bytes were read, the higher *low* is seen | a release fence before the copy of a write, an acquire fence after the copy of a read |
/// | store *count*, load *closed* | store *closed*, load *count* | at least one sees the other's store | the single order of all words |
///
/// A store alone lets later writes of bytes move before the store. A load alone lets earlier reads of bytes move after
/// the load. So the second row needs fences. On x86 these fences restrict only the compiler.
///
/// # Panics
/// All methods panic if the bytes are not all within the memory.
pub trait Shared: Send + Sync {
    /// Returns the length of the memory, bytes.
    fn len(&self) -> usize;
    /// Returns whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the word at an offset.
    fn load(&self, at: usize) -> u64;
    /// Sets the word at an offset.
    fn store(&self, at: usize, word: u64);
    /// Copies bytes from offset `at` into `out`.
    fn read(&self, at: usize, out: &mut [u8]);
    /// Copies bytes into the memory at offset `at`.
    fn write(&self, at: usize, bytes: &[u8]);
    /// Returns the descriptor for passing the memory to a second process. `None`: the memory cannot be passed.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl fmt::Debug for dyn Shared + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of shared memory", self.len())
    }
}

/// A function that makes memory of a given length, filled with zeros. `None`: the memory could not be made.
pub type Make = dyn Fn(usize) -> Option<Arc<dyn Shared>> + Send + Sync;

/// A source of memory that a node can share.
#[derive(Clone)]
pub struct Memories(pub Arc<Make>);

impl Memories {
    /// Returns a source of memory on the heap, which no other process can map. Simulators and tests use it.
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

/// Shared memory that is only in this process.
pub struct HeapMemory(Mutex<Vec<u8>>);

impl HeapMemory {
    /// Makes memory of `len` bytes, filled with zeros.
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
