//! The players: the parts of a restart that process the frames of a log.
//!
//! The player of page records plays in the first pass. It has three operations. `frame` takes a frame of a stream and
//! tests its records against the gate. `end_of_life` ends one life of the database. `finish` does the remaining work
//! once the log has been played.
//!
//! | records | `frame` | `end_of_life` | `finish` |
//! |---|---|---|---|
//! | group | XORs page records by their epochs | | |
//! | fate | XORs changes by their transaction's fate | forgets the fates | |
//! | two-pass | XORs changes that the image does not have | notes the losers | undoes the losers |
//! | merge | assigns changes after the image's begin mark, by order number | undoes the losers | |
//!
//! Frames of other owners are played after that: see `owner`.

use perdura_wal::{Direction, FrameKind};

mod tree;

pub use tree::{Ahead, Table, TreePlay};

/// The player that a method names.
#[derive(Debug, Clone, Copy)]
pub enum Player {
    /// Plays page records.
    Pages(PagePlayer),
    /// Plays ordered frames, after the page records.
    Ordered,
    /// Plays operations on a tree in this way, after all other players.
    Tree(TreePlay),
}

impl Player {
    /// Returns the owner whose frames the player plays.
    #[must_use]
    pub(crate) fn owner(self) -> FrameOwner {
        match self {
            Player::Pages(_) => FrameOwner::Pages,
            Player::Ordered => FrameOwner::Ordered,
            Player::Tree(_) => FrameOwner::Tree,
        }
    }
}

/// The owner whose frames a method plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameOwner {
    Pages,
    Ordered,
    Tree,
}

/// The player of page records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagePlayer {
    /// Groups of committed transactions. Their records may be played in any order; the direction in which the log is
    /// read is a parameter.
    Group(Direction),
    /// Records of interleaved transactions, newest first. A transaction's end is read before its changes, so one pass
    /// is enough.
    Fate,
    /// Records of interleaved transactions, oldest first. A second pass undoes the transactions that never ended.
    TwoPass,
    /// Records with an order number. All streams are merged, life by life.
    Merge(Mergers),
}

/// The number of workers that merge. Each plays only its own partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mergers {
    /// One worker plays everything.
    One,
    /// One worker for each thread.
    PerThread,
}

impl PagePlayer {
    /// Returns the direction in which the log is read.
    #[must_use]
    pub fn direction(self) -> Direction {
        match self {
            PagePlayer::Group(direction) => direction,
            PagePlayer::Fate => Direction::Backward,
            PagePlayer::TwoPass | PagePlayer::Merge(_) => Direction::Forward,
        }
    }

    /// Returns the kind of frames that hold its records.
    #[must_use]
    pub fn kind(self) -> FrameKind {
        match self {
            PagePlayer::Group(_) => FrameKind::Group,
            PagePlayer::Fate | PagePlayer::TwoPass | PagePlayer::Merge(_) => FrameKind::Record,
        }
    }

    /// Returns how many workers merge all streams if there are `threads` threads; 0 if each stream is played
    /// separately.
    #[must_use]
    pub fn mergers(self, threads: usize) -> usize {
        match self {
            PagePlayer::Merge(Mergers::One) => 1,
            PagePlayer::Merge(Mergers::PerThread) => threads,
            PagePlayer::Group(_) | PagePlayer::Fate | PagePlayer::TwoPass => 0,
        }
    }
}
