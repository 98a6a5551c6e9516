//! The transfer of keys from a source to a target, for `import` and `export`.
//!
//! ```text
//!  dump file ──┐                      ┌── a server, over the Redis protocol
//!              ├── Part, Part, Part ──┤
//!  a server ───┘                      └── commands on stdout
//! ```
//!
//! Keys are written only by each type's ordinary commands over a connection. This works for Perdura and Redis alike,
//! and the server enforces its usual rules (limits, expiry, memory). A stopped database is served by this process
//! during the transfer, on a private socket. From a server, keys are read only by SCAN and each type's reading
//! commands. They are read in pieces, so a key may be larger than memory.
//!
//! # Why not DUMP, SYNC or RESTORE
//! SYNC would give a snapshot. But most hosted servers refuse SYNC, it makes the source fork, and its format depends on
//! the source's version. DUMP has SYNC's version-dependent format, and source and target must each hold a whole key in
//! memory. SCAN works with every server and version, under the usual permissions, but gives no snapshot. A user who
//! needs a snapshot stops the writers, or imports a dump file.
//!
//! # What an interruption leaves
//! A key arrives whole or not at all. A small key is written by one command or in one transaction. A large key is
//! written piece by piece under the name [`UNFINISHED`] and renamed at the end. So after an interruption, an import can
//! be run again with `--keep` or with `--replace`. `--keep` leaves existing keys unchanged.

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
    /// The database number at the target.
    pub db: u64,
    /// The key.
    pub key: &'a [u8],
    /// The value, or some of its elements.
    pub value: &'a Value,
    /// True if this is the key's first piece.
    pub first: bool,
    /// True if this is the key's last piece.
    pub last: bool,
    /// The key's expiry time, milliseconds since 1970. `None`: never.
    pub expires_at_ms: Option<i64>,
}

impl Part<'_> {
    /// Returns whether writing the key twice is harmless. This matters because SCAN may return a key twice. A list
    /// would get every item twice, and a stream refuses ids that it already has.
    pub fn is_harmless_twice(&self) -> bool {
        !matches!(self.value, Value::List(_) | Value::Stream(_))
    }
}

/// A destination of keys and function libraries.
pub trait Sink {
    /// Writes a piece. If the piece cannot be written, the error may come from a later call instead.
    fn part(&mut self, part: &Part<'_>) -> Result<()>;

    /// Writes a function library, given its code.
    fn library(&mut self, code: &[u8]) -> Result<()>;
}

/// The databases of the source to transfer, each with its number at the target. If the list is empty, all databases are
/// transferred with unchanged numbers.
#[derive(Debug, Clone, Default)]
pub struct Databases(Vec<(u64, u64)>);

impl Databases {
    /// Returns the databases for the pairs on the command line. No pairs mean all databases.
    pub fn new(pairs: Vec<(u64, u64)>) -> Databases {
        Databases(pairs)
    }

    /// Returns the number that a database of the source gets at the target. Returns `None` if the database is not
    /// transferred.
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
