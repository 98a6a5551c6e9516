//! A turn of a bench that measures commits: threads commit for a fixed time, each its own keys.
//!
//! Every commit must change a value. A commit that writes the value that is there changes nothing, and need not wait for
//! the log. So each turn draws its values anew, and fails if the log has grown by less than the values.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use perdura::{Db, Durability, Ticket};
use perdura_base::checksum::mix64;
use perdura_base::num::to_u64;

use crate::kv::{key_of, random_bytes};
use crate::latency::{histogram, micros, record};

/// The minimum size of a value, bytes. Two shorter values may be equal by chance.
pub const VALUE_BYTES_MIN: usize = 8;
/// The length of a turn.
pub(crate) const TURN: Duration = Duration::from_millis(250);
/// The number of keys of each thread.
const KEYS: u64 = 1000;

/// A turn that has begun.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// The clock at the beginning. It decides which values the turn writes, so that no two turns write the same.
    seed: u64,
    /// The beginning.
    pub begin: Instant,
}

impl Turn {
    /// Begins a turn now.
    pub fn begin() -> Turn {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since_1970.map_or(0, |since| since.as_nanos());
        Turn {
            seed: u64::try_from(nanos).unwrap_or(u64::MAX),
            begin: Instant::now(),
        }
    }

    /// Returns whether the turn has not ended.
    pub fn lasts(&self) -> bool {
        self.begin.elapsed() < TURN
    }

    /// Lets threads commit until the turn ends. Returns each thread's latencies.
    ///
    /// # Errors
    /// Errors of the database. A commit that changed nothing.
    pub fn commit(
        self,
        db: &Db,
        durability: Durability,
        threads: usize,
        value_bytes: usize,
    ) -> Result<Vec<Histogram<u64>>> {
        let before = db.stats().log.log_bytes;
        let latencies = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..threads)
                .map(|client| {
                    scope.spawn(move || self.commits(db, durability, client, value_bytes))
                })
                .collect();
            let joined = clients.into_iter().map(|client| client.join());
            joined
                .map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Result<Vec<_>>>()
        })?;
        let count: u64 = latencies.iter().map(|one| one.len()).sum();
        let bytes = db.stats().log.log_bytes - before;
        ensure!(
            bytes >= count * to_u64(value_bytes),
            "{count} commits of {value_bytes} bytes made {bytes} bytes of log: some changed nothing"
        );
        Ok(latencies)
    }

    /// Runs the commits of one client.
    fn commits(
        self,
        db: &Db,
        durability: Durability,
        client: usize,
        value_bytes: usize,
    ) -> Result<Histogram<u64>> {
        let mut random = fastrand::Rng::with_seed(mix64(self.seed) ^ (to_u64(client) + 1));
        let mut value = vec![0; value_bytes];
        let mut latencies = histogram();
        while self.lasts() {
            random_bytes(&mut random, &mut value);
            let key = key_of(to_u64(client) * KEYS + random.u64(..KEYS));
            let since = Instant::now();
            let parts = [db.partition_of(&key)].into_iter().collect();
            let ((), ticket): ((), Ticket) =
                db.transact(&parts, |tx| tx.put(db.database(0), &key, &value, None))?;
            db.wait_at(durability, ticket)?;
            record(&mut latencies, micros(since.elapsed()), 1);
        }
        Ok(latencies)
    }
}

/// Writes every key of `threads` threads, so that each commit changes a value that is there.
pub(crate) fn fill(db: &Db, threads: usize, value_bytes: usize) -> Result<()> {
    let value = vec![0; value_bytes];
    let mut last = None;
    for key in (0..to_u64(threads) * KEYS).map(key_of) {
        let (_, ticket) = db.write_later(|tx| tx.put(db.database(0), &key, &value, None))?;
        last = Some(ticket);
    }
    last.map_or(Ok(()), |ticket| Ok(db.wait_at(Durability::Disk, ticket)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perdura::Options;

    /// Turns wrote the values of the turn before. Where a key was written once in a turn, the next turn changed
    /// nothing, and waited for no disk.
    #[test]
    fn turns_that_repeat_values_are_noticed_and_no_two_turns_do() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = Db::open(Options::new(dir.path())).expect("a database");
        fill(&db, 4, 1000).expect("keys");
        let commit = |seed| {
            let begin = Instant::now();
            Turn { seed, begin }.commit(&db, Durability::Disk, 4, 1000)
        };
        let seeds: [u64; 3] = std::array::from_fn(|_| Turn::begin().seed);
        for seed in seeds {
            commit(seed).expect("new values");
        }
        let error = commit(seeds[2]).expect_err("nothing new");
        assert!(error.to_string().contains("changed nothing"), "{error}");
        db.close().expect("a clean end");
    }
}
