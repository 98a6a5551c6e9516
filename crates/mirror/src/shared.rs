//! Memory that two processes have in common, or that a simulator makes as if they had.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;

/// A piece of memory that others may change at any time. Words are little-endian, at offsets that 8 divides.
///
/// # Order
/// Loads and stores of words are in one order for all (sequentially consistent). Bytes are in order with the words of the same side:
/// a *write* comes before the stores behind it and after those before it, a *read* after the loads before it and before those
/// behind it. What the mapped rings (docs/formats/logd.md) need of that, and what gives it on a processor that reorders:
///
/// | one side | the other side | what must hold | by |
/// |---|---|---|---|
/// | write bytes, store entry, store *count* | load *count*, load entry, read bytes | who sees the count sees the append | a store releases, a load acquires |
/// | store *low*, then write over what is below | read bytes, then load *low* | who reads bytes that were written over sees the higher *low* | a release fence before a write's copy, an acquire fence behind a read's |
/// | store *count*, load *closed* | store *closed*, load *count* | one of the two sees the other's store | the one order of all words |
///
/// A store alone does not keep later writes behind it, nor a load earlier reads before it: hence the fences of the second row. On x86
/// they cost nothing but the compiler's freedom.
///
/// # Panics
/// All methods, for what lies outside.
pub trait Shared: Send + Sync {
    /// Its length, bytes.
    fn len(&self) -> usize;
    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// A word.
    fn load(&self, at: usize) -> u64;
    /// Changes a word.
    fn store(&self, at: usize, word: u64);
    /// Copies bytes out.
    fn read(&self, at: usize, out: &mut [u8]);
    /// Copies bytes in.
    fn write(&self, at: usize, bytes: &[u8]);
    /// What passes it to another process, if that is possible.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl fmt::Debug for dyn Shared + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of shared memory", self.len())
    }
}

/// Makes memory of a length, filled with zeros; `None` if there is none.
pub type Make = dyn Fn(usize) -> Option<Arc<dyn Shared>> + Send + Sync;

/// Where a node gets memory that it can share.
#[derive(Clone)]
pub struct Memories(pub Arc<Make>);

impl Memories {
    /// Memory of this process alone: for simulators, and what mapped memory is tested against.
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
    /// Memory of a length, filled with zeros.
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
