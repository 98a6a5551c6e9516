//! ACL LOG: the denied commands and logins, each with its client. The log is bounded, and repeats within a minute are
//! only counted. So a client that keeps trying uses no more memory.

use crate::denial::{Denied, Reason};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The maximum time between two equal denials that share one entry.
const GROUPED: Duration = Duration::from_secs(60);
/// A new denial is compared with this many of the newest entries to find a repeat.
const LOOKED_AT: usize = 10;

/// The maximum number of stored bytes of a key or a name.
const TEXT_BYTES_MAX: usize = 256;

/// The context of a denied command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// Neither in a MULTI block nor in a script.
    TopLevel,
    /// In a MULTI block.
    Multi,
    /// In a script.
    Script,
}

/// A denial and the number of its repeats.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The number of times that the denial has happened.
    pub count: u64,
    /// The denial.
    pub denied: Denied,
    /// The context of the denial.
    pub context: Context,
    /// The name of the user.
    pub user: Vec<u8>,
    /// The client, as CLIENT LIST shows it.
    pub client: String,
    /// The time of the latest denial.
    pub at: Instant,
}

impl Entry {
    /// Makes the entry of a new denial, with the count 1. Truncates long keys and names to [`TEXT_BYTES_MAX`].
    pub(crate) fn new(
        mut denied: Denied,
        context: Context,
        user: &[u8],
        client: &str,
        at: Instant,
    ) -> Entry {
        if denied.object.len() > TEXT_BYTES_MAX {
            denied.object = denied.object[..TEXT_BYTES_MAX].to_vec();
        }
        debug_assert!(denied.object.len() <= TEXT_BYTES_MAX, "a long text is cut");
        Entry {
            count: 1,
            denied,
            context,
            user: user[..user.len().min(TEXT_BYTES_MAX)].to_vec(),
            client: client.trim_end().to_owned(),
            at,
        }
    }

    /// Returns Redis's word for the reason.
    pub(crate) fn reason(&self) -> &'static str {
        match self.denied.reason {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
        }
    }

    /// Returns Redis's word for the context.
    pub(crate) fn context(&self) -> &'static str {
        match self.context {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Script => "lua",
        }
    }
}

/// The log, the newest entries first.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
}

impl Log {
    /// Adds the entry of a new denial. If one of the newest entries records the same denial, removes the old entry and
    /// adds its count to the new entry's count. Keeps the newest `max` entries.
    pub(crate) fn add(&mut self, mut new: Entry, max: usize) {
        let repeats = |entry: &Entry| {
            entry.denied.reason == new.denied.reason
                && entry.denied.object == new.denied.object
                && entry.context == new.context
                && entry.user == new.user
                && new.at.duration_since(entry.at) <= GROUPED
        };
        let found = self.entries.iter().take(LOOKED_AT).position(repeats);
        if let Some(before) = found.and_then(|at| self.entries.remove(at)) {
            new.count += before.count;
        }
        debug_assert!(new.count > 0, "an entry has happened");
        self.entries.push_front(new);
        self.entries.truncate(max);
        debug_assert!(
            self.entries.len() <= max,
            "no more entries are kept than may be"
        );
    }

    /// Returns the entries, the newest first.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_and_names_are_kept_cut_short() {
        let mut log = Log::default();
        let denied = || Denied {
            reason: Reason::Key,
            at: 0,
            object: vec![b'k'; 1 << 20],
        };
        let name = vec![b'u'; 1 << 20];
        for _ in 0..2 {
            let now = Instant::now();
            log.add(Entry::new(denied(), Context::TopLevel, &name, "", now), 128);
        }
        let entries: Vec<&Entry> = log.iter().collect();
        assert_eq!((entries.len(), entries[0].count), (1, 2));
        assert_eq!(entries[0].denied.object.capacity(), TEXT_BYTES_MAX);
        assert_eq!(entries[0].user.len(), TEXT_BYTES_MAX);
    }
}
