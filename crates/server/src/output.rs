//! The limits of a client's unread replies. At the hard limit the client is disconnected at once. The soft limit
//! may be exceeded for some seconds.

use crate::settings::OutputLimit;
use std::time::{Duration, Instant};

/// The time at which a client last rose above its soft limit. `None`: the client is below the limit.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    since: Option<Instant>,
}

impl Patience {
    /// Returns whether a client with this number of unsent bytes must be disconnected.
    pub(crate) fn is_over(&mut self, limit: OutputLimit, unsent: usize, now: Instant) -> bool {
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
        let limit = |hard_bytes, soft_bytes| OutputLimit {
            hard_bytes,
            soft_bytes,
            soft_seconds: 2,
        };
        let start = Instant::now();
        let after = |s| start + Duration::from_secs(s);
        let mut patience = Patience::default();
        assert!(!patience.is_over(limit(100, 10), 50, start));
        assert!(!patience.is_over(limit(100, 10), 50, after(2)));
        assert!(
            !patience.is_over(limit(100, 10), 5, after(3)),
            "it has read"
        );
        assert!(!patience.is_over(limit(100, 10), 50, after(4)));
        assert!(patience.is_over(limit(100, 10), 50, after(7)));
        assert!(Patience::default().is_over(limit(100, 10), 100, start));
        assert!(!Patience::default().is_over(limit(0, 0), usize::MAX, start));
    }
}
