//! The keys that clients watch, and a count of the changes of each key.
//!
//! The count of a key exists while a client watches the key. WATCH stores the count for the client, and EXEC compares
//! the stored count with the current count. So a change costs one lookup, however many clients watch the key. The
//! change does not access the clients.
//!
//! Expiry is not a change by a command, so it does not raise the count. WATCH therefore stores the key's expiry time
//! too. A command that changes the expiry time raises the count. So if EXEC finds the count unchanged, the stored
//! expiry time is still correct.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

#[derive(Debug, Default)]
struct Watched {
    clients: usize,
    changes: u64,
}

/// All watched keys, by database.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    keys: HashMap<u8, HashMap<Box<[u8]>, Watched>>,
}

/// The keys that one client watches, by database and name.
pub(crate) type Own = HashMap<(u8, Box<[u8]>), Watch>;

/// The state of a watched key at the start of a client's watch.
#[derive(Debug)]
pub(crate) struct Watch {
    changes: u64,
    /// The key's expiry time, in milliseconds since 1970. `None`: the key does not expire.
    expiry_ms: Option<u64>,
}

impl Watches {
    /// Returns whether no key is watched.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Makes a client watch a key, unless the client already watches it.
    pub(crate) fn add(&mut self, own: &mut Own, database: u8, key: &[u8], expiry_ms: Option<u64>) {
        let Entry::Vacant(vacant) = own.entry((database, key.into())) else {
            return;
        };
        let keys = self.keys.entry(database).or_default();
        let watched = keys.entry(key.into()).or_default();
        watched.clients += 1;
        vacant.insert(Watch {
            changes: watched.changes,
            expiry_ms,
        });
    }

    /// Ends all watches of a client.
    pub(crate) fn forget(&mut self, own: &mut Own) {
        for (database, key) in std::mem::take(own).into_keys() {
            let Some(keys) = self.keys.get_mut(&database) else {
                continue;
            };
            if let Some(watched) = keys.get_mut(&key) {
                debug_assert!(watched.clients > 0, "a key that is watched has a client");
                watched.clients -= 1;
                if watched.clients == 0 {
                    keys.remove(&key);
                }
            }
            if keys.is_empty() {
                self.keys.remove(&database);
            }
        }
    }

    /// Notes that a key was changed.
    pub(crate) fn touch(&mut self, database: u8, key: &[u8]) {
        let keys = self.keys.get_mut(&database);
        if let Some(watched) = keys.and_then(|keys| keys.get_mut(key)) {
            watched.changes += 1;
            debug_assert!(watched.clients > 0, "changes are counted for a client");
        }
    }

    /// Returns the watched keys of a database.
    pub(crate) fn keys_of(&self, database: u8) -> impl Iterator<Item = &[u8]> {
        let keys = self.keys.get(&database);
        keys.into_iter()
            .flat_map(|keys| keys.keys())
            .map(AsRef::as_ref)
    }

    /// Returns whether one of a client's keys was changed after the client began to watch it.
    pub(crate) fn changed(&self, own: &Own) -> bool {
        own.iter().any(|((database, key), watch)| {
            let keys = self.keys.get(database);
            let watched = keys.and_then(|keys| keys.get(key));
            watched.is_none_or(|watched| watched.changes != watch.changes)
        })
    }
}

/// Returns whether one of these keys has expired by `now_ms`.
pub(crate) fn expired(own: &Own, now_ms: u64) -> bool {
    own.values()
        .any(|watch| watch.expiry_ms.is_some_and(|at| at <= now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_by_all_who_watched_before_it() {
        let mut watches = Watches::default();
        let (mut early, mut late) = (Own::new(), Own::new());
        watches.add(&mut early, 0, b"k", None);
        watches.touch(0, b"other");
        watches.touch(1, b"k");
        assert!(!watches.changed(&early));
        watches.touch(0, b"k");
        watches.add(&mut late, 0, b"k", Some(50));
        watches.add(&mut late, 0, b"k", None);
        assert!(watches.changed(&early) && !watches.changed(&late));
        assert_eq!(late.len(), 1, "a second WATCH of a key is none");
        assert!(!expired(&late, 49) && expired(&late, 50));
        watches.forget(&mut early);
        assert_eq!(watches.keys_of(0).count(), 1);
        watches.touch(0, b"k");
        assert!(watches.changed(&late));
        watches.forget(&mut late);
        assert!(watches.is_empty());
    }
}
