//! Events of keys. The setting `notify-keyspace-events` selects the events that are published.

/// The classes of events, one bit each.
pub(crate) mod class {
    /// Events are published on the channel `__keyspace@<db>__:<key>`.
    pub(crate) const KEYSPACE: u16 = 1;
    /// Events are published on the channel `__keyevent@<db>__:<event>`.
    pub(crate) const KEYEVENT: u16 = 1 << 1;
    /// Events of keys of any type: `del`, `expire`, `rename_from` …
    pub(crate) const GENERIC: u16 = 1 << 2;
    /// Strings.
    pub(crate) const STRING: u16 = 1 << 3;
    /// Lists.
    pub(crate) const LIST: u16 = 1 << 4;
    /// Sets.
    pub(crate) const SET: u16 = 1 << 5;
    /// Hashes.
    pub(crate) const HASH: u16 = 1 << 6;
    /// Sorted sets.
    pub(crate) const ZSET: u16 = 1 << 7;
    /// An expired key was removed.
    pub(crate) const EXPIRED: u16 = 1 << 8;
    /// A key was evicted, which does not happen here.
    pub(crate) const EVICTED: u16 = 1 << 9;
    /// Streams.
    pub(crate) const STREAM: u16 = 1 << 10;
    /// Modules, which do not exist here.
    pub(crate) const MODULE: u16 = 1 << 11;
    /// A key was looked up and not found. `A` does not include it.
    pub(crate) const MISS: u16 = 1 << 12;
    /// A key has appeared. `A` does not include it.
    pub(crate) const NEW: u16 = 1 << 13;
    /// The classes that `A` includes.
    pub(crate) const ALL: u16 =
        GENERIC | STRING | LIST | SET | HASH | ZSET | EXPIRED | EVICTED | STREAM | MODULE;
}

/// The letters of the classes that `A` includes.
const KINDS: [(u8, u16); 10] = [
    (b'g', class::GENERIC),
    (b'$', class::STRING),
    (b'l', class::LIST),
    (b's', class::SET),
    (b'h', class::HASH),
    (b'z', class::ZSET),
    (b'x', class::EXPIRED),
    (b'e', class::EVICTED),
    (b't', class::STREAM),
    (b'd', class::MODULE),
];

/// The letters of the classes that `A` does not include, and of the two kinds of channels.
const REST: [(u8, u16); 4] = [
    (b'n', class::NEW),
    (b'K', class::KEYSPACE),
    (b'E', class::KEYEVENT),
    (b'm', class::MISS),
];

/// Returns the classes that these letters name. `None`: a letter is unknown.
pub(crate) fn parse(letters: &[u8]) -> Option<u16> {
    let mut classes = 0;
    for letter in letters {
        classes |= match letter {
            b'A' => class::ALL,
            _ => {
                KINDS
                    .iter()
                    .chain(&REST)
                    .find(|(known, _)| known == letter)?
                    .1
            }
        };
    }
    Some(classes)
}

/// Returns the channels for an event of `key`, each with its message.
pub(crate) fn messages<'a>(
    classes: u16,
    database: u8,
    key: &'a [u8],
    event: &'a str,
) -> impl Iterator<Item = (Vec<u8>, &'a [u8])> {
    let space = (classes & class::KEYSPACE != 0).then(|| {
        let channel = format!("__keyspace@{database}__:");
        ([channel.as_bytes(), key].concat(), event.as_bytes())
    });
    let by_event = (classes & class::KEYEVENT != 0).then(|| {
        let channel = format!("__keyevent@{database}__:{event}");
        (channel.into_bytes(), key)
    });
    space.into_iter().chain(by_event)
}

/// Returns whether events are published. `classes` must name at least one class of events, and at least one of the two
/// kinds of channels.
pub(crate) fn active(classes: u16) -> bool {
    let ways = class::KEYSPACE | class::KEYEVENT;
    classes & ways != 0 && classes & (class::ALL | class::MISS | class::NEW) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stand_for_classes() {
        let all = parse(b"KEA").expect("known letters");
        assert_eq!(parse(b"KEg$lshzxetd"), Some(all));
        assert_eq!((parse(b""), parse(b"q")), (Some(0), None));
    }

    #[test]
    fn an_event_is_told_by_key_and_by_name() {
        let classes = parse(b"KEA").expect("letters");
        let told: Vec<_> = messages(classes, 2, b"k", "set").collect();
        let by_key = (b"__keyspace@2__:k".to_vec(), &b"set"[..]);
        let by_name = (b"__keyevent@2__:set".to_vec(), &b"k"[..]);
        assert_eq!(told, [by_key, by_name]);
        assert!(active(classes) && !active(class::ALL) && !active(class::KEYSPACE));
    }
}
