//! Rings whose memory the node has lost without having ended.
//!
//! The contents of such a ring may have been acknowledged on the node's word, and the view that says so may be in
//! force. So the link forgets what the node holds of the stream. It leaves the ring alone until no view counts the
//! node: a ring made anew before that would be mistaken for the one that held everything.

use perdura_base::{Pos, StreamId};

use super::{Link, Progress};

impl Link {
    /// Notes that a ring, which is being opened, does not hold what the node has reported. A node that was to make the
    /// ring anew may find it spoiled again. It then names another damage.
    pub(super) fn spoil(&mut self, at: usize, damage: u64) {
        assert!(
            matches!(self.streams[at], Progress::Opening),
            "a ring is found spoiled when it is opened"
        );
        self.spoiled[at] = Some(damage);
        // The mark is set until the views have been checked.
        self.is_counted = true;
        self.held[at] = Pos(0);
        self.streams[at] = Progress::Closed;
        self.mapped[at] = None;
        self.trouble = Some(format!(
            "its memory differs from what was sent of stream {at}. It is treated as a rebooted \
             node"
        ));
    }

    /// Returns whether some ring is spoiled.
    pub fn is_spoiled(&self) -> bool {
        self.spoiled.iter().any(Option::is_some)
    }

    /// Returns whether a stream's ring is spoiled.
    pub fn has_spoiled(&self, stream: StreamId) -> bool {
        self.spoiled[usize::from(stream.0)].is_some()
    }
}
