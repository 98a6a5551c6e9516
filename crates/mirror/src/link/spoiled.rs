//! Spoiled rings: rings that have lost bytes although their node still runs.
//!
//! Lost bytes may have been acknowledged because the node had reported them as held. So the link forgets the position
//! up to which the node held the stream. The view in force may have the node as a member. While that is possible, the
//! link does not open the ring. Otherwise a new ring would be mistaken for the old ring that held all acknowledged
//! bytes.

use perdura_base::{Pos, StreamId};

use super::{Link, Progress};

impl Link {
    /// Notes that a ring was found spoiled when the link opened it. The ring lacks bytes that the node has reported as
    /// held. After a request to renew the ring, the node may report new damage with a new sequence number.
    pub(super) fn spoil(&mut self, at: usize, damage: u64) {
        assert!(
            matches!(self.streams[at], Progress::Opening),
            "a ring is found spoiled when it is opened"
        );
        self.spoiled[at] = Some(damage);
        // This is assumed until the views have been checked.
        self.is_counted = true;
        self.held[at] = Pos(0);
        self.streams[at] = Progress::Closed;
        self.mapped[at] = None;
        self.trouble = Some(format!(
            "its memory differs from what was sent of stream {at}. It is treated as a rebooted \
             node"
        ));
    }

    /// Returns whether any ring is spoiled.
    pub fn is_spoiled(&self) -> bool {
        self.spoiled.iter().any(Option::is_some)
    }

    /// Returns whether the ring of a stream is spoiled.
    pub fn has_spoiled(&self, stream: StreamId) -> bool {
        self.spoiled[usize::from(stream.0)].is_some()
    }
}
