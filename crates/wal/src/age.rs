//! The age of the oldest frame that is not durable.
//!
//! The first frame of each epoch records the time, and the record is dropped when the epoch is durable on every rung.
//! So the age counts from the append, independently of the flusher, and costs one clock reading per epoch.

use std::collections::VecDeque;

use perdura_base::Epoch;

use crate::sync::Mutex;

/// The times at which the epochs that are not durable began.
pub(crate) struct Ages {
    begun: Mutex<VecDeque<(Epoch, u64)>>,
}

impl Ages {
    pub fn new() -> Self {
        Ages {
            begun: Mutex::new(VecDeque::new()),
        }
    }

    /// Notes the first frame of an epoch.
    #[cold]
    pub fn note(&self, epoch: Epoch, now_ns: u64, durable: Epoch) {
        let mut begun = self.begun.lock();
        begun.retain(|(epoch, _)| *epoch > durable);
        assert!(
            begun.iter().all(|(noted, _)| *noted != epoch),
            "epoch {epoch} is noted twice"
        );
        begun.push_back((epoch, now_ns));
    }

    /// When the oldest epoch beyond `durable` began. Threads note neighbouring epochs in any order.
    pub fn oldest_ns(&self, durable: Epoch) -> Option<u64> {
        let begun = self.begun.lock();
        let beyond = begun.iter().filter(|(epoch, _)| *epoch > durable);
        beyond.map(|(_, at_ns)| *at_ns).min()
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
