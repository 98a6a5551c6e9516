//! Keys on their way from one place to another, for `import` and `export`.
//!
//! ```text
//!  dump file ──┐                      ┌── a server, over the Redis protocol
//!              ├── Part, Part, Part ──┤
//!  a server ───┘                      └── commands on stdout
//! ```
//!
//! There is one way into a database: native commands, over a connection. It serves Perdura and Redis
//! alike, needs no second writer of rows, and keeps every rule that the server keeps (limits, expiry,
//! memory). A stopped database is served for the time of the transfer, on a socket that only its
//! owner can open. And there is one way out: SCAN, and the reading commands of each type, in pieces,
//! so that a key larger than memory passes through.
//!
//! # Why not DUMP, SYNC or RESTORE
//! SYNC would give a snapshot, but most hosted servers refuse it, it makes the source fork, and its
//! format is that of the source's version. DUMP has the same format, and holds a whole key at both
//! ends at once. SCAN works everywhere, with every version, under the usual permissions. Its price: it
//! is no snapshot. Who needs one stops the writers, or imports a dump file.
//!
//! # What an interruption leaves
//! A key is there as a whole or not at all: small ones come by one command or in one transaction,
//! large ones grow under [`UNFINISHED`] and are renamed at last. So an import that was stopped can be
//! run again with `--keep`, which leaves alone what is there, or with `--replace`.

pub mod address;
pub mod client;
pub mod commands;
pub mod dump_file;
pub mod embedded;
pub mod progress;
pub mod report;
pub mod scan;
pub mod streams;
pub mod target;

use anyhow::Result;
use perdura_rdb::Value;

/// The name under which a large key grows at the target.
pub const UNFINISHED: &[u8] = b"perdura:import:unfinished";

/// A key, or a piece of a large one. The pieces of a key follow each other.
pub struct Part<'a> {
    /// The database it goes to.
    pub db: u64,
    /// The key.
    pub key: &'a [u8],
    /// The value, or some of its elements.
    pub value: &'a Value,
    /// Whether it is the key's first piece.
    pub first: bool,
    /// Whether it is the key's last piece.
    pub last: bool,
    /// When the key expires, in milliseconds since 1970.
    pub expires_at_ms: Option<i64>,
}

impl Part<'_> {
    /// Whether a key that is made twice, as SCAN may name it twice, is what it is when it is made once. A list would be twice as
    /// long, and a stream refuses an id that it has.
    pub fn is_harmless_twice(&self) -> bool {
        !matches!(self.value, Value::List(_) | Value::Stream(_))
    }
}

/// Where keys go, and libraries of functions.
pub trait Sink {
    /// Takes a piece. What becomes of it may show later.
    fn part(&mut self, part: &Part<'_>) -> Result<()>;

    /// Takes the code of a library.
    fn library(&mut self, code: &[u8]) -> Result<()>;
}

/// Which databases are taken, and to where: all to their own numbers, or those that are named.
#[derive(Debug, Clone, Default)]
pub struct Databases(Vec<(u64, u64)>);

impl Databases {
    /// The pairs given on the command line; none means all.
    pub fn new(pairs: Vec<(u64, u64)>) -> Databases {
        Databases(pairs)
    }

    /// Where a database of the source goes, if it is taken.
    pub fn target(&self, source: u64) -> Option<u64> {
        if self.0.is_empty() {
            return Some(source);
        }
        let pair = self.0.iter().find(|(from, _)| *from == source);
        pair.map(|(_, to)| *to)
    }
}

/// `N` or `N:M`: database N, to number M.
pub fn database_pair(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| format!("'{text}' is no number of a database; give N or N:M"))
    };
    match text.split_once(':') {
        Some((from, to)) => Ok((number(from)?, number(to)?)),
        None => number(text).map(|db| (db, db)),
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_go_where_the_command_line_says() {
        assert_eq!(Databases::default().target(7), Some(7));
        let pairs = vec![database_pair("3").unwrap(), database_pair("5:0").unwrap()];
        let some = Databases::new(pairs);
        assert_eq!(
            (some.target(3), some.target(5), some.target(0)),
            (Some(3), Some(0), None)
        );
        for bad in ["", "x", "1:", ":1", "-1", "1:2:3"] {
            assert!(database_pair(bad).is_err(), "{bad}");
        }
    }
}
