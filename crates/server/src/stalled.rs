//! The handling of waiting replies while the log cannot be written.
//!
//! A full disk may refuse a write of the log after the requests have run. The server repeats the write at the same
//! place in the log until the disk accepts it. Only then are the contents of the write durable. If that takes longer
//! than [`PATIENCE`], an error replaces each reply that waits for the write, in the order of the requests. The error
//! says that the outcome is unknown. Messages that answer no request are never replaced, because no client waits for
//! them. They are held until they are durable.

use crate::engine::{Epoch, Reached, Rung};
use crate::resp::frames::Frame;
use std::time::{Duration, Instant};

/// The time for which the log must be stuck before waiting clients get an answer.
const PATIENCE: Duration = Duration::from_millis(400);

/// The time, for each rung, since which the log has been stuck and the rung has not advanced.
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

/// The rungs stuck for long.
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

/// The fate of a reply or message that waits for a stuck log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The reply is sent unchanged, because it shows nothing of a write.
    Leaves,
    /// An error replaces the reply.
    Replaced,
    /// The message is sent when it is durable. No request waits for a message.
    Waits,
}

/// The facts that distinguish a client's messages from replies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listener {
    /// True if the client has subscribed to something.
    pub subscribes: bool,
    /// True if the client gets a line for each request of other clients (MONITOR).
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
