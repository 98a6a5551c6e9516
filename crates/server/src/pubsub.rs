//! The channels, patterns and shard channels that clients are subscribed to.
//!
//! A subscription is stored twice. [`Topics`] has the listeners of each topic, for publishing. [`Subscriptions`]
//! has the topics of one client, so that all topics of a departing client are found without a search. Both change
//! together in [`Topics::add`] and [`Topics::remove`].

use crate::part::Observers;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The kind of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    /// A channel by its name.
    Channel,
    /// All channels that match a pattern.
    Pattern,
    /// A channel of SSUBSCRIBE, in a separate name space.
    Shard,
}

/// A client's place among the connections of a loop. The id distinguishes the client from a later client at this index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    /// The index of the loop that serves the client.
    pub event_loop: usize,
    /// The index among the connections.
    pub index: usize,
    /// The client's id.
    pub id: u64,
}

impl Seat {
    /// The seat of no client. The ids of clients begin at 1.
    pub(crate) const NOBODY: Seat = Seat {
        event_loop: 0,
        index: 0,
        id: 0,
    };
}

impl Observers for Vec<Seat> {
    fn is_empty(&self) -> bool {
        Vec::is_empty(self)
    }
}

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    channels: BTreeSet<Box<[u8]>>,
    patterns: BTreeSet<Box<[u8]>>,
    shards: BTreeSet<Box<[u8]>>,
}

impl Subscriptions {
    fn of(&mut self, topic: Topic) -> &mut BTreeSet<Box<[u8]>> {
        match topic {
            Topic::Channel => &mut self.channels,
            Topic::Pattern => &mut self.patterns,
            Topic::Shard => &mut self.shards,
        }
    }

    /// Returns the names of one kind of topic.
    pub(crate) fn names(&self, topic: Topic) -> impl Iterator<Item = &[u8]> {
        let set = match topic {
            Topic::Channel => &self.channels,
            Topic::Pattern => &self.patterns,
            Topic::Shard => &self.shards,
        };
        set.iter().map(AsRef::as_ref)
    }

    /// Returns how many names of one kind of topic the client is subscribed to.
    pub(crate) fn count(&self, topic: Topic) -> usize {
        self.names(topic).count()
    }

    /// Returns the number of subscriptions for the reply to a client that subscribes to `topic` or unsubscribes. If
    /// `topic` is a shard channel, only shard channels count. Otherwise channels and patterns count together.
    pub(crate) fn told(&self, topic: Topic) -> usize {
        match topic {
            Topic::Shard => self.shards.len(),
            Topic::Channel | Topic::Pattern => self.channels.len() + self.patterns.len(),
        }
    }

    /// Returns the number of all subscriptions.
    pub(crate) fn total(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shards.len()
    }
}

/// The listeners of a topic, by the clients' ids.
type Listeners = BTreeMap<u64, Seat>;

/// All topics that have listeners.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    channels: HashMap<Box<[u8]>, Listeners>,
    patterns: BTreeMap<Box<[u8]>, Listeners>,
    shards: HashMap<Box<[u8]>, Listeners>,
}

impl Topics {
    /// Subscribes a client, unless it is subscribed already.
    pub(crate) fn add(&mut self, own: &mut Subscriptions, topic: Topic, name: &[u8], who: Seat) {
        if !own.of(topic).insert(name.into()) {
            return;
        }
        let listeners = match topic {
            Topic::Channel => self.channels.entry(name.into()).or_default(),
            Topic::Pattern => self.patterns.entry(name.into()).or_default(),
            Topic::Shard => self.shards.entry(name.into()).or_default(),
        };
        let before = listeners.insert(who.id, who);
        debug_assert!(
            before.is_none(),
            "a topic has a client if the client has the topic"
        );
    }

    /// Ends a subscription, if there is one.
    pub(crate) fn remove(&mut self, own: &mut Subscriptions, topic: Topic, name: &[u8], id: u64) {
        if !own.of(topic).remove(name) {
            return;
        }
        let alone = |listeners: &mut Listeners| {
            let seat = listeners.remove(&id);
            debug_assert!(
                seat.is_some(),
                "a topic has a client if the client has the topic"
            );
            listeners.is_empty()
        };
        match topic {
            Topic::Channel if self.channels.get_mut(name).is_some_and(alone) => {
                self.channels.remove(name);
            }
            Topic::Pattern if self.patterns.get_mut(name).is_some_and(alone) => {
                self.patterns.remove(name);
            }
            Topic::Shard if self.shards.get_mut(name).is_some_and(alone) => {
                self.shards.remove(name);
            }
            Topic::Channel | Topic::Pattern | Topic::Shard => {}
        }
    }

    /// Ends all subscriptions of a client.
    pub(crate) fn forget(&mut self, own: &mut Subscriptions, id: u64) {
        for topic in [Topic::Channel, Topic::Pattern, Topic::Shard] {
            let names: Vec<Box<[u8]>> = own.of(topic).iter().cloned().collect();
            for name in names {
                self.remove(own, topic, &name, id);
            }
        }
        debug_assert_eq!(own.total(), 0, "a client that leaves listens to nothing");
    }

    /// Returns the subscribers of the topic with this kind and name.
    pub(crate) fn listeners(&self, topic: Topic, name: &[u8]) -> impl Iterator<Item = Seat> {
        let found = match topic {
            Topic::Channel => self.channels.get(name),
            Topic::Pattern => self.patterns.get(name),
            Topic::Shard => self.shards.get(name),
        };
        found.into_iter().flat_map(|found| found.values().copied())
    }

    /// Returns the patterns that match a channel, each with its listeners.
    pub(crate) fn matching<'a>(
        &'a self,
        channel: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], impl Iterator<Item = Seat> + 'a)> {
        self.patterns
            .iter()
            .filter(move |(pattern, _)| crate::glob::matches(pattern, channel))
            .map(|(pattern, listeners)| (pattern.as_ref(), listeners.values().copied()))
    }

    /// Returns the names of the topics of one kind that have listeners.
    pub(crate) fn names(&self, topic: Topic) -> Vec<Box<[u8]>> {
        match topic {
            Topic::Channel => self.channels.keys().cloned().collect(),
            Topic::Pattern => self.patterns.keys().cloned().collect(),
            Topic::Shard => self.shards.keys().cloned().collect(),
        }
    }

    /// Returns how many names of one kind of topic have listeners.
    pub(crate) fn count(&self, topic: Topic) -> usize {
        match topic {
            Topic::Channel => self.channels.len(),
            Topic::Pattern => self.patterns.len(),
            Topic::Shard => self.shards.len(),
        }
    }
}

impl Observers for Topics {
    /// Returns whether no channel or pattern has a listener. Listeners of shard channels do not count, because no event
    /// of a key is published to a shard channel.
    fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.patterns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Seat = Seat {
        index: 3,
        id: 7,
        ..Seat::NOBODY
    };
    const B: Seat = Seat {
        index: 1,
        id: 9,
        ..Seat::NOBODY
    };

    #[test]
    fn a_topic_exists_as_long_as_somebody_listens() {
        let mut topics = Topics::default();
        let (mut a, mut b) = (Subscriptions::default(), Subscriptions::default());
        topics.add(&mut a, Topic::Channel, b"news", A);
        topics.add(&mut a, Topic::Channel, b"news", A);
        topics.add(&mut b, Topic::Channel, b"news", B);
        topics.add(&mut b, Topic::Pattern, b"n*", B);
        topics.add(&mut b, Topic::Shard, b"news", B);
        assert_eq!((a.told(Topic::Channel), b.told(Topic::Pattern)), (1, 2));
        assert_eq!((b.told(Topic::Shard), b.total()), (1, 3));
        let heard: Vec<Seat> = topics.listeners(Topic::Channel, b"news").collect();
        assert_eq!(heard, [A, B]);
        let matched: usize = topics.matching(b"news").map(|(_, who)| who.count()).sum();
        assert_eq!((matched, topics.matching(b"old").count()), (1, 0));
        topics.remove(&mut a, Topic::Channel, b"news", A.id);
        topics.remove(&mut a, Topic::Channel, b"never", A.id);
        assert_eq!(topics.names(Topic::Channel), [Box::from(*b"news")]);
        topics.forget(&mut b, B.id);
        assert!(topics.is_empty() && topics.count(Topic::Shard) == 0);
        assert_eq!(b.total(), 0);
    }
}
