//! A limit on the rate of log lines that a stranger can cause.

use std::time::{Duration, Instant};

/// The minimum time between two lines.
const EVERY: Duration = Duration::from_secs(60);

/// The time of the last line, and the number of lines suppressed since then.
#[derive(Debug, Default)]
pub(crate) struct Rarely {
    said: Option<Instant>,
    unsaid: u64,
}

impl Rarely {
    /// Counts a line. Returns how many lines were suppressed before it; `None` if this line is suppressed too.
    pub(crate) fn take(&mut self, now: Instant) -> Option<u64> {
        let is_due = self
            .said
            .is_none_or(|said| now.saturating_duration_since(said) >= EVERY);
        if !is_due {
            self.unsaid += 1;
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_a_while_counts_those_that_had_none() {
        let begin = Instant::now();
        let mut lines = Rarely::default();
        let said: Vec<(u64, u64)> = (0..200)
            .filter_map(|second| Some((second, lines.take(begin + Duration::from_secs(second))?)))
            .collect();
        assert_eq!(said, [(0, 0), (60, 59), (120, 59), (180, 59)]);
    }
}
