//! The keys that clients watch, and a count of the changes of each key.
//!
//! The count of a key exists while a client watches the key. WATCH stores the count for the client, and EXEC compares
//! the stored count with the current count. So a change costs one lookup, however many clients watch the key. The
//! change does not access the clients.
//!
//! A count is raised and compared under the latch of its key's partition. So EXEC compares inside its transaction, and no
//! other loop's write comes between the comparison and the block's writes.
//!
//! Expiry is not a change by a command, so it does not raise the count. WATCH therefore stores the key's expiry time
//! too. A command that changes the expiry time raises the count. So if EXEC finds the count unchanged, the stored
//! expiry time is still correct.

use crate::engine::Epoch;
use crate::part::{Observers, Part};
use crate::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::hash::RandomState;
use std::sync::Arc;

/// The number of stripes.
const STRIPES: usize = 16;

#[derive(Debug, Default)]
struct Watched {
    clients: usize,
    changes: u64,
    /// The epoch that makes the newest change durable.
    epoch: Epoch,
}

/// The watched keys of one stripe, by database.
#[derive(Debug, Default)]
struct Stripe {
    keys: HashMap<u8, HashMap<Box<[u8]>, Watched>>,
}

impl Observers for Stripe {
    fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Stripe {
    fn get(&self, database: u8, key: &[u8]) -> Option<&Watched> {
        self.keys.get(&database)?.get(key)
    }

    /// Ends one client's watch of a key. Returns whether no client watches the key any more.
    fn leave(&mut self, database: u8, key: &[u8]) -> bool {
        let Some(keys) = self.keys.get_mut(&database) else {
            return false;
        };
        let Some(watched) = keys.get_mut(key) else {
            return false;
        };
        debug_assert!(watched.clients > 0, "a key that is watched has a client");
        watched.clients -= 1;
        if watched.clients > 0 {
            return false;
        }
        keys.remove(key);
        if keys.is_empty() {
            self.keys.remove(&database);
        }
        true
    }
}

/// All watched keys.
#[derive(Debug)]
pub(crate) struct Watches {
    stripes: [Part<Stripe>; STRIPES],
    hasher: RandomState,
    /// The number of watched keys.
    count: AtomicUsize,
}

impl Default for Watches {
    fn default() -> Self {
        Watches {
            stripes: std::array::from_fn(|_| Part::default()),
            hasher: RandomState::new(),
            count: AtomicUsize::new(0),
        }
    }
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
    fn stripe(&self, key: &[u8]) -> &Part<Stripe> {
        let hash = perdura_base::num::to_usize(self.hasher.hash_one(key));
        &self.stripes[hash % STRIPES]
    }

    /// Returns whether no key is watched.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Makes a client watch a key, unless the client already watches it. If other loops may change the key, the caller
    /// holds the latch of the key's partition.
    pub(crate) fn add(&self, own: &mut Own, database: u8, key: &[u8], expiry_ms: Option<u64>) {
        let Entry::Vacant(vacant) = own.entry((database, key.into())) else {
            return;
        };
        let changes = self.stripe(key).with(|stripe| {
            let keys = stripe.keys.entry(database).or_default();
            let watched = keys.entry(key.into()).or_default();
            watched.clients += 1;
            if watched.clients == 1 {
                self.count.fetch_add(1, Ordering::Release);
            }
            watched.changes
        });
        vacant.insert(Watch { changes, expiry_ms });
    }

    /// Ends all watches of a client.
    pub(crate) fn forget(&self, own: &mut Own) {
        for (database, key) in std::mem::take(own).into_keys() {
            if self
                .stripe(&key)
                .with(|stripe| stripe.leave(database, &key))
            {
                let before = self.count.fetch_sub(1, Ordering::Release);
                debug_assert!(before > 0, "each watched key is counted");
            }
        }
    }

    /// Notes that a key was changed. The caller holds the latch of the key's partition.
    /// The change is durable with `epoch`.
    pub(crate) fn touch(&self, database: u8, key: &[u8], epoch: Epoch) {
        let stripe = self.stripe(key);
        if !stripe.is_in_use() {
            return;
        }
        stripe.with(|stripe| {
            let keys = stripe.keys.get_mut(&database);
            if let Some(watched) = keys.and_then(|keys| keys.get_mut(key)) {
                watched.changes += 1;
                watched.epoch = watched.epoch.max(epoch);
                debug_assert!(watched.clients > 0, "changes are counted for a client");
            }
        });
    }

    /// Returns the watched keys of a database.
    pub(crate) fn keys_of(&self, database: u8) -> Vec<Box<[u8]>> {
        let mut all = Vec::new();
        for stripe in self.stripes.iter().filter(|stripe| stripe.is_in_use()) {
            stripe.with(|stripe| {
                let keys = stripe.keys.get(&database);
                all.extend(keys.into_iter().flat_map(|keys| keys.keys().cloned()));
            });
        }
        all
    }

    /// Returns the epoch of a change to one of a client's keys, if one was changed after the client began to watch it.
    /// `None` is certain if the caller holds the latches of the keys' partitions.
    pub(crate) fn changed(&self, own: &Own) -> Option<Epoch> {
        let mut all = own.iter();
        all.find_map(|((database, key), watch)| {
            self.stripe(key).with(|stripe| {
                let watched = stripe.get(*database, key);
                debug_assert!(watched.is_some(), "a client's key is watched");
                let changed = watched.filter(|watched| watched.changes != watch.changes);
                changed.map(|watched| watched.epoch)
            })
        })
    }
}

/// The watched keys of a block that EXEC runs. The watch ends when the value is dropped.
pub(crate) struct Watching {
    /// The keys.
    pub own: Own,
    watches: Arc<Watches>,
}

impl Watching {
    /// Takes over the watch of a client's keys.
    pub(crate) fn new(own: &mut Own, watches: &Arc<Watches>) -> Watching {
        Watching {
            own: std::mem::take(own),
            watches: Arc::clone(watches),
        }
    }

    /// Returns the epoch of a change to one of the keys, as [`Watches::changed`] does.
    pub(crate) fn changed(&self) -> Option<Epoch> {
        self.watches.changed(&self.own)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watches.forget(&mut self.own);
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
        let watches = Watches::default();
        let (mut early, mut late) = (Own::new(), Own::new());
        watches.add(&mut early, 0, b"k", None);
        watches.touch(0, b"other", Epoch(1));
        watches.touch(1, b"k", Epoch(2));
        assert_eq!(watches.changed(&early), None);
        watches.touch(0, b"k", Epoch(3));
        watches.add(&mut late, 0, b"k", Some(50));
        watches.add(&mut late, 0, b"k", None);
        let changed = [&early, &late].map(|own| watches.changed(own));
        assert_eq!(changed, [Some(Epoch(3)), None]);
        assert_eq!(late.len(), 1, "a second WATCH of a key is none");
        assert!(!expired(&late, 49) && expired(&late, 50));
        watches.forget(&mut early);
        assert_eq!(watches.keys_of(0).len(), 1);
        watches.touch(0, b"k", Epoch(4));
        assert_eq!(watches.changed(&late), Some(Epoch(4)));
        watches.forget(&mut late);
        assert!(watches.is_empty());
    }
}
