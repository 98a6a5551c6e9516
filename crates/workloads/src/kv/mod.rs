//! `kv`: SET and GET of random keys with values that do not compress.
//!
//! The measured target is any server with the Redis protocol, or the engine inside this process. A run has three parts:
//! it fills, measures, and checks. Each part may be left out.
//!
//! # What is fair
//! Every SET has new random bytes, so that a log of differences has as much to write as a log of values. A latency is
//! the time that a client sees. It begins when a batch of `pipeline` requests is written to the socket, and ends when
//! the reply to the request has arrived.

mod data;
mod embedded;
mod remote;
mod reply;
mod report;

use std::time::Duration;

use anyhow::{Result, bail};

pub use data::{KEY_BYTES, fill_value, key_of, nth_key, random_bytes};
pub use report::KvReport;

/// The kinds of requests in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Only SETs.
    Set,
    /// Only GETs.
    Get,
    /// SETs and GETs. The number is the percentage of SETs.
    Mixed(u8),
}

impl Mix {
    /// Returns the number of SETs in a hundred requests.
    #[must_use]
    pub fn set_percent(self) -> u8 {
        match self {
            Mix::Set => 100,
            Mix::Get => 0,
            Mix::Mixed(percent) => percent,
        }
    }
}

impl std::str::FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        match (text, text.strip_prefix("mixed:").map(str::parse::<u8>)) {
            ("set", _) => Ok(Mix::Set),
            ("get", _) => Ok(Mix::Get),
            (_, Some(Ok(percent))) if percent <= 100 => Ok(Mix::Mixed(percent)),
            _ => Err("a mix is set, get or mixed:PERCENT_OF_SETS".into()),
        }
    }
}

impl std::fmt::Display for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mix::Set => f.write_str("set"),
            Mix::Get => f.write_str("get"),
            Mix::Mixed(percent) => write!(f, "mixed:{percent}"),
        }
    }
}

/// The condition for counting a write as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The write has been logged in memory.
    Mem,
    /// The write survives a power cut.
    Disk,
}

/// The measured target.
#[derive(Debug, Clone)]
pub enum Target {
    /// A server that speaks the Redis protocol: `host:port`, or the path of a Unix socket.
    Server(String),
    /// The engine in this process.
    Data(Box<perdura::Options>),
}

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct KvOptions {
    /// The measured target.
    pub target: Target,
    /// The server's password.
    pub password: Option<String>,
    /// The number of connections to a server, or of threads in this process.
    pub clients: usize,
    /// The number of requests in one batch. The client waits for the replies after each batch.
    pub pipeline: usize,
    /// The number of threads that the connections are spread over.
    pub threads: usize,
    /// The time of the measurement. Zero: nothing is measured.
    pub duration: Duration,
    /// The maximum number of requests in a run.
    pub txns_max: Option<u64>,
    /// The number of distinct keys.
    pub keys: u64,
    /// The size of a value, bytes.
    pub value_bytes: usize,
    /// The kinds of requests.
    pub mix: Mix,
    /// The seed of keys and values.
    pub seed: u64,
    /// The condition for counting a write as done.
    pub durability: Durability,
    /// The number of distinct keys that are set first, in scattered order. Each value depends only on its key and the
    /// seed.
    pub fill: u64,
    /// The number of keys that have already been filled when the check begins. This run filled them, or an earlier run
    /// with the same seed.
    pub filled: u64,
    /// The number of filled keys to read and compare at the end.
    pub check: u64,
}

impl KvOptions {
    fn verify(&self) -> Result<()> {
        if self.clients == 0 || self.pipeline == 0 || self.threads == 0 || self.keys == 0 {
            bail!("clients, pipeline, threads and keys are at least 1");
        }
        if self.fill > self.keys {
            bail!(
                "fill is {}, but there are only {} keys",
                self.fill,
                self.keys
            );
        }
        Ok(())
    }
}

/// Runs the workload.
///
/// # Errors
/// An unreachable server or a broken protocol; a database that does not open; wrong values found by the check.
pub fn run(options: &KvOptions) -> Result<KvReport> {
    options.verify()?;
    match &options.target {
        Target::Server(address) => remote::run(options, address),
        Target::Data(db) => embedded::run(options, db.as_ref().clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_read_and_written() {
        for text in ["set", "get", "mixed:30"] {
            assert_eq!(text.parse::<Mix>().unwrap().to_string(), text);
        }
        for text in ["mixed:101", "mixed:", "put", ""] {
            assert!(text.parse::<Mix>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_engine_in_this_process_is_filled_measured_and_checked() {
        let dir = tempfile::tempdir().unwrap();
        let mut db = perdura::Options::new(dir.path());
        db.segment_bytes = 1 << 20;
        db.partitions = 4;
        let mut options = KvOptions {
            target: Target::Data(Box::new(db)),
            password: None,
            clients: 2,
            pipeline: 4,
            threads: 1,
            duration: Duration::from_secs(20),
            txns_max: Some(200),
            keys: 100,
            value_bytes: 50,
            mix: Mix::Mixed(50),
            seed: 1,
            durability: Durability::Disk,
            fill: 100,
            filled: 100,
            check: 0,
        };
        let report = run(&options).unwrap();
        assert!(report.txns >= 200, "{report:?}");
        assert_eq!(report.aborts, 0);
        assert!(report.syncs.is_some_and(|syncs| syncs > 0));
        options.duration = Duration::ZERO;
        options.check = 100;
        assert_eq!(run(&options).unwrap().checked, 100);
        options.fill = 0;
        options.seed = 2;
        assert!(run(&options).unwrap_err().to_string().contains("key:"));
    }
}
