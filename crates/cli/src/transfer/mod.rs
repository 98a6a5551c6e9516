//! The transfer of keys from one place to another, for `import` and `export`.
//!
//! ```text
//!  dump file ──┐                      ┌── a server, over the Redis protocol
//!              ├── Part, Part, Part ──┤
//!  a server ───┘                      └── commands on stdout
//! ```
//!
//! Keys are written only by native commands over a connection. This works for Perdura and Redis alike, needs no
//! second way to write rows, and keeps every rule of the server (limits, expiry, memory). A stopped database is
//! served during the transfer, on a socket that only its owner can open. Keys are read only by SCAN and the reading
//! commands of each type, in pieces, so that a key larger than memory can be transferred.
//!
//! # Why not DUMP, SYNC or RESTORE
//! SYNC would give a snapshot. But most hosted servers refuse it, it makes the source fork, and its format is that of
//! the source's version. DUMP has the same format, and both ends must hold a whole key in memory. SCAN works
//! everywhere, with every version, under the usual permissions. But it gives no snapshot. A user who needs a snapshot
//! stops the writers, or imports a dump file.
//!
//! # What an interruption leaves
//! A key arrives whole or not at all. A small key is written by one command or in one transaction. A large key is
//! written piece by piece under the name [`UNFINISHED`] and renamed at the end. So an import that was stopped can be
//! run again with `--keep`, which leaves existing keys unchanged, or with `--replace`.

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

/// The name of a large key at the target until its last piece is written.
pub const UNFINISHED: &[u8] = b"perdura:import:unfinished";

/// A key, or a piece of a large key. The pieces of one key come in order, with no other key in between.
pub struct Part<'a> {
    /// The number of the target's database.
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
    /// Returns whether a key may safely be written twice, because SCAN may return it twice. A list would get every
    /// item twice, and a stream refuses ids that it already has.
    pub fn is_harmless_twice(&self) -> bool {
        !matches!(self.value, Value::List(_) | Value::Stream(_))
    }
}

/// The destination of keys and of libraries of functions.
pub trait Sink {
    /// Writes a piece. An error may be returned only by a later call.
    fn part(&mut self, part: &Part<'_>) -> Result<()>;

    /// Writes the code of a library.
    fn library(&mut self, code: &[u8]) -> Result<()>;
}

/// The databases of the source to transfer, each with its number at the target. Empty: all databases, with unchanged
/// numbers.
#[derive(Debug, Clone, Default)]
pub struct Databases(Vec<(u64, u64)>);

impl Databases {
    /// Returns the databases for the pairs on the command line. No pairs mean all databases.
    pub fn new(pairs: Vec<(u64, u64)>) -> Databases {
        Databases(pairs)
    }

    /// Returns the number at the target for a database of the source. `None`: the database is not transferred.
    pub fn target(&self, source: u64) -> Option<u64> {
        if self.0.is_empty() {
            return Some(source);
        }
        let pair = self.0.iter().find(|(from, _)| *from == source);
        pair.map(|(_, to)| *to)
    }
}

/// Parses `N` or `N:M`: database N of the source becomes database M. For `N`, M is N.
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
