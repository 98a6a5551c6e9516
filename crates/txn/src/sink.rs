//! The destination of the log records that an executor makes when it commits.

use std::sync::Arc;

use perdura_base::StreamId;
use perdura_wal::{FrameKind, Wal};

/// The destination of the records of commits.
#[derive(Clone)]
pub enum Sink {
    /// The log. A ticket's epoch is durable when the log has written it.
    Append(Arc<Wal>),
    /// No destination, for measurements only. A commit is acknowledged at once. A crash loses every commit that is not
    /// in an image. The log is still used to stop the database.
    Unlogged(Arc<Wal>),
    /// The log, for measurements only. Frames of effects are cut to this many bytes. Cut frames cannot be replayed.
    Cut(Arc<Wal>, usize),
    /// No destination, because a restart replays records that are already in the log.
    Replay,
}

impl Sink {
    /// Returns the log that admits or refuses writes; `None` in a replay.
    pub(crate) fn log(&self) -> Option<&Wal> {
        match self {
            Sink::Append(wal) | Sink::Unlogged(wal) | Sink::Cut(wal, _) => Some(wal),
            Sink::Replay => None,
        }
    }

    /// Returns the log for commits, if any.
    pub(crate) fn wal_of_commits(&self) -> Option<&Wal> {
        match self {
            Sink::Append(wal) | Sink::Cut(wal, _) => Some(wal),
            Sink::Unlogged(_) | Sink::Replay => None,
        }
    }

    /// Cuts the frame of a commit, if this sink cuts frames of this kind.
    pub(crate) fn cut(&self, kind: FrameKind, frame: &mut Vec<u8>) {
        if let (Sink::Cut(_, bytes), FrameKind::Effects) = (self, kind) {
            frame.truncate(*bytes);
        }
    }

    /// Returns whether commits are not logged, so that a crash may lose them.
    pub(crate) fn is_unlogged(&self) -> bool {
        matches!(self, Sink::Unlogged(_))
    }

    pub(crate) fn is_replay(&self) -> bool {
        matches!(self, Sink::Replay)
    }

    /// Returns the idlest stream of the log, for the next transaction; stream 0 in a replay.
    pub(crate) fn idlest(&self) -> StreamId {
        self.log().map_or(StreamId(0), Wal::idlest)
    }

    /// Stops the database. Does nothing in a replay, where the restart ends with an error instead.
    pub(crate) fn fail(&self, why: &str) {
        if let Some(wal) = self.log() {
            wal.fail(why);
        }
    }
}
