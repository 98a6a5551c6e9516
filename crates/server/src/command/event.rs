//! The changes of keys by a transaction, for its observers: WATCH, clients that wait for a key, and
//! keyspace notifications.

use crate::notify::class;

/// The class of an event, by which `notify-keyspace-events` selects events.
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
    /// Streams.
    Stream,
    /// A key was removed at once, because its time was over when it was written.
    Expired,
    /// A key has appeared.
    New,
    /// A key was looked up and not found; it has not changed.
    Miss,
    /// For WATCH and waiting clients only; nothing is published.
    Quiet,
}

impl Class {
    /// Returns its bit in `notify-keyspace-events`.
    pub(crate) fn bit(self) -> u16 {
        match self {
            Class::Generic => class::GENERIC,
            Class::String => class::STRING,
            Class::List => class::LIST,
            Class::Set => class::SET,
            Class::Hash => class::HASH,
            Class::SortedSet => class::ZSET,
            Class::Stream => class::STREAM,
            Class::Expired => class::EXPIRED,
            Class::New => class::NEW,
            Class::Miss => class::MISS,
            Class::Quiet => 0,
        }
    }
}

/// An event of a key.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// The database, 0 to 15.
    pub database: u8,
    /// The class of the event.
    pub class: Class,
    /// The event's name in Redis's words.
    pub name: &'static str,
    /// The key.
    pub key: Box<[u8]>,
}
