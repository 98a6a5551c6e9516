//! The four levels of parallel restart, as a schedule over five kinds of jobs. A *part* is a piece of an image on one
//! disk, and a *unit* is a piece of a log stream.
//!
//! | job | does | waits for |
//! |---|---|---|
//! | BR | reads a part of an image from its disk | room in the disk's pipeline |
//! | BP | puts the part into memory | the part's BR |
//! | LR | finds the end of a stream, reads a unit of the stream | levels 1, 2: all BP |
//! | LP | tests the unit's records by the rule, applies them | the unit's LR; levels 1 to 3: all BP |
//! | IB | builds the indexes of a partition | all LP |
//!
//! | level | reading and playing of the image overlap | LR beside BP | LP beside BP |
//! |---|---|---|---|
//! | 1 | | | |
//! | 2 | x | | |
//! | 3 | x | x | |
//! | 4 | x | x | x |
//!
//! So a level only chooses which jobs wait for which (`Edges`), and needs no separate code. Two threads read each image
//! disk (at level 1, one thread), one thread reads each stream, and `threads` players do the rest. With `inline` set,
//! the caller's thread performs the jobs in turn. A seed then picks one of the orders that the edges allow. So the
//! simulator covers the orders that threads would produce.
//!
//! A memory budget limits the records that were read and are not yet played. The streams share the budget evenly. After
//! a stream has used up its share, it is not read until its records are played. Level 3 then acts as level 2.
//!
//! # Source
//! *Differential Logging* (000), section 4.2 and table 1.

/// The maximum number of parts or units that are in work at a time, for each disk and each stream. A part or unit is in
/// work from the begin of its reading to the end of its playing.
const PIPELINE: usize = 6;
/// The maximum number of concurrent reads of parts from one disk. While a thread checks one part, the disk reads the
/// next part.
const READS: usize = 2;
/// The default memory budget for records that were read and are not yet played, bytes.
pub const PILE_BYTES_DEFAULT: u64 = 256 << 20;

/// A level of parallel restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The disks work in parallel. The log is read after the image is loaded. A disk reads a part only after the disk's
    /// previous part was played.
    One,
    /// As level 1, but a disk reads its next part while a processor plays the previous part.
    Two,
    /// As level 2, but the log is read while the image is loaded.
    Three,
    /// As level 3, but the log is also played while the image is loaded.
    Four,
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 4] = [Level::One, Level::Two, Level::Three, Level::Four];

    /// Returns the level with this number. `None`: no level has this number.
    #[must_use]
    pub fn new(number: u8) -> Option<Level> {
        Level::ALL
            .into_iter()
            .find(|level| level.number() == number)
    }

    /// Returns the level's number, 1 to 4.
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

/// The edges of a level: the rules by which jobs wait for each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edges {
    /// The maximum number of parts of one disk that are in work at a time, from the begin of reading to the end of
    /// playing. If it is 1, reading and playing do not overlap.
    pub pipeline: usize,
    /// The maximum number of concurrent reads of parts from one disk.
    pub reads: usize,
    /// True if the reading of the log (LR) waits until the whole image is in memory (BP).
    pub log_read_waits: bool,
    /// True if the playing of the log (LP) waits until the whole image is in memory (BP).
    pub log_play_waits: bool,
}

/// The disks, processors and memory that a restart uses.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// The level.
    pub level: Level,
    /// Count of players.
    pub threads: usize,
    /// The memory budget for records that were read and are not yet played, bytes.
    pub pile_bytes: u64,
    /// The seed for the order of the jobs if the caller's thread performs all jobs. With seed 0, all parts come before
    /// the log, and each part is played right after it is read. `None`: separate threads perform the jobs.
    pub inline: Option<u64>,
}

impl Schedule {
    /// Returns the schedule of a level with `threads` players. The threads that read are not counted.
    #[must_use]
    pub fn new(level: Level, threads: usize) -> Schedule {
        Schedule {
            level,
            threads,
            pile_bytes: PILE_BYTES_DEFAULT,
            inline: None,
        }
    }

    /// Returns the schedule that runs a level on the caller's thread alone.
    #[must_use]
    pub fn inline(level: Level, seed: u64) -> Schedule {
        Schedule {
            threads: 1,
            inline: Some(seed),
            ..Schedule::new(level, 1)
        }
    }
}

/// Busy times of disks and players, seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Busy {
    /// The time that the busiest image disk spent reading.
    pub backup_read: f64,
    /// The time that the busiest player spent playing the image.
    pub backup_play: f64,
    /// The time that the busiest log disk spent reading, including the search for the log's end.
    pub log_read: f64,
    /// The time that the busiest player spent playing the log.
    pub log_play: f64,
    /// The time from the begin of the image's first job to the end of the image's last job.
    pub backup_span: f64,
    /// The time from the begin of the log's first job to the end of the log's last job.
    pub log_span: f64,
    /// The time from the begin of the indexes' first job to the end of the indexes' last job.
    pub index_span: f64,
}
