//! Tells of changes, and delivers messages to clients that did not ask for them.
//!
//! A message that tells of a write waits for the disk as the write's own reply does: it carries
//! the write's epoch into the listener's queue of replies.

use crate::command::event::Event;
use crate::engine::Epoch;
use crate::notify;
use crate::pubsub::{Seat, Topic};
use crate::resp::reply::Out;
use crate::state::State;

impl State {
    /// Whether anybody wants to know which keys change.
    pub(crate) fn interest(&self) -> bool {
        !self.watches.is_empty() || !self.blocking.is_empty() || self.publishes_events()
    }

    fn publishes_events(&self) -> bool {
        notify::active(self.notify) && !self.topics.is_silent()
    }

    /// Tells those who want to know of changes that are durable with `epoch`.
    pub(crate) fn tell(&mut self, events: &[Event], epoch: Epoch) {
        for event in events {
            self.watches.touch(event.database, &event.key);
            self.blocking.touch(event.database, &event.key);
            if self.notify & event.class.bit() == 0 || !self.publishes_events() {
                continue;
            }
            let told = notify::messages(self.notify, event.database, &event.key, event.name);
            for (channel, text) in told {
                self.publish(Topic::Channel, &channel, text, epoch);
            }
        }
    }

    /// Tells of keys that were removed because their time was over. For WATCH and for clients that
    /// wait they had gone before.
    pub(crate) fn tell_expired(&mut self, keys: Vec<(u8, Vec<u8>)>, epoch: Epoch) {
        for (database, key) in keys {
            let told = notify::messages(self.notify, database, &key, "expired");
            for (channel, text) in told {
                self.publish(Topic::Channel, &channel, text, epoch);
            }
        }
    }

    /// Whether anybody hears of keys whose time is over.
    pub(crate) fn hears_expired(&self) -> bool {
        self.notify & notify::class::EXPIRED != 0 && self.publishes_events()
    }

    /// Sends a message to all who listen to a channel, by its name or by a pattern. Answers to
    /// how many.
    pub(crate) fn publish(
        &mut self,
        topic: Topic,
        channel: &[u8],
        text: &[u8],
        epoch: Epoch,
    ) -> u64 {
        let mut count = 0;
        let word: &[u8] = match topic {
            Topic::Shard => b"smessage",
            Topic::Channel | Topic::Pattern => b"message",
        };
        let listeners: Vec<Seat> = self.topics.listeners(topic, channel).collect();
        for seat in listeners {
            self.deliver(seat, &[word, channel, text], epoch);
            count += 1;
        }
        if topic == Topic::Shard || self.topics.count(Topic::Pattern) == 0 {
            return count;
        }
        let matching: Vec<(Vec<u8>, Vec<Seat>)> = self
            .topics
            .matching(channel)
            .map(|(pattern, seats)| (pattern.to_vec(), seats.collect()))
            .collect();
        for (pattern, seats) in matching {
            for seat in seats {
                self.deliver(seat, &[b"pmessage", &pattern, channel, text], epoch);
                count += 1;
            }
        }
        count
    }

    /// Appends a message to what a client will be told.
    fn deliver(&mut self, seat: Seat, words: &[&[u8]], epoch: Epoch) {
        let write = |out: &mut Out<'_>| {
            out.push(words.len());
            words.iter().for_each(|word| out.bulk(word));
        };
        self.append(seat, write, epoch);
    }

    /// Appends something to what a client will be told, if it is still there. The client that is
    /// running gets it from [`State::own`].
    pub(crate) fn append(&mut self, seat: Seat, write: impl Fn(&mut Out<'_>), epoch: Epoch) {
        if self.running.0 == seat {
            let resp3 = self.running.1;
            return write(&mut Out::new(&mut self.own, resp3));
        }
        let Some(mut connection) = self.connections.take(seat.index) else {
            return;
        };
        if connection.session.seat == seat {
            let resp3 = connection.session.resp3;
            write(&mut Out::new(&mut connection.replies.buf, resp3));
            let epoch = self.answer_epoch(&connection.session, epoch);
            connection.replies.seal(epoch, self.durable);
            connection.check_output(self);
            self.touch(seat.index);
        }
        self.connections.put(seat.index, connection);
    }

    /// Appends the messages that the running client has sent itself.
    pub(crate) fn append_own(&mut self, to: &mut Vec<u8>) {
        if !self.own.is_empty() {
            to.append(&mut self.own);
        }
    }

    /// Closes another client at once, whatever it is owed.
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
