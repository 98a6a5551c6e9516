//! Troubles: the reasons why streams cannot be written or extended.

use perdura_base::StreamId;

use crate::sync::{AtomicU64, Ordering};

/// A reason why a stream cannot be written or extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A file could not be prepared because the disk is full.
    Full,
    /// A file could not be prepared, although the disk is not full.
    Unmade,
    /// A prepared file could not get its name.
    Unplaced,
    /// The disk refused to write a block or a header for want of space. Accepted frames wait for this write.
    Refused,
}

/// The troubles of all streams, as one 64-bit word. Each pair of trouble and stream has one bit. Every write to the log
/// reads the word.
pub(crate) struct Troubles(AtomicU64);

impl Troubles {
    pub fn none() -> Troubles {
        Troubles(AtomicU64::new(0))
    }

    fn mask(kind: Trouble) -> u64 {
        // A mask has 16 bits, because there are at most 16 streams.
        0xffff
            << match kind {
                Trouble::Full => 0,
                Trouble::Unmade => 16,
                Trouble::Unplaced => 32,
                Trouble::Refused => 48,
            }
    }

    fn bit(kind: Trouble, stream: StreamId) -> u64 {
        Troubles::mask(kind) & (0x0001_0001_0001_0001 << stream.0)
    }

    pub fn set(&self, kind: Trouble, stream: StreamId) {
        self.0
            .fetch_or(Troubles::bit(kind, stream), Ordering::SeqCst);
    }

    pub fn clear(&self, kind: Trouble, stream: StreamId) {
        let bit = Troubles::bit(kind, stream);
        if self.0.load(Ordering::Relaxed) & bit != 0 {
            self.0.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    pub fn has(&self, kind: Trouble) -> bool {
        self.0.load(Ordering::Relaxed) & Troubles::mask(kind) != 0
    }

    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}
