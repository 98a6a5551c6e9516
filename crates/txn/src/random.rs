//! The seed of a transaction's random numbers.
//!
//! A command runs again at a restart and must then get the same numbers. So its seed is its number in the sequence of
//! its first partition, which the log has. Any other transaction takes a seed that no transaction of this life had.

use std::sync::atomic::{AtomicU64, Ordering};

use perdura_base::checksum::mix64;

/// The seeds of the transactions that are logged by their effects.
pub(crate) struct Seeds {
    of_life: u64,
    taken: AtomicU64,
}

impl Seeds {
    /// Returns the seeds of a life. Each life needs another `of_life`.
    pub fn new(of_life: u64) -> Seeds {
        Seeds {
            of_life: mix64(of_life),
            taken: AtomicU64::new(0),
        }
    }

    /// Returns a seed that this function did not return before.
    pub fn take(&self) -> u64 {
        // The number only has to be unique, so no other memory is ordered by it.
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        mix64(self.of_life ^ number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_transactions_of_two_lives_have_one_seed() {
        let lives = [Seeds::new(1), Seeds::new(2)];
        let seeds: BTreeSet<u64> = lives
            .iter()
            .flat_map(|seeds| (0..1000).map(|_| seeds.take()))
            .collect();
        assert_eq!(seeds.len(), 2000);
    }
}
