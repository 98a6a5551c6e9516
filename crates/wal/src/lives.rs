//! The lives of a database that a scan reads, and where the log of each life begins.

use perdura_base::{Epoch, Incarnation, Pos, StreamId, Uuid};

use crate::anchor::{ChainLink, History};
use crate::sizes::SegmentSizes;

/// The lives that a scan reads. The anchor lists all lives ([`History::lives`]). A caller that abandons the newest
/// lives passes fewer.
#[derive(Debug, Clone)]
pub struct Lives<'a> {
    /// The uuid of the database.
    pub uuid: Uuid,
    /// The sizes of the database's segments.
    pub segments: SegmentSizes,
    /// The closed lives, oldest first. Each life is read up to the life's cut. A log that ends before the cut is
    /// damaged.
    pub closed: &'a [ChainLink],
    /// The newest life. This life is read up to the first invalid block.
    pub open: Incarnation,
    /// The newest life's start in each stream.
    pub open_start: Vec<Pos>,
    /// The last epoch that the newest life's log must contain.
    pub vouched: Epoch,
}

impl Lives<'_> {
    /// Returns the start of a life's log in this stream; `None` if the life is not in the list.
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
    /// Returns all lives with a log that is still needed.
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

    /// Returns the lives up to the closed life that has this index in the chain. In the result this life is the newest
    /// one. If the index is beyond the chain, returns [`lives`](Self::lives).
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
