//! The interface of a log to recover from.
//!
//! A log has parts, which are read in parallel. A part has units, which are read one after the other, and
//! the frames of a unit come from one life of the database. Each frame comes with its [`Origin`], so a
//! player needs nothing else from the log.
//!
//! The first implementation is the log's streams ([`crate::streams`]).

use perdura_base::{CkptEpoch, Epoch, Incarnation, Result};
use perdura_wal::{Direction, Frame, Origin, RawUnit, Unit};

/// A log to recover from. All methods may run on any thread.
pub trait LogSource: Sync {
    /// A unit as the medium returned it.
    type Raw: Raw;

    /// Returns the number of parts.
    fn parts(&self) -> usize;

    /// Finds the end of a part.
    ///
    /// # Errors
    /// The medium's; damage.
    fn scan(&self, part: usize) -> Result<()>;

    /// Decides which part of the log counts. Called once, after the last scan.
    ///
    /// # Errors
    /// The parts contradict each other, or something acknowledged is missing.
    fn end(&self) -> Result<LogEnd>;

    /// Reads a unit of a part by its number, counted from the oldest.
    ///
    /// # Errors
    /// The medium's.
    fn read(&self, part: usize, number: usize) -> Result<Self::Raw>;
}

/// The part of a log that counts.
#[derive(Debug, Clone)]
pub struct LogEnd {
    /// The newest epoch that the log holds in full.
    pub epoch: Epoch,
    /// The highest checkpoint epoch seen.
    pub ckpt_max: CkptEpoch,
    /// Units of each part.
    pub units: Vec<usize>,
    /// Bytes of frames.
    pub bytes: u64,
}

/// A unit as it was read, unchecked.
pub trait Raw: Send {
    /// The unit after the check.
    type Open: Frames;

    /// Returns its size in memory, bytes.
    fn bytes(&self) -> u64;

    /// Returns the life of the database that wrote it.
    fn life(&self) -> Incarnation;

    /// Checks it.
    ///
    /// # Errors
    /// Damage.
    fn open(self) -> Result<Self::Open>;
}

/// The frames of a unit.
pub trait Frames: Send + Sync {
    /// Returns the bytes that all payloads lie in.
    fn joined(&self) -> &[u8];

    /// Hands each frame to `each`, with its origin.
    ///
    /// # Errors
    /// Those of `each`; bytes that are no frame.
    fn for_each<'a>(
        &'a self,
        direction: Direction,
        each: impl FnMut(Frame<'a>, &'a Origin) -> Result<()>,
    ) -> Result<()>;
}

impl Raw for RawUnit {
    type Open = Unit;

    fn bytes(&self) -> u64 {
        self.bytes()
    }

    fn life(&self) -> Incarnation {
        self.life()
    }

    fn open(self) -> Result<Unit> {
        self.open()
    }
}

impl Frames for Unit {
    fn joined(&self) -> &[u8] {
        self.joined()
    }

    #[inline]
    fn for_each<'a>(
        &'a self,
        direction: Direction,
        each: impl FnMut(Frame<'a>, &'a Origin) -> Result<()>,
    ) -> Result<()> {
        self.for_each(direction, each)
    }
}
