//! The players: what a restart does with the frames of a log.
//!
//! The player of page records plays in the first pass. It has three verbs. `frame` takes a frame of a stream and
//! tests its records against the gate. `end_of_life` forgets the facts of one life of the database. `finish` does the
//! rest when the log has been played.
//!
//! | records | `frame` | `end_of_life` | `finish` |
//! |---|---|---|---|
//! | group | XORs page records by their epochs | | |
//! | fate | XORs changes by their transaction's fate | forgets the fates | |
//! | two-pass | XORs what the image does not have | notes the losers | undoes the losers |
//! | merge | assigns what follows the image's begin mark, by order number | undoes the losers | |
//!
//! Frames of other owners follow: see `owner`.

use perdura_wal::{Direction, FrameKind};

mod tree;

pub use tree::{Ahead, Table, TreePlay};

/// The player that a method names.
#[derive(Debug, Clone, Copy)]
pub enum Player {
    /// Plays page records.
    Pages(PagePlayer),
    /// Plays ordered frames, behind the page records of the database's scheme.
    Ordered,
    /// Plays operations on a tree with this table of dirty pages, behind all others.
    Tree(TreePlay),
}

impl Player {
    /// Returns whose frames it plays.
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
    /// Groups of committed transactions. Their records have no order, so the row gives the direction in which the log
    /// is read.
    Group(Direction),
    /// Records of interleaved transactions, newest first: a transaction's end comes before its
    /// changes, and one pass decides.
    Fate,
    /// Records of interleaved transactions, oldest first, and a second pass for those that never
    /// ended.
    TwoPass,
    /// Records with an order number: all streams merged, life by life.
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

    /// Returns the number of workers that merge all streams, with `threads` threads; 0 if each stream is played by
    /// itself.
    #[must_use]
    pub fn mergers(self, threads: usize) -> usize {
        match self {
            PagePlayer::Merge(Mergers::One) => 1,
            PagePlayer::Merge(Mergers::PerThread) => threads,
            PagePlayer::Group(_) | PagePlayer::Fate | PagePlayer::TwoPass => 0,
        }
    }
}
