//! Rings whose memory the node has lost without having ended.
//!
//! What such a ring held may have been acknowledged on the node's word, and the view that says so may be in force. So the link forgets
//! what the node holds of the stream, and leaves the ring alone until no view counts the node: a ring that was made anew before that
//! would be taken for the one that held all.

use perdura_base::{Pos, StreamId};

use super::{Link, Progress};

impl Link {
    /// Notes that a ring, which is being opened, does not hold what it has said that it holds. A node may find so again when it was to
    /// make the ring anew: it names another damage then.
    pub(super) fn spoil(&mut self, at: usize, damage: u64) {
        assert!(
            matches!(self.streams[at], Progress::Opening),
            "a ring is found spoiled when it is opened"
        );
        self.spoiled[at] = Some(damage);
        // Until the views have been looked at.
        self.is_counted = true;
        self.held[at] = Pos(0);
        self.streams[at] = Progress::Closed;
        self.mapped[at] = None;
        self.trouble = Some(format!(
            "its memory does not hold what was sent of stream {at}: it counts as a node that has rebooted"
        ));
    }

    /// Whether some ring is spoiled.
    pub fn is_spoiled(&self) -> bool {
        self.spoiled.iter().any(Option::is_some)
    }

    /// Whether a stream's ring is spoiled.
    pub fn has_spoiled(&self, stream: StreamId) -> bool {
        self.spoiled[usize::from(stream.0)].is_some()
    }
}
