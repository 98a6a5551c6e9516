//! The lives of a database that a scan reads, and where the log of each life begins.

use perdura_base::{Epoch, Incarnation, Pos, StreamId, Uuid};

use crate::anchor::{ChainLink, History};
use crate::sizes::SegmentSizes;

/// The lives whose log a scan reads. The anchor lists all of them ([`History::lives`]). A caller that abandons the
/// newest lives passes fewer.
#[derive(Debug, Clone)]
pub struct Lives<'a> {
    /// The uuid of the database.
    pub uuid: Uuid,
    /// The sizes of the database's segments.
    pub segments: SegmentSizes,
    /// The closed lives, oldest first. Each is read up to its cut; a log that ends before the cut is damaged.
    pub closed: &'a [ChainLink],
    /// The newest life. It is read as far as its blocks are valid.
    pub open: Incarnation,
    /// The position at which the newest life starts in each stream.
    pub open_start: Vec<Pos>,
    /// The epoch up to which the newest life's log must exist.
    pub vouched: Epoch,
}

impl Lives<'_> {
    /// Returns the position at which the log of a life starts in this stream; `None` if the life is not in the list.
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

    /// Returns the lives as they were while the closed life with this index in the chain was the newest. If the index
    /// is beyond the chain, returns [`lives`](Self::lives).
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
