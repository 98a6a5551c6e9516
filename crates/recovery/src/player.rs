//! The players: what a restart does with the frames of a log.
//!
//! A player has three verbs. `frame` takes a frame of a stream and tests its records against the gate;
//! `end_of_life` drops what holds for one life of the database only; `finish` does the rest when the
//! log has been played.
//!
//! | player | `frame` | `end_of_life` | `finish` |
//! |---|---|---|---|
//! | group | XORs page records by their epochs | | |
//! | fate | XORs changes by their transaction's fate | forgets the fates | |
//! | two-pass | XORs what the image does not have | notes the losers | undoes the losers |
//! | merge | assigns what follows the image's begin mark, by order number | undoes the losers | |
//! | supplied | the caller's | the caller's | the caller's |
//! | ordered | | | |
//! | tree | | | |
//!
//! The set is closed but for the supplied one: a player of another kind of record, which may need layers
//! above this one, is an implementation of [`Supplied`]. It plays the log alone, as a method's
//! player, or beside one: `crate::route` decides which of them takes a frame.
//!
//! *Ordered* stands for the second pass ([`crate::ordered`]), which plays ordered frames when the first one is
//! over. In the first pass the method of the database's scheme takes its place. *Tree* stands for the tree's part
//! ([`crate::tree`]), which follows both; in the first pass the method of groups takes its place.

use std::fmt::Debug;
use std::sync::Arc;

use perdura_base::{Incarnation, Result, StreamId};
use perdura_heap::Heap;
use perdura_wal::{Direction, Frame, FrameKind, Origin, Role};

use crate::tree::play::TreePlay;

/// What a restart does with the log.
#[derive(Debug, Clone)]
pub enum Player {
    /// Groups of committed transactions. Their records have no order, so that the row says which way
    /// the log is read.
    Group(Direction),
    /// Records of interleaved transactions, newest first: a transaction's end comes before its
    /// changes, and one pass decides.
    Fate,
    /// Records of interleaved transactions, oldest first, and a second pass for those that never
    /// ended.
    TwoPass,
    /// Records with an order number: all streams merged, life by life.
    Merge(Mergers),
    /// The player of the restart's caller. Frames come oldest first.
    Supplied(Arc<dyn Supplied>),
    /// None in this pass: ordered frames are played after it.
    Ordered,
    /// None in this pass: the tree's part follows it, with this table of dirty pages.
    Tree(TreePlay),
}

/// How many workers merge. Each plays only its own partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mergers {
    /// One plays everything.
    One,
    /// As many as there are threads.
    PerThread,
}

/// When the indexes are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexNeed {
    /// After the log, which is played into pages.
    AfterLog,
    /// From the image alone, before the log is played: its records name rows by their keys.
    BeforeLog,
}

impl Player {
    /// When the indexes are built.
    #[must_use]
    pub fn indexes(&self) -> IndexNeed {
        match self {
            Player::Group(_)
            | Player::Fate
            | Player::TwoPass
            | Player::Merge(_)
            | Player::Ordered
            | Player::Tree(_) => IndexNeed::AfterLog,
            Player::Supplied(player) => player.indexes(),
        }
    }

    /// Which way the log is read.
    #[must_use]
    pub fn direction(&self) -> Direction {
        match self {
            Player::Group(direction) => *direction,
            Player::Fate => Direction::Backward,
            Player::TwoPass
            | Player::Merge(_)
            | Player::Supplied(_)
            | Player::Ordered
            | Player::Tree(_) => Direction::Forward,
        }
    }

    /// Whether it plays the records in frames of this kind.
    #[must_use]
    pub fn plays(&self, kind: FrameKind) -> bool {
        match (self, kind.role()) {
            (_, Role::BeginMark | Role::EndMark | Role::Log | Role::Ordered | Role::Numbered)
            | (Player::Ordered | Player::Tree(_), Role::Records) => false,
            (Player::Group(_), Role::Records) => kind == FrameKind::Group,
            (Player::Fate | Player::TwoPass | Player::Merge(_), Role::Records) => {
                kind == FrameKind::Record
            }
            (Player::Supplied(player), Role::Records) => player.plays(kind),
        }
    }

    /// How many workers merge all streams, given this many threads; 0 if each stream is played by
    /// itself.
    #[must_use]
    pub fn mergers(&self, threads: usize) -> usize {
        match self {
            Player::Merge(Mergers::One) => 1,
            Player::Merge(Mergers::PerThread) => threads,
            Player::Group(_)
            | Player::Fate
            | Player::TwoPass
            | Player::Supplied(_)
            | Player::Ordered
            | Player::Tree(_) => 0,
        }
    }
}

/// A player from a layer above: for records that only a catalog, or a transaction, can replay.
///
/// The calls for one stream come one after the other, in the order of the log; those for different
/// streams come side by side. Only frames that count are played: what lies beyond the cut is not
/// among them. Pages are complete from the first call on, unless the schedule's level lets the log
/// be played beside the image. The first error ends the restart.
///
/// As a method's player it also takes the frames that carry no records; beside a method's player it
/// takes the frames that it [`plays`](Self::plays) and no others.
pub trait Supplied: Debug + Send + Sync {
    /// Its name in errors.
    fn name(&self) -> &'static str;

    /// Whether it plays the records in frames of this kind. No other player of the restart may.
    fn plays(&self, kind: FrameKind) -> bool;

    /// Begins with pages that hold nothing of the log. A restart that meets a damaged page of its
    /// image begins again, with other pages.
    fn begin(&self, heap: &Arc<Heap>);

    /// When it needs the indexes. With [`IndexNeed::BeforeLog`] the heap that [`begin`](Self::begin)
    /// gave has them, and the player may change rows as a transaction does.
    fn indexes(&self) -> IndexNeed {
        IndexNeed::AfterLog
    }

    /// Plays a frame. A payload that the player cannot read is an error, not passed over.
    ///
    /// # Errors
    /// The frame does not parse, or its change cannot be made.
    fn frame(&self, frame: Frame<'_>, origin: Origin) -> Result<()>;

    /// Ends a life of the database in one stream: all its frames there have been played.
    ///
    /// # Errors
    /// What the life left unfinished cannot be taken back.
    fn end_of_life(&self, stream: StreamId, life: Incarnation) -> Result<()>;

    /// Ends the log: all streams have been played.
    ///
    /// # Errors
    /// The state is not one that a log can leave.
    fn finish(&self) -> Result<()>;
}
