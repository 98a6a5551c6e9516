//! The time since the append of the oldest frame that is not durable yet.
//!
//! The append of the first frame of each epoch records the time. A later append drops this time once the epoch is
//! durable on every rung. The age is counted from the append, independently of the flusher. It costs one clock reading
//! per epoch.

use std::collections::VecDeque;

use perdura_base::Epoch;

use crate::sync::Mutex;

/// The begin times of the epochs that are not durable, in the order of the epochs. The list is long while the disk is
/// slower than a mirror.
pub(crate) struct Ages {
    begun: Mutex<VecDeque<(Epoch, u64)>>,
}

impl Ages {
    pub fn new() -> Self {
        Ages {
            begun: Mutex::new(VecDeque::new()),
        }
    }

    /// Records the time of the first frame of an epoch. Threads may record neighbouring epochs in any order. Drops the
    /// times of epochs up to `durable`.
    #[cold]
    pub fn note(&self, epoch: Epoch, now_ns: u64, durable: Epoch) {
        let mut begun = self.begun.lock();
        while begun.front().is_some_and(|(oldest, _)| *oldest <= durable) {
            begun.pop_front();
        }
        let later = begun.iter().rev().take_while(|(noted, _)| *noted > epoch);
        let at = begun.len() - later.count();
        assert!(
            at == 0 || begun[at - 1].0 < epoch,
            "epoch {epoch} is noted twice"
        );
        begun.insert(at, (epoch, now_ns));
    }

    /// Returns the begin time of the oldest epoch above `durable`; `None` if no epoch is above `durable`.
    pub fn oldest_ns(&self, durable: Epoch) -> Option<u64> {
        let begun = self.begun.lock();
        let oldest = begun.partition_point(|(epoch, _)| *epoch <= durable);
        begun.get(oldest).map(|(_, at_ns)| *at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_epoch_that_is_not_durable_decides() {
        let ages = Ages::new();
        assert_eq!(ages.oldest_ns(Epoch(0)), None);
        ages.note(Epoch(2), 20, Epoch(0));
        ages.note(Epoch(1), 10, Epoch(0));
        assert_eq!(ages.oldest_ns(Epoch(0)), Some(10));
        assert_eq!(ages.oldest_ns(Epoch(1)), Some(20));
        ages.note(Epoch(3), 30, Epoch(2));
        assert_eq!(ages.oldest_ns(Epoch(2)), Some(30));
        assert_eq!(ages.oldest_ns(Epoch(3)), None);
    }
}
