//! Decides which player or owner takes a frame. No other code decides this.
//!
//! The first pass may meet any frame of the log. The player of page records takes the frames of its kind. It also takes
//! frames without records: checkpoint marks, restarts, beacons. A later owner may [claim](crate::owner) frames. The
//! first pass leaves claimed frames for that owner's later pass. Any other frame ends the restart with an error.

use perdura_base::Error;
use perdura_wal::{Frame, FrameKind, Origin, Role};

use crate::claims::Claims;
use crate::player::PagePlayer;

/// The destination of a frame that the first pass reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// The player of page records.
    Records,
    /// The frame's owner, in a later pass.
    Later,
}

/// The routes of the frames in one restart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Routes {
    /// The player of page records.
    pub records: PagePlayer,
    /// The kinds of frames that owners play in later passes.
    later: Claims,
}

impl Routes {
    /// Makes the routes of the first pass. `records` plays in this pass. Owners play the kinds in `later` afterwards.
    pub fn new(records: PagePlayer, later: Claims) -> Routes {
        assert!(
            !later.has(records.kind()),
            "frames of kind {} have one owner",
            records.kind().code()
        );
        Routes { records, later }
    }

    /// Returns the destination of frames of this kind. `None`: no player or owner takes them, and the caller ends the
    /// restart with the error [`foreign`].
    #[inline]
    pub fn of(&self, kind: FrameKind) -> Option<Route> {
        match kind.role() {
            Role::Records => (kind == self.records.kind()).then_some(Route::Records),
            Role::BeginMark | Role::EndMark | Role::Log => Some(Route::Records),
            Role::Ordered | Role::Numbered => self.later.has(kind).then_some(Route::Later),
        }
    }
}

/// Returns the error for a frame that no player of the restart takes.
#[cold]
pub(crate) fn foreign(frame: Frame<'_>, origin: &Origin) -> Error {
    refuse(
        origin,
        String::from("records of the scheme and the families that the anchor names"),
        format!("a frame of kind {}", frame.kind.code()),
        WRITERS_BUG,
    )
}

/// The text of errors about a frame with correct checksums whose contents make no sense.
pub(crate) const WRITERS_BUG: &str =
    "The checksums match, so this is a bug in Perdura. Copy the files and report the bug.";

/// Returns an error that names the stream and position of a frame.
#[cold]
pub(crate) fn refuse(origin: &Origin, expected: String, found: String, consequence: &str) -> Error {
    Error::corrupt(
        format!("log stream {}", origin.stream),
        origin.pos.0,
        expected,
        found,
        consequence,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::METHODS;
    use crate::player::Player;

    #[test]
    fn every_kind_of_frame_has_one_taker_or_none() {
        let later = Claims::default().with(FrameKind::Effects);
        for method in METHODS {
            let Player::Pages(records) = method.player else {
                continue;
            };
            let routes = Routes::new(records, later);
            for kind in FrameKind::ALL {
                let expected = match kind {
                    FrameKind::Group | FrameKind::Record => {
                        (kind == records.kind()).then_some(Route::Records)
                    }
                    FrameKind::Effects => Some(Route::Later),
                    FrameKind::Command | FrameKind::Operations | FrameKind::Tree => None,
                    _ => Some(Route::Records),
                };
                assert_eq!(
                    routes.of(kind),
                    expected,
                    "{} of {}",
                    kind.code(),
                    method.name
                );
            }
        }
    }
}
