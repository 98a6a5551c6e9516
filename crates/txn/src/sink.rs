//! The sinks of an executor's commits.

use std::sync::Arc;

use perdura_base::StreamId;
use perdura_wal::{FrameKind, Wal};

/// The sink of the records of commits.
#[derive(Clone)]
pub enum Sink {
    /// To the log. A ticket's epoch is durable when the log has written it.
    Append(Arc<Wal>),
    /// The yardstick's: nowhere. A commit is acknowledged at once, and a crash loses it unless an image has it. The log
    /// still knows when the database has stopped.
    Unlogged(Arc<Wal>),
    /// The yardstick's: to the log, with frames of effects cut to this many bytes. They cannot be replayed.
    Cut(Arc<Wal>, usize),
    /// Nowhere: a restart replays records that the log has.
    Replay,
}

impl Sink {
    /// Returns the log that admits writes.
    pub(crate) fn log(&self) -> Option<&Wal> {
        match self {
            Sink::Append(wal) | Sink::Unlogged(wal) | Sink::Cut(wal, _) => Some(wal),
            Sink::Replay => None,
        }
    }

    /// Returns the log that commits are appended to.
    pub(crate) fn wal_of_commits(&self) -> Option<&Wal> {
        match self {
            Sink::Append(wal) | Sink::Cut(wal, _) => Some(wal),
            Sink::Unlogged(_) | Sink::Replay => None,
        }
    }

    /// Cuts the frame of a commit's rows, if frames of its kind are cut.
    pub(crate) fn cut(&self, kind: FrameKind, frame: &mut Vec<u8>) {
        if let (Sink::Cut(_, bytes), FrameKind::Effects) = (self, kind) {
            frame.truncate(*bytes);
        }
    }

    /// Returns whether commits are lost on purpose.
    pub(crate) fn is_unlogged(&self) -> bool {
        matches!(self, Sink::Unlogged(_))
    }

    pub(crate) fn is_replay(&self) -> bool {
        matches!(self, Sink::Replay)
    }

    /// Returns the stream of the next transaction.
    pub(crate) fn idlest(&self) -> StreamId {
        self.log().map_or(StreamId(0), Wal::idlest)
    }

    /// Stops the database. A replay has no database to stop: the restart ends with an error.
    pub(crate) fn fail(&self, why: &str) {
        if let Some(wal) = self.log() {
            wal.fail(why);
        }
    }
}
