//! Reports of changed keys, and other messages that answer no request.
//!
//! A message that shows a write waits for the disk like the write's own reply: it enters the listener's
//! queue of replies with the write's epoch.

use crate::command::event::{Class, Event};
use crate::engine::Epoch;
use crate::notify;
use crate::pubsub::{Seat, Topic};
use crate::replies::Replies;
use crate::resp::reply::Out;
use crate::session::Session;
use crate::state::State;

/// The clients that get a message.
#[derive(Debug)]
struct Audience {
    by_name: Vec<Seat>,
    by_pattern: Vec<(Vec<u8>, Vec<Seat>)>,
}

impl Audience {
    fn count(&self) -> u64 {
        let by_pattern = self.by_pattern.iter().map(|(_, seats)| seats.len());
        let count = self.by_name.len() + by_pattern.sum::<usize>();
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

/// A message that a MULTI block sends when it commits.
#[derive(Debug)]
pub(crate) struct Message {
    topic: Topic,
    channel: Vec<u8>,
    text: Vec<u8>,
    audience: Audience,
}

/// A message to the listeners of a channel.
#[derive(Clone, Copy)]
struct Published<'a> {
    topic: Topic,
    channel: &'a [u8],
    text: &'a [u8],
}

/// The client with the running command, and the command's messages to this client. Its connection is in use, so the
/// messages are stored here until the reply is complete.
#[derive(Debug)]
pub(crate) struct Running {
    seat: Seat,
    resp3: bool,
    messages: Vec<u8>,
}

impl Running {
    /// The value while no command runs.
    pub(crate) const NOBODY: Self = Running {
        seat: Seat::NOBODY,
        resp3: false,
        messages: Vec::new(),
    };
}

impl Message {
    /// Returns the number of clients that will get the message.
    pub(crate) fn count(&self) -> u64 {
        self.audience.count()
    }
}

impl State {
    /// Returns whether any client needs reports of changed keys.
    pub(crate) fn interest(&self) -> bool {
        let waits = !self.blocking.is_empty() || !self.jobs.is_empty();
        let tracks = !self.tracking.is_empty();
        waits || tracks || !self.watches.is_empty() || self.publishes_events()
    }

    fn publishes_events(&self) -> bool {
        notify::active(self.notify) && !self.topics.is_silent()
    }

    /// Returns which of two classes of events are published: new keys, and failed lookups of keys. Commands do not
    /// report these events.
    pub(crate) fn notices(&self) -> u16 {
        match self.notify & (notify::class::NEW | notify::class::MISS) {
            0 => 0,
            classes if self.publishes_events() => classes,
            _ => 0,
        }
    }

    /// Informs observers of changes that are durable with `epoch`.
    #[inline]
    pub(crate) fn tell(&mut self, events: &[Event], epoch: Epoch) {
        if !events.is_empty() {
            self.tell_each(events, epoch);
        }
    }

    fn tell_each(&mut self, events: &[Event], epoch: Epoch) {
        for event in events {
            if event.class != Class::Miss {
                self.watches.touch(event.database, &event.key);
                self.blocking.touch(event.database, &event.key);
                self.jobs.touched(event.database, &event.key);
                self.key_changed(&event.key, epoch);
            }
            if self.notify & event.class.bit() == 0 || !self.publishes_events() {
                continue;
            }
            let told = notify::messages(self.notify, event.database, &event.key, event.name);
            for (channel, text) in told {
                self.publish(Topic::Channel, &channel, text, epoch);
            }
        }
    }

    /// Informs observers of expired and removed keys. Clients that watch a key with WATCH are not informed, because
    /// for WATCH an expired key is already gone. The caller serves the clients that waited for the keys.
    pub(crate) fn tell_expired(&mut self, keys: Vec<(u8, Vec<u8>)>, epoch: Epoch) {
        let publishes = self.notify & notify::class::EXPIRED != 0 && self.publishes_events();
        for (database, key) in keys {
            self.key_changed(&key, epoch);
            self.blocking.touch(database, &key);
            if !publishes {
                continue;
            }
            let told = notify::messages(self.notify, database, &key, "expired");
            for (channel, text) in told {
                self.publish(Topic::Channel, &channel, text, epoch);
            }
        }
    }

    /// Returns whether any client gets reports of keys that have expired.
    pub(crate) fn hears_expired(&self) -> bool {
        let publishes = self.notify & notify::class::EXPIRED != 0 && self.publishes_events();
        publishes || !self.tracking.is_empty() || self.blocking.any_ends()
    }

    /// Sends a message to all clients that have subscribed to a channel by name or by pattern. Returns the number of
    /// these clients.
    pub(crate) fn publish(
        &mut self,
        topic: Topic,
        channel: &[u8],
        text: &[u8],
        epoch: Epoch,
    ) -> u64 {
        let audience = self.audience(topic, channel);
        let count = audience.count();
        let published = Published {
            topic,
            channel,
            text,
        };
        self.send(published, audience, epoch);
        count
    }

    /// Returns a message that a MULTI block sends when it commits. Its receivers are the clients that are
    /// subscribed now.
    pub(crate) fn message(&self, topic: Topic, channel: &[u8], text: &[u8]) -> Message {
        Message {
            topic,
            channel: channel.to_vec(),
            text: text.to_vec(),
            audience: self.audience(topic, channel),
        }
    }

    /// Sends the messages of a MULTI block that has committed.
    pub(crate) fn send_held_back(&mut self, messages: Vec<Message>, epoch: Epoch) {
        for message in messages {
            let published = Published {
                topic: message.topic,
                channel: &message.channel,
                text: &message.text,
            };
            self.send(published, message.audience, epoch);
        }
    }

    fn audience(&self, topic: Topic, channel: &[u8]) -> Audience {
        let by_name = self.topics.listeners(topic, channel).collect();
        let patterns = topic != Topic::Shard && self.topics.count(Topic::Pattern) > 0;
        let matching = patterns.then(|| self.topics.matching(channel));
        let by_pattern = matching
            .into_iter()
            .flatten()
            .map(|(pattern, seats)| (pattern.to_vec(), seats.collect()))
            .collect();
        Audience {
            by_name,
            by_pattern,
        }
    }

    fn send(&mut self, published: Published<'_>, audience: Audience, epoch: Epoch) {
        let Published {
            topic,
            channel,
            text,
        } = published;
        let word: &[u8] = match topic {
            Topic::Shard => b"smessage",
            Topic::Channel | Topic::Pattern => b"message",
        };
        for seat in audience.by_name {
            self.deliver(seat, &[word, channel, text], epoch);
        }
        for (pattern, seats) in audience.by_pattern {
            for seat in seats {
                self.deliver(seat, &[b"pmessage", &pattern, channel, text], epoch);
            }
        }
    }

    /// Appends a message to a client's replies.
    fn deliver(&mut self, seat: Seat, words: &[&[u8]], epoch: Epoch) {
        let write = |out: &mut Out<'_>| {
            out.push(words.len());
            words.iter().for_each(|word| out.bulk(word));
        };
        self.append(seat, write, epoch);
    }

    /// Appends a message to a client's replies, if the client is still there. A message to the running client
    /// is added to [`State::running`].
    pub(crate) fn append(&mut self, seat: Seat, write: impl Fn(&mut Out<'_>), epoch: Epoch) {
        if self.running.seat == seat {
            // The stored messages already exceed the limit, so the client will be disconnected when they are
            // appended. No more are stored.
            if self.running.messages.len() >= self.own_bytes_max() {
                return;
            }
            let resp3 = self.running.resp3;
            return write(&mut Out::new(&mut self.running.messages, resp3));
        }
        let Some(mut connection) = self.connections.take(seat.index) else {
            return;
        };
        if connection.session.seat == seat && !connection.doomed {
            let resp3 = connection.session.resp3;
            write(&mut Out::new(&mut connection.replies.buf, resp3));
            let rest = connection.session.rest(epoch);
            connection.replies.seal(rest, self.reached);
            connection.account(self);
            connection.check_output(self);
            self.touch(seat.index);
        }
        self.connections.put(seat.index, connection);
    }

    /// Notes that a client's command begins to run. The messages of the previous command must have been
    /// appended.
    #[inline]
    pub(crate) fn begin_running(&mut self, seat: Seat, resp3: bool) {
        debug_assert!(
            self.running.messages.is_empty(),
            "messages to {:?} would reach {seat:?}",
            self.running.seat
        );
        (self.running.seat, self.running.resp3) = (seat, resp3);
    }

    /// Returns the client with the running command, or [`Seat::NOBODY`].
    pub(crate) fn running_seat(&self) -> Seat {
        self.running.seat
    }

    /// Returns whether the client with the running command speaks RESP3.
    pub(crate) fn running_resp3(&self) -> bool {
        self.running.resp3
    }

    /// Notes that the command has ended. From now on messages to its client go directly to the connection.
    #[inline]
    pub(crate) fn end_running(&mut self) {
        self.running.seat = Seat::NOBODY;
    }

    /// Appends the running command's messages for its own client to the bytes `to`.
    #[inline]
    pub(crate) fn append_own(&mut self, to: &mut Vec<u8>) {
        if !self.running.messages.is_empty() {
            to.append(&mut self.running.messages);
        }
    }

    /// Appends to `replies` the running command's messages for its own client. They follow the command's reply, and
    /// wait until all earlier writes are durable.
    #[inline]
    pub(crate) fn seal_own(&mut self, session: &mut Session, replies: &mut Replies) {
        if !self.running.messages.is_empty() {
            self.append_own(&mut replies.buf);
            replies.seal(session.rest(self.newest), self.reached);
        }
    }

    /// Returns the number of message bytes at which a subscriber or a monitor is disconnected.
    fn own_bytes_max(&self) -> usize {
        match self.options.output_limits.pubsub.hard_bytes {
            0 => usize::MAX,
            pubsub => usize::try_from(pubsub).unwrap_or(usize::MAX),
        }
    }

    /// Closes a client at once, even if replies are unsent.
    pub(crate) fn kill(&mut self, seat: Seat) {
        let Some(mut connection) = self.connections.take(seat.index) else {
            return;
        };
        if connection.session.seat == seat {
            connection.doomed = true;
            self.touch(seat.index);
        }
        self.connections.put(seat.index, connection);
    }
}
