//! File descriptors: the number of clients that fit beside the files of the database.
//!
//! A process without free descriptors cannot prepare a segment of its log, and every write waits. So the server
//! first reserves descriptors for everything except clients. It lowers `maxclients` to the number that remains.

use crate::engine::{Options, descriptors};
use crate::options::{ServeError, ServerOptions};

/// The descriptors of every server: standard streams, listeners, pollers, signals, locks, and a margin for new
/// connections that are refused.
const BASE: u64 = 40;
/// The descriptors of a stream of the log. Three segments take two descriptors each: the current segment, the next
/// segment, and an unfinished segment. The remaining descriptors are for the stream's directory, the lock, the
/// `io_uring` and a reader of the log.
const STREAM: u64 = 12;
/// The descriptors of a disk that holds images. Each of the two images takes two descriptors for its pages. A directory
/// and the locks take the rest.
const IMAGE_DISK: u64 = 8;
/// The descriptors of the archive: ten runs to be merged, the resulting run, the newly written run, and a backup.
const ARCHIVE: u64 = 40;
/// The descriptors for the log's nodes: two connections to each of two nodes, and memory that they share.
const NODES: u64 = 16;
/// The descriptors of a loop: its poller and its waker.
const LOOP: u64 = 2;
/// The descriptors of the metrics: 32 connections, the listener, the poller, and a rejected connection.
const METRICS: u64 = 38;
/// The number of clients that must fit before the server starts. If `maxclients` is lower, only `maxclients` clients
/// must fit.
const CLIENTS_LEAST: u64 = 8;

/// The clients' share of the process's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// The limit of the process.
    pub limit: u64,
    /// The descriptors that are not for clients.
    pub reserved: u64,
}

impl Share {
    /// Raises the limit to the allowed maximum, and reserves the descriptors for everything except clients. The server
    /// calls this after it has bound the listeners and before it opens the database.
    pub(crate) fn reserve(options: &ServerOptions, database: &Options) -> Share {
        let limit = descriptors::raise_limit();
        let images = database.image_dirs.len().max(1);
        let parts = [
            BASE.max(descriptors::open_count() + BASE / 2),
            STREAM * u64::from(database.streams),
            IMAGE_DISK * u64::try_from(images).unwrap_or(u64::MAX),
            ARCHIVE * u64::from(database.archive.is_some()),
            NODES * u64::from(database.nodes.is_some()),
            LOOP * u64::try_from(options.loops().saturating_sub(1)).unwrap_or(u64::MAX),
            METRICS * u64::from(options.metrics_listen.is_some()),
        ];
        let reserved = parts.iter().sum();
        Share { limit, reserved }
    }

    /// Returns how many clients fit.
    pub(crate) fn clients_max(self) -> usize {
        usize::try_from(self.limit.saturating_sub(self.reserved)).unwrap_or(usize::MAX)
    }

    /// Lowers `maxclients` to the number that fits. Returns a line for the log if it was lowered.
    ///
    /// # Errors
    /// [`ServeError::Options`] if the number of clients that fit is below `CLIENTS_LEAST` and below `maxclients`.
    pub(crate) fn fit(self, options: &mut ServerOptions) -> Result<Option<String>, ServeError> {
        let Share { limit, reserved } = self;
        let (wanted, fits) = (options.maxclients, self.clients_max());
        let least = wanted.min(usize::try_from(CLIENTS_LEAST).unwrap_or(usize::MAX));
        if fits < least {
            return Err(ServeError::Options(format!(
                "the process may open {limit} files, and needs {reserved} without its clients. \
                 Raise the limit (ulimit -n, LimitNOFILE=) to {} or more",
                reserved + CLIENTS_LEAST
            )));
        }
        if wanted <= fits {
            return Ok(None);
        }
        options.maxclients = fits;
        Ok(Some(format!(
            "maxclients is lowered from {wanted} to {fits}: the process may open {limit} files, \
             of which {reserved} are reserved for the database. To serve more clients, raise the \
             limit (ulimit -n, LimitNOFILE=)"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(limit: u64, maxclients: usize) -> Result<(usize, Option<String>), ServeError> {
        let mut options = ServerOptions {
            maxclients,
            ..ServerOptions::default()
        };
        let reserved = 60;
        let said = Share { limit, reserved }.fit(&mut options)?;
        Ok((options.maxclients, said))
    }

    #[test]
    fn clients_get_what_the_database_does_not_need() {
        assert!(matches!(fit(20_000, 10_000), Ok((10_000, None))));
        let (clients, said) = fit(1024, 10_000).expect("many fit");
        assert_eq!(clients, 964);
        assert!(said.is_some_and(|said| said.contains("from 10000 to 964")));
        assert!(matches!(fit(256, 100), Ok((100, None))));
        let Err(ServeError::Options(why)) = fit(64, 10_000) else {
            panic!("four clients are too few")
        };
        assert!(why.contains("to 68 or more"), "{why}");
        assert!(
            matches!(fit(64, 4), Ok((4, None))),
            "as many as were asked for"
        );
    }

    #[test]
    fn each_part_of_the_server_has_its_reserve() {
        let (options, mut database) = (ServerOptions::default(), Options::new("unused"));
        let bare = Share::reserve(&options, &database);
        database.archive = Some("archive".into());
        database.streams = 4;
        let more = Share::reserve(&options, &database);
        // Other tests of this process open and close files at the same time.
        let grown = more.reserved.saturating_sub(bare.reserved);
        assert!(grown >= ARCHIVE, "{grown} more are reserved");
        assert_eq!(bare.limit, more.limit);
    }
}
