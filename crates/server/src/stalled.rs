//! Replies that wait for a log which cannot be written.
//!
//! A full disk may refuse a write of the log after the requests have run. The write keeps its place, and is
//! repeated until the disk takes it: then its contents are durable after all. Until then no reply that waits
//! for it may leave unchanged. After [`PATIENCE`] the client gets an error in place of each such reply, in the
//! order of its requests. The error says that the outcome is unknown. No client waits for a message without a
//! request, so the server holds such a message until it is durable.

use crate::engine::{Epoch, Reached, Rung};
use crate::resp::frames::Frame;
use std::time::{Duration, Instant};

/// The time for which a log may be stuck before clients that wait for it are answered.
const PATIENCE: Duration = Duration::from_millis(400);

/// For each rung, the time since which a stuck log has not advanced it.
#[derive(Debug)]
pub(crate) struct Stalled {
    seen: Reached,
    since: [Option<Instant>; Rung::COUNT],
}

impl Default for Stalled {
    fn default() -> Self {
        Stalled {
            seen: Reached::new(|_| Epoch(0)),
            since: [None; Rung::COUNT],
        }
    }
}

/// The rungs that have been stuck for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StuckRungs([bool; Rung::COUNT]);

impl StuckRungs {
    /// Returns whether no rung is stuck.
    pub(crate) fn is_empty(self) -> bool {
        self.0.iter().all(|stuck| !stuck)
    }

    /// Returns whether a rung is stuck.
    pub(crate) fn has(self, rung: Rung) -> bool {
        let mut all = Rung::ALL.into_iter().zip(self.0);
        all.any(|(of, stuck)| of == rung && stuck)
    }
}

impl Stalled {
    /// Looks at the rungs. The loop calls this about ten times a second. Returns the rungs that have not
    /// advanced for [`PATIENCE`] while the log was stuck.
    pub(crate) fn look(&mut self, is_stuck: bool, reached: Reached, now: Instant) -> StuckRungs {
        let mut stuck = StuckRungs([false; Rung::COUNT]);
        let rungs = Rung::ALL.into_iter().zip(&mut self.since);
        for ((rung, since), stuck) in rungs.zip(&mut stuck.0) {
            if !is_stuck || reached.at(rung) != self.seen.at(rung) {
                *since = None;
            }
            if is_stuck {
                let begin = *since.get_or_insert(now);
                *stuck = now.saturating_duration_since(begin) >= PATIENCE;
            }
        }
        self.seen = reached;
        debug_assert!(
            is_stuck || stuck.is_empty(),
            "only a log that stands still is stuck"
        );
        stuck
    }
}

/// The fate of a reply that waits for a stuck log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It leaves unchanged, because it shows nothing of a write.
    Leaves,
    /// An error replaces it.
    Replaced,
    /// It waits until it is durable, because no request waits for it.
    Waits,
}

/// The facts about a client by which its messages are recognized.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listener {
    /// True if it has subscribed to something.
    pub subscribes: bool,
    /// True if it gets a line for each request of others.
    pub monitors: bool,
}

impl Listener {
    /// Decides the fate of a reply or message to this client.
    pub(crate) fn fate(self, frame: Frame<'_>) -> Fate {
        let is_pushed = frame.0.starts_with(b">");
        let is_listed = frame.0.starts_with(b"*") && self.subscribes;
        if is_pushed || is_listed {
            match frame.name().unwrap_or_default() {
                b"subscribe" | b"unsubscribe" | b"psubscribe" | b"punsubscribe" | b"ssubscribe"
                | b"sunsubscribe" | b"pong" => return Fate::Leaves,
                b"message" | b"pmessage" | b"smessage" => return Fate::Waits,
                _ if is_pushed => return Fate::Waits,
                _ => {}
            }
        }
        if self.monitors && frame.0.starts_with(b"+") && frame.0 != b"+OK\r\n" {
            return Fate::Waits;
        }
        // An error about a refused write or an unknown outcome leaves unchanged: it shows nothing of a write.
        match frame.0.starts_with(b"-MISCONF ") || frame.0.starts_with(b"-UNKNOWN ") {
            true => Fate::Leaves,
            false => Fate::Replaced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(disk: u64, mirror: u64) -> Reached {
        Reached::new(|rung| match rung {
            Rung::Disk => Epoch(disk),
            Rung::Mirror => Epoch(mirror),
        })
    }

    #[test]
    fn a_rung_is_stuck_when_it_has_not_advanced_for_a_while_under_a_log_that_is_stuck() {
        let mut stalled = Stalled::default();
        let begin = Instant::now();
        let mut look = |ms, is_stuck, disk, mirror| {
            let now = begin + Duration::from_millis(ms);
            let stuck = stalled.look(is_stuck, reached(disk, mirror), now);
            (stuck.has(Rung::Disk), stuck.has(Rung::Mirror))
        };
        assert_eq!(look(0, false, 5, 5), (false, false));
        assert_eq!(
            look(900, true, 5, 5),
            (false, false),
            "it is not known since when"
        );
        assert_eq!(look(1200, true, 5, 6), (false, false));
        assert_eq!(look(1300, true, 5, 6), (true, false), "the mirror advances");
        assert_eq!(look(1700, true, 6, 6), (false, true));
        assert_eq!(look(1800, false, 6, 6), (false, false));
        assert_eq!(look(5000, true, 6, 6), (false, false), "it begins anew");
    }

    #[test]
    fn replies_are_replaced_and_messages_wait() {
        let usual = Listener {
            subscribes: false,
            monitors: false,
        };
        let subscriber = Listener {
            subscribes: true,
            ..usual
        };
        let message = &b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nt\r\n"[..];
        let pushed = &b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"[..];
        for (frame, fate) in [
            (&b"+OK\r\n"[..], Fate::Replaced),
            (b"$1\r\nv\r\n", Fate::Replaced),
            (
                b"-WRONGTYPE of a value that is not durable\r\n",
                Fate::Replaced,
            ),
            (b"-MISCONF the log has no room\r\n", Fate::Leaves),
            (pushed, Fate::Waits),
            (message, Fate::Replaced),
            (b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", Fate::Leaves),
        ] {
            assert_eq!(usual.fate(Frame(frame)), fate);
        }
        assert_eq!(subscriber.fate(Frame(message)), Fate::Waits);
        let monitor = Listener {
            monitors: true,
            ..usual
        };
        assert_eq!(monitor.fate(Frame(b"+1.5 [0 x] \"get\"\r\n")), Fate::Waits);
    }
}
