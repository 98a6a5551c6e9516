//! What a transaction has done to keys, for those who want to know: WATCH, clients that wait for
//! a key, and keyspace notifications.

/// The class of an event, as `notify-keyspace-events` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Keys of any type: del, rename, expire …
    Generic,
    /// Strings.
    String,
    /// Lists.
    List,
    /// Sets.
    Set,
    /// Hashes.
    Hash,
    /// Sorted sets.
    SortedSet,
}

/// One change of one key.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// The database, 0 to 15.
    pub database: u8,
    /// Its class.
    pub class: Class,
    /// Its name in Redis's words.
    pub name: &'static str,
    /// The key.
    pub key: Box<[u8]>,
}
