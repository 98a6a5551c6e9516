//! The interface of a log that [`recover`](crate::recover::recover) plays.
//!
//! A log consists of parts, which are read in parallel. A part consists of units, which are read in order. All frames
//! of a unit are from one life of the database. Each frame comes with its [`Origin`], so a player needs nothing else
//! from the log.
//!
//! [`crate::streams`] implements the interface for a database's log.

use perdura_base::{CkptEpoch, Epoch, Incarnation, Result};
use perdura_wal::{Direction, Frame, Origin, RawUnit, Unit};

/// A log that a recovery plays. All methods may be called on any thread.
pub trait LogSource: Sync {
    /// A unit as it was read, before it is checked.
    type Raw: Raw;

    /// Returns how many parts the log has.
    fn parts(&self) -> usize;

    /// Finds where a part ends.
    ///
    /// # Errors
    /// Those of the disk; [`Error::Corrupt`](perdura_base::Error::Corrupt) for damage.
    fn scan(&self, part: usize) -> Result<()>;

    /// Decides where the log ends. Called one time, after the last scan.
    ///
    /// # Errors
    /// Contradictions between the parts, or missing acknowledged transactions.
    fn end(&self) -> Result<LogEnd>;

    /// Reads the unit with this index from a part. The oldest unit has index 0.
    ///
    /// # Errors
    /// Errors of the disk.
    fn read(&self, part: usize, number: usize) -> Result<Self::Raw>;
}

/// The end of a log, and the size of the log up to that end.
#[derive(Debug, Clone)]
pub struct LogEnd {
    /// The newest epoch that the log holds in full.
    pub epoch: Epoch,
    /// The highest checkpoint epoch seen.
    pub ckpt_max: CkptEpoch,
    /// Count of units in each part.
    pub units: Vec<usize>,
    /// The bytes of the frames in these units.
    pub bytes: u64,
}

/// A unit as it was read, before it is checked.
pub trait Raw: Send {
    /// The form of the unit after it was checked.
    type Open: Frames;

    /// Returns the unit's size in memory, bytes.
    fn bytes(&self) -> u64;

    /// Returns the life of the database in which the unit was written.
    fn life(&self) -> Incarnation;

    /// Checks the unit, and returns it in the form that gives access to its frames.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) if the unit is damaged.
    fn open(self) -> Result<Self::Open>;
}

/// The frames of a unit.
pub trait Frames: Send + Sync {
    /// Returns the bytes of the unit. The payload of each frame is a slice of these bytes.
    fn joined(&self) -> &[u8];

    /// Calls `each` with each frame and its origin.
    ///
    /// # Errors
    /// Errors that `each` returns; [`Error::Corrupt`](perdura_base::Error::Corrupt) for bytes that are no frame.
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
