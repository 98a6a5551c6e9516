//! The lives of a database that a scan reads, and the position at which the log of each begins.

use perdura_base::{Epoch, Incarnation, Pos, StreamId, Uuid};

use crate::anchor::{ChainLink, History};
use crate::sizes::SegmentSizes;

/// The lives whose log a scan reads. The anchor lists all of them
/// ([`History::lives`]); a caller that gives up the newest ones passes fewer.
#[derive(Debug, Clone)]
pub struct Lives<'a> {
    /// The database.
    pub uuid: Uuid,
    /// Sizes of its segments.
    pub segments: SegmentSizes,
    /// The lives that ended, oldest first: each is read up to its cut, which must be reached.
    pub closed: &'a [ChainLink],
    /// The newest life, read as far as its blocks are valid.
    pub open: Incarnation,
    /// The start of each stream of the newest life.
    pub open_start: Vec<Pos>,
    /// The epoch that the newest life's log must reach.
    pub vouched: Epoch,
}

impl Lives<'_> {
    /// Returns the position at which the log of a life starts in this stream, or `None` if the life is not one of
    /// these.
    #[must_use]
    pub fn start_of(&self, incarnation: Incarnation, stream: StreamId) -> Option<Pos> {
        let s = usize::from(stream.0);
        if incarnation == self.open {
            return Some(self.open_start[s]);
        }
        let mut closed = self.closed.iter();
        closed
            .find(|link| link.incarnation == incarnation)
            .map(|link| link.start[s])
    }
}

impl History {
    /// Returns all lives whose log is still needed.
    #[must_use]
    pub fn lives(&self) -> Lives<'_> {
        Lives {
            uuid: self.uuid,
            segments: self.segments,
            closed: &self.chain,
            open: self.incarnation,
            open_start: self.open_start(),
            vouched: self.vouched.epoch,
        }
    }

    /// Returns the lives as of the time when the closed life with this index in the chain was the newest. For an index
    /// beyond the chain it returns [`lives`](Self::lives).
    #[must_use]
    pub fn lives_until(&self, index: usize) -> Lives<'_> {
        match self.chain.get(index) {
            None => self.lives(),
            Some(link) => Lives {
                closed: &self.chain[..index],
                open: link.incarnation,
                open_start: link.start.clone(),
                vouched: Epoch(0),
                ..self.lives()
            },
        }
    }
}
