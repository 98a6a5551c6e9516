//! The four levels of parallel restart, as a schedule over five kinds of jobs.
//!
//! | job | does | waits for |
//! |---|---|---|
//! | BR | reads a part of an image from its disk | a place in its disk's pipeline |
//! | BP | puts the part into memory | its BR |
//! | LR | finds the end of a stream, reads a unit of the stream | levels 1, 2: all BP |
//! | LP | tests the unit's records by the rule, applies them | its LR; levels 1 to 3: all BP |
//! | IB | builds the indexes of a partition | all LP |
//!
//! | level | reading and playing of the image overlap | LR beside BP | LP beside BP |
//! |---|---|---|---|
//! | 1 | | | |
//! | 2 | x | | |
//! | 3 | x | x | |
//! | 4 | x | x | x |
//!
//! So a level is a choice of three edges between jobs (`Edges`) and needs no separate code. Each disk is read by two
//! threads (at level 1, by one), each stream is read by one thread, and `threads` players do the rest. With `inline`
//! set, the caller's thread performs one job after the other. A seed picks one of the orders that the edges allow, so
//! the simulator covers the orders that threads would produce.
//!
//! Records that are read before they can be played share a memory budget, which is split evenly between the streams. A
//! stream that has used up its share reads on only after its records are played. Level 3 then acts as level 2.
//!
//! # Source
//! *Differential Logging* (000), section 4.2 and table 1.

/// The most parts of an image, or units of a stream, that are read from a disk and not yet played.
const PIPELINE: usize = 6;
/// Parts of an image that are read from one disk at the same time: while one part is checked and passed on, the disk
/// reads another.
const READS: usize = 2;
/// The default budget for records that are read before they can be played, bytes.
pub const PILE_BYTES_DEFAULT: u64 = 256 << 20;

/// A level of parallel restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The disks work in parallel. The image comes before the log, and a disk's part is played before its next part is
    /// read.
    One,
    /// As level 1, but a disk reads while a processor plays.
    Two,
    /// As level 2, but the log is read while the image is loaded.
    Three,
    /// As level 3, but the log is also played while the image is loaded.
    Four,
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 4] = [Level::One, Level::Two, Level::Three, Level::Four];

    /// Returns the level with this number. `None`: there is no such level.
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
    /// The most parts of one disk that may be read and not yet played. With 1, reading and playing do not overlap.
    pub pipeline: usize,
    /// The most parts of one disk that are read at the same time.
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
    /// The number of players.
    pub threads: usize,
    /// The budget for records that are read before they can be played, bytes.
    pub pile_bytes: u64,
    /// If set, the caller's thread performs all jobs, in an order that this seed picks; 0: in the order of the table
    /// above. `None`: threads perform them.
    pub inline: Option<u64>,
}

impl Schedule {
    /// Returns the schedule of a level with this many players, in addition to the threads that read.
    #[must_use]
    pub fn new(level: Level, threads: usize) -> Schedule {
        Schedule {
            level,
            threads,
            pile_bytes: PILE_BYTES_DEFAULT,
            inline: None,
        }
    }

    /// Returns the schedule of a level that runs on the caller's thread alone.
    #[must_use]
    pub fn inline(level: Level, seed: u64) -> Schedule {
        Schedule {
            threads: 1,
            inline: Some(seed),
            ..Schedule::new(level, 1)
        }
    }
}

/// The times for which disks and players were busy, seconds.
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
    /// The time from the begin of the image's first job to the end of its last.
    pub backup_span: f64,
    /// The time from the begin of the log's first job to the end of its last.
    pub log_span: f64,
    /// The time from the begin of the indexes' first job to the end of their last.
    pub index_span: f64,
}
