//! How much may wait for a client before it is disconnected: a limit at once, and one that may be
//! passed for some seconds, for each class of clients.

use std::time::{Duration, Instant};

/// A class of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Asks and is answered.
    Normal,
    /// Has subscribed.
    Pubsub,
}

/// The limits of a class; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    /// Bytes above which a client is disconnected at once.
    pub hard_bytes: u64,
    /// Bytes above which it is disconnected after a while.
    pub soft_bytes: u64,
    /// How long, in seconds.
    pub soft_seconds: u64,
}

impl Limit {
    const fn new(hard_bytes: u64, soft_bytes: u64, soft_seconds: u64) -> Self {
        Limit {
            hard_bytes,
            soft_bytes,
            soft_seconds,
        }
    }
}

/// The setting `client-output-buffer-limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    normal: Limit,
    /// Accepted and shown; there are no replicas.
    replica: Limit,
    pubsub: Limit,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            normal: Limit::new(0, 0, 0),
            replica: Limit::new(256 << 20, 64 << 20, 60),
            pubsub: Limit::new(32 << 20, 8 << 20, 60),
        }
    }
}

impl Limits {
    /// The limits of a class.
    pub(crate) fn of(&self, class: Class) -> Limit {
        match class {
            Class::Normal => self.normal,
            Class::Pubsub => self.pubsub,
        }
    }

    /// As CONFIG GET shows it.
    pub(crate) fn show(&self) -> String {
        let one = |name: &str, l: &Limit| {
            format!(
                "{name} {} {} {}",
                l.hard_bytes, l.soft_bytes, l.soft_seconds
            )
        };
        let classes = [
            one("normal", &self.normal),
            one("slave", &self.replica),
            one("pubsub", &self.pubsub),
        ];
        classes.join(" ")
    }

    /// These limits with those changed that `text` names: class, hard, soft, seconds, and again.
    /// `bytes` reads a size with its unit.
    pub(crate) fn with(
        mut self,
        text: &str,
        bytes: impl Fn(&[u8]) -> Option<u64>,
    ) -> Result<Self, &'static str> {
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.len() % 4 != 0 || words.is_empty() {
            return Err("Wrong number of arguments in buffer limit configuration.");
        }
        for four in words.chunks(4) {
            let class = match four[0].to_ascii_lowercase().as_str() {
                "normal" => &mut self.normal,
                "replica" | "slave" => &mut self.replica,
                "pubsub" => &mut self.pubsub,
                _ => return Err("Invalid client class specified in buffer limit configuration."),
            };
            let numbers = (
                bytes(four[1].as_bytes()),
                bytes(four[2].as_bytes()),
                four[3].parse().ok(),
            );
            let (Some(hard), Some(soft), Some(seconds)) = numbers else {
                return Err(
                    "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
                );
            };
            *class = Limit::new(hard, soft, seconds);
        }
        Ok(self)
    }
}

/// Since when a client is above its soft limit.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    since: Option<Instant>,
}

impl Patience {
    /// Whether a client with so many unsent bytes must go.
    pub(crate) fn is_over(&mut self, limit: Limit, unsent: usize, now: Instant) -> bool {
        let unsent = u64::try_from(unsent).unwrap_or(u64::MAX);
        if limit.hard_bytes > 0 && unsent >= limit.hard_bytes {
            return true;
        }
        if limit.soft_bytes == 0 || unsent < limit.soft_bytes {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.saturating_duration_since(since) > Duration::from_secs(limit.soft_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_above_the_soft_limit_has_some_time() {
        let limit = Limit::new(100, 10, 2);
        let start = Instant::now();
        let after = |s| start + Duration::from_secs(s);
        let mut patience = Patience::default();
        assert!(!patience.is_over(limit, 50, start));
        assert!(!patience.is_over(limit, 50, after(2)));
        assert!(!patience.is_over(limit, 5, after(3)), "it has read");
        assert!(!patience.is_over(limit, 50, after(4)));
        assert!(patience.is_over(limit, 50, after(7)));
        assert!(Patience::default().is_over(limit, 100, start));
        assert!(!Patience::default().is_over(Limit::new(0, 0, 0), usize::MAX, start));
    }

    #[test]
    fn classes_are_changed_one_by_one() {
        let bytes = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
        let limits = Limits::default();
        let text = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        assert_eq!(limits.show(), text);
        let limits = limits.with("replica 1 2 3 pubsub 4 5 6", bytes);
        let limits = limits.expect("a valid text");
        assert_eq!(limits.show(), "normal 0 0 0 slave 1 2 3 pubsub 4 5 6");
        assert_eq!(limits.of(Class::Pubsub), Limit::new(4, 5, 6));
        for wrong in ["", "normal 1 2", "other 1 2 3", "normal x 2 3"] {
            assert!(limits.with(wrong, bytes).is_err(), "{wrong}");
        }
    }
}
