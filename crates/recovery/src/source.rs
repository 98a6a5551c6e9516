//! The interface of a log to recover from.
//!
//! A log has parts, which are read in parallel. A part has units, which are read one after the other. All frames of a
//! unit are from the same life of the database. Each frame comes with its [`Origin`], so a player needs nothing else
//! from the log.
//!
//! [`crate::streams`] implements the interface for a database's log.

use perdura_base::{CkptEpoch, Epoch, Incarnation, Result};
use perdura_wal::{Direction, Frame, Origin, RawUnit, Unit};

/// A log to recover from. All methods may run on any thread.
pub trait LogSource: Sync {
    /// A unit as it was read, before it is checked.
    type Raw: Raw;

    /// Returns the number of parts.
    fn parts(&self) -> usize;

    /// Finds the end of a part.
    ///
    /// # Errors
    /// The medium's; damage.
    fn scan(&self, part: usize) -> Result<()>;

    /// Decides where the log ends. Called once, after the last scan.
    ///
    /// # Errors
    /// The parts contradict each other, or acknowledged transactions are missing.
    fn end(&self) -> Result<LogEnd>;

    /// Reads a unit of a part by its number, counted from the oldest.
    ///
    /// # Errors
    /// The medium's.
    fn read(&self, part: usize, number: usize) -> Result<Self::Raw>;
}

/// The part of a log that a recovery plays.
#[derive(Debug, Clone)]
pub struct LogEnd {
    /// The newest epoch that the log holds in full.
    pub epoch: Epoch,
    /// The highest checkpoint epoch seen.
    pub ckpt_max: CkptEpoch,
    /// The number of units in each part.
    pub units: Vec<usize>,
    /// The bytes of the frames in these units.
    pub bytes: u64,
}

/// A unit as it was read, before it is checked.
pub trait Raw: Send {
    /// The unit after it was checked.
    type Open: Frames;

    /// Returns its size in memory, bytes.
    fn bytes(&self) -> u64;

    /// Returns the life of the database that wrote the unit.
    fn life(&self) -> Incarnation;

    /// Checks the unit.
    ///
    /// # Errors
    /// Damage.
    fn open(self) -> Result<Self::Open>;
}

/// The frames of a unit.
pub trait Frames: Send + Sync {
    /// Returns the bytes of the unit. The payloads of all its frames are slices of them.
    fn joined(&self) -> &[u8];

    /// Calls `each` with each frame and its origin.
    ///
    /// # Errors
    /// Those of `each`; [`Error::Corrupt`](perdura_base::Error::Corrupt) for bytes that are no frame.
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
