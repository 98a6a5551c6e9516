//! ACL LOG: what was denied to which client. Bounded, and repeats of the last minute are counted, so that a
//! client that tries and tries fills no memory.

use super::selector::{Denied, Reason};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Repeats within this are counted.
const GROUPED: Duration = Duration::from_secs(60);
/// How many of the newest entries may be repeated.
const LOOKED_AT: usize = 10;

/// At most so many bytes of a key and of a name are kept.
const TEXT_BYTES_MAX: usize = 256;

/// Where it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// Outside of blocks.
    TopLevel,
    /// In a block.
    Multi,
    /// In a script.
    Script,
}

/// A denial, and its repeats.
#[derive(Debug)]
pub(crate) struct Entry {
    /// How often.
    pub count: u64,
    /// What for.
    pub denied: Denied,
    /// Where.
    pub context: Context,
    /// As whom.
    pub user: Vec<u8>,
    /// The client, as CLIENT LIST shows it.
    pub client: String,
    /// When it last happened.
    pub at: Instant,
}

impl Entry {
    /// Returns a denial that has happened once. What is too long is cut short.
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

    /// Redis's word for what it was denied for.
    pub(crate) fn reason(&self) -> &'static str {
        match self.denied.reason {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
        }
    }

    /// Redis's word for where it happened.
    pub(crate) fn context(&self) -> &'static str {
        match self.context {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Script => "lua",
        }
    }
}

/// The newest first.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
}

impl Log {
    /// Adds a denial; `max` entries are kept.
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

    /// The newest first.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Forgets all.
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
