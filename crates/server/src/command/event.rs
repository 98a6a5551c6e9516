//! The key changes of a transaction, for the observers: WATCH, clients that wait for a key, and keyspace notifications.

use crate::notify::class;

/// The class of an event. The option `notify-keyspace-events` selects events by class.
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
    /// A key was removed at once, because its deadline had already passed when the key was written.
    Expired,
    /// A key has appeared.
    New,
    /// A key was looked up and not found. No key has changed.
    Miss,
    /// A change that only WATCH and waiting clients see. No event is published.
    Quiet,
}

impl Class {
    /// Returns the class's bit in `notify-keyspace-events`.
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
