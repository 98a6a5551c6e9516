//! The transfer of keys from one place to another, for `import` and `export`.
//!
//! ```text
//!  dump file ──┐                      ┌── a server, over the Redis protocol
//!              ├── Part, Part, Part ──┤
//!  a server ───┘                      └── commands on stdout
//! ```
//!
//! The only way into a database is native commands over a connection. It serves Perdura and Redis alike, needs no
//! second writer of rows, and keeps every rule of the server (limits, expiry, memory). A stopped database is served for
//! the time of the transfer, on a socket that only its owner can open. The only way out is SCAN and the reading
//! commands of each type, in pieces, so that a key larger than memory can pass through.
//!
//! # Why not DUMP, SYNC or RESTORE
//! SYNC would give a snapshot. But most hosted servers refuse it, it makes the source fork, and its format is that of
//! the source's version. DUMP has the same format, and holds a whole key at both ends at once. SCAN works everywhere,
//! with every version, under the usual permissions. Its price is that it gives no snapshot. A user who needs a snapshot
//! stops the writers, or imports a dump file.
//!
//! # What an interruption leaves
//! A key arrives whole or not at all. Small keys come by one command or in one transaction. Large ones grow under
//! [`UNFINISHED`] and are renamed in the end. So an import that was stopped can be run again with `--keep`, which
//! leaves existing keys unchanged, or with `--replace`.

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
    /// The database that it goes to.
    pub db: u64,
    /// The key.
    pub key: &'a [u8],
    /// The value, or some of its elements.
    pub value: &'a Value,
    /// True if it is the key's first piece.
    pub first: bool,
    /// True if it is the key's last piece.
    pub last: bool,
    /// The time at which the key expires, milliseconds since 1970. `None`: never.
    pub expires_at_ms: Option<i64>,
}

impl Part<'_> {
    /// Returns whether writing the key twice, as SCAN may name it twice, gives the same key as writing it once. A list
    /// would be twice as long, and a stream refuses an id that it has.
    pub fn is_harmless_twice(&self) -> bool {
        !matches!(self.value, Value::List(_) | Value::Stream(_))
    }
}

/// The target of keys and of libraries of functions.
pub trait Sink {
    /// Takes a piece. Its result may show later.
    fn part(&mut self, part: &Part<'_>) -> Result<()>;

    /// Takes the code of a library.
    fn library(&mut self, code: &[u8]) -> Result<()>;
}

/// The databases of the source that are taken, each with its number at the target. Empty: all are taken, to their own
/// numbers.
#[derive(Debug, Clone, Default)]
pub struct Databases(Vec<(u64, u64)>);

impl Databases {
    /// Returns the pairs of the command line. No pairs mean all databases.
    pub fn new(pairs: Vec<(u64, u64)>) -> Databases {
        Databases(pairs)
    }

    /// Returns the target's database for one of the source. `None`: the database is not taken.
    pub fn target(&self, source: u64) -> Option<u64> {
        if self.0.is_empty() {
            return Some(source);
        }
        let pair = self.0.iter().find(|(from, _)| *from == source);
        pair.map(|(_, to)| *to)
    }
}

/// Parses `N` or `N:M`: database N, to number M.
pub fn database_pair(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| format!("'{text}' is not a database number. Give N or N:M"))
    };
    match text.split_once(':') {
        Some((from, to)) => Ok((number(from)?, number(to)?)),
        None => number(text).map(|db| (db, db)),
    }
}

/// Returns the time in milliseconds since 1970.
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
