//! The four levels of parallel restart, as a schedule over five kinds of jobs.
//!
//! | job | does | waits for |
//! |---|---|---|
//! | BR | reads a part of an image from its disk | a place in its disk's pipeline |
//! | BP | puts it into memory | its BR |
//! | LR | finds the end of a stream, reads a part of it | levels 1, 2: all BP |
//! | LP | tests its records by the rule, applies them | its LR; levels 1 to 3: all BP |
//! | IB | builds the indexes of a partition | all LP |
//!
//! | level | a disk and a processor at once | LR beside BP | LP beside BP |
//! |---|---|---|---|
//! | 1 | | | |
//! | 2 | x | | |
//! | 3 | x | x | |
//! | 4 | x | x | x |
//!
//! A level is therefore three edges (`Edges`) and needs no separate code. Two threads read each disk (at level 1, one
//! does), one reads each stream, and `threads` players do the rest. With `inline` set, the caller's thread performs one
//! job after the other. A seed picks the order among those that the edges allow: so the simulator reaches the orders
//! that threads would produce.
//!
//! Records that are read before they can be played share a budget, split evenly between the streams. A stream that has
//! spent its share reads again after its records are played: level 3 then falls back to level 2.
//!
//! # Source
//! *Differential Logging* (000), section 4.2 and table 1.

/// Parts of an image, or units of a stream, that a disk's pipeline holds.
const PIPELINE: usize = 6;
/// Parts of an image that are read at once from one disk: while one is checked and handed over, the disk
/// has another to read.
const READS: usize = 2;
/// Records read ahead of their play, bytes, unless set otherwise.
pub const PILE_BYTES_DEFAULT: u64 = 256 << 20;

/// A level of parallel restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Disks in parallel, image before log, reading before playing.
    One,
    /// A disk and a processor at once.
    Two,
    /// The log is read while the image is loaded.
    Three,
    /// The log is played while the image is loaded.
    Four,
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 4] = [Level::One, Level::Two, Level::Three, Level::Four];

    /// Returns the level with this number.
    #[must_use]
    pub fn new(number: u8) -> Option<Level> {
        Level::ALL
            .into_iter()
            .find(|level| level.number() == number)
    }

    /// Returns its number, 1 to 4.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Level::One => 1,
            Level::Two => 2,
            Level::Three => 3,
            Level::Four => 4,
        }
    }

    pub(crate) fn edges(self) -> Edges {
        let edges = Edges {
            pipeline: if self == Level::One { 1 } else { PIPELINE },
            reads: if self == Level::One { 1 } else { READS },
            log_read_waits: self <= Level::Two,
            log_play_waits: self <= Level::Three,
        };
        debug_assert!(
            edges.log_play_waits || !edges.log_read_waits,
            "a log that waits to be read waits to be played"
        );
        edges
    }
}

/// The edges of a level: which jobs wait for which.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edges {
    /// The most parts of one disk that may be read and not yet played; 1: no overlap.
    pub pipeline: usize,
    /// The most parts of one disk that are read at once.
    pub reads: usize,
    /// True if LR waits for all BP.
    pub log_read_waits: bool,
    /// True if LP waits for all BP.
    pub log_play_waits: bool,
}

/// The disks, processors and memory that a restart uses.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// The level.
    pub level: Level,
    /// Players.
    pub threads: usize,
    /// Records read ahead of their play, bytes.
    pub pile_bytes: u64,
    /// Take all jobs on the caller's thread, in an order that this seed picks; 0: the order of
    /// the table above.
    pub inline: Option<u64>,
}

impl Schedule {
    /// Returns a level with this many players, besides the threads that read.
    #[must_use]
    pub fn new(level: Level, threads: usize) -> Schedule {
        Schedule {
            level,
            threads,
            pile_bytes: PILE_BYTES_DEFAULT,
            inline: None,
        }
    }

    /// Returns a level on the caller's thread alone.
    #[must_use]
    pub fn inline(level: Level, seed: u64) -> Schedule {
        Schedule {
            threads: 1,
            inline: Some(seed),
            ..Schedule::new(level, 1)
        }
    }
}

/// Seconds that disks and players were busy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Busy {
    /// The busiest image disk's reads.
    pub backup_read: f64,
    /// The busiest player's share of playing the image.
    pub backup_play: f64,
    /// The busiest log disk's reads, finding the log's end included.
    pub log_read: f64,
    /// The busiest player's share of playing the log.
    pub log_play: f64,
    /// From the first job of the image to the last.
    pub backup_span: f64,
    /// From the first job of the log to the last.
    pub log_span: f64,
    /// From the first job of the indexes to the last.
    pub index_span: f64,
}
