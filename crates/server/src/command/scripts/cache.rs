//! The scripts that the server knows by their SHA-1. As in Redis, they are lost at SCRIPT FLUSH and
//! when the server ends.
//!
//! SCRIPT LOAD adds scripts that stay. EVAL adds the scripts that it runs. When all scripts together exceed
//! `BYTES_MAX`, the oldest scripts of EVAL are removed. A client that gets NOSCRIPT sends its script again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The greatest number of bytes that all scripts together may take.
const BYTES_MAX: usize = 64 << 20;
/// The number of bytes that a script takes besides its source.
const ENTRY_BYTES: usize = 256;

/// The scripts.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    scripts: HashMap<String, Kept>,
    /// The scripts that EVAL has added, the oldest first. After EVAL, SCRIPT LOAD may have added such a script as well.
    /// That script then stays in the cache.
    passing: VecDeque<String>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    source: Arc<[u8]>,
    stays: bool,
}

impl Cache {
    /// Returns the number of scripts.
    pub(crate) fn len(&self) -> usize {
        self.scripts.len()
    }

    /// Returns the bytes of all scripts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a script's source.
    pub(crate) fn get(&self, sha: &str) -> Option<Arc<[u8]>> {
        self.scripts.get(sha).map(|kept| Arc::clone(&kept.source))
    }

    /// Adds a script. If `stays`, only SCRIPT FLUSH removes it. Returns whether there was room for the script.
    pub(crate) fn keep(&mut self, sha: &str, source: &[u8], stays: bool) -> bool {
        if let Some(kept) = self.scripts.get_mut(sha) {
            kept.stays |= stays;
            return true;
        }
        let bytes = source.len() + ENTRY_BYTES;
        while self.bytes + bytes > BYTES_MAX {
            let Some(oldest) = self.passing.pop_front() else {
                return false;
            };
            self.drop_passing(&oldest);
        }
        let source = Arc::from(source);
        self.scripts
            .insert(String::from(sha), Kept { source, stays });
        self.bytes += bytes;
        if !stays {
            self.passing.push_back(String::from(sha));
        }
        true
    }

    fn drop_passing(&mut self, sha: &str) {
        if self.scripts.get(sha).is_some_and(|kept| !kept.stays)
            && let Some(gone) = self.scripts.remove(sha)
        {
            self.bytes -= gone.source.len() + ENTRY_BYTES;
        }
    }

    /// Removes all scripts.
    pub(crate) fn clear(&mut self) {
        *self = Cache::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_eval_brought_makes_room_and_what_was_loaded_stays() {
        let mut cache = Cache::default();
        let long = vec![b'x'; BYTES_MAX / 4];
        assert!(cache.keep("loaded", &long, true));
        assert!(cache.keep("first", &long, false));
        assert!(cache.keep("second", &long, false));
        assert!(cache.keep("first", &long, true), "it stays from now on");
        assert!(cache.keep("third", &long, false));
        assert!(
            cache.get("second").is_none(),
            "it was the oldest that may go"
        );
        assert!(cache.get("loaded").is_some() && cache.get("first").is_some());
        assert!(cache.keep("fourth", &long, true));
        assert!(!cache.keep("fifth", &long, true), "four that stay fill it");
        assert!(cache.bytes() <= BYTES_MAX);
        cache.clear();
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
    }
}
