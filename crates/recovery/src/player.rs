//! The players: the code of a restart that applies the frames of a log.
//!
//! The player of page records plays in the first pass. It has three operations. `frame` takes a frame of a stream,
//! tests the frame's records against the gate (see [`rule`](crate::rule)), and applies the records that pass.
//! `end_of_life` ends one life of the database. `finish` does the remaining work after the whole log has been played.
//! *Losers* are transactions without a commit and without an abort.
//!
//! | player | `frame` | `end_of_life` | `finish` |
//! |---|---|---|---|
//! | group | XORs page records, as their epochs decide | | |
//! | fate | XORs changes, as the fate of their transaction decides | drops the fates | |
//! | two-pass | XORs changes that the image does not have | notes the losers | undoes the losers |
//! | merge | assigns changes after the image's begin mark, by order number | undoes the losers | |
//!
//! After the first pass, the second and later owners play their frames: see `owner`.

use perdura_wal::{Direction, FrameKind};

mod tree;

pub use tree::{Ahead, Table, TreePlay};

/// The player that a method names.
#[derive(Debug, Clone, Copy)]
pub enum Player {
    /// The player of page records.
    Pages(PagePlayer),
    /// The player of ordered frames, which plays after the page records.
    Ordered,
    /// The player of operations on a tree, which plays after all other players.
    Tree(TreePlay),
}

impl Player {
    /// Returns the owner of the player's frames.
    #[must_use]
    pub(crate) fn owner(self) -> FrameOwner {
        match self {
            Player::Pages(_) => FrameOwner::Pages,
            Player::Ordered => FrameOwner::Ordered,
            Player::Tree(_) => FrameOwner::Tree,
        }
    }
}

/// The owner of a method's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameOwner {
    Pages,
    Ordered,
    Tree,
}

/// The player of page records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagePlayer {
    /// Plays groups, which belong to committed transactions. Their records may be played in any order, so the direction
    /// of reading the log is a parameter.
    Group(Direction),
    /// Plays records of interleaved transactions, newest first. It reads a transaction's end before the transaction's
    /// changes, so one pass is enough.
    Fate,
    /// Plays records of interleaved transactions, oldest first. A second pass undoes the losers.
    TwoPass,
    /// Plays records with an order number. It merges all streams, one life of the database after the other.
    Merge(Mergers),
}

/// The count of workers that merge. Each worker plays only its own partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mergers {
    /// One worker plays everything.
    One,
    /// One worker for each thread.
    PerThread,
}

impl PagePlayer {
    /// Returns the direction of reading the log.
    #[must_use]
    pub fn direction(self) -> Direction {
        match self {
            PagePlayer::Group(direction) => direction,
            PagePlayer::Fate => Direction::Backward,
            PagePlayer::TwoPass | PagePlayer::Merge(_) => Direction::Forward,
        }
    }

    /// Returns the kind of frames that hold the player's records.
    #[must_use]
    pub fn kind(self) -> FrameKind {
        match self {
            PagePlayer::Group(_) => FrameKind::Group,
            PagePlayer::Fate | PagePlayer::TwoPass | PagePlayer::Merge(_) => FrameKind::Record,
        }
    }

    /// Returns how many of `threads` threads merge all streams. Returns 0 if each stream is played separately.
    #[must_use]
    pub fn mergers(self, threads: usize) -> usize {
        match self {
            PagePlayer::Merge(Mergers::One) => 1,
            PagePlayer::Merge(Mergers::PerThread) => threads,
            PagePlayer::Group(_) | PagePlayer::Fate | PagePlayer::TwoPass => 0,
        }
    }
}
