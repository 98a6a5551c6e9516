//! Spoiled rings: rings whose memory a node has lost although the node has not ended.
//!
//! The bytes of such a ring may have been acknowledged because this node held them, and the view that has the node as
//! a member may be in force. So the link forgets the position that the node held. It does not open the ring until no
//! view has the node as a member: otherwise a new ring would be mistaken for the one that held all acknowledged
//! bytes.

use perdura_base::{Pos, StreamId};

use super::{Link, Progress};

impl Link {
    /// Notes that a ring that is being opened does not hold the bytes that the node has reported. A node that was
    /// asked to make a ring anew may report new damage, with another sequence number.
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
