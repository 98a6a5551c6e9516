//! Reports of changed keys, and other messages that answer no request.
//!
//! The sender posts letters ([`crate::mailbox`]) to the receivers' loops. Reports of a transaction's changes are posted
//! under the transaction's latches. So the reports of one key have the order of the commits.

use crate::blocking::Place;
use crate::command::event::{Class, Event};
use crate::common::Common;
use crate::engine::{Db, Epoch, PartitionSet};
use crate::mailbox::{Letter, Mailbox, Post};
use crate::notify;
use crate::pubsub::{Seat, Topic, Topics};
use crate::replies::Replies;
use crate::resp::reply::Out;
use crate::session::Session;
use crate::state::State;
use std::sync::Arc;

/// The clients that get a message.
#[derive(Debug)]
struct Audience {
    by_name: Vec<Seat>,
    by_pattern: Vec<(Box<[u8]>, Vec<Seat>)>,
}

impl Audience {
    fn of(topics: &Topics, topic: Topic, channel: &[u8]) -> Audience {
        let patterns = topic != Topic::Shard && topics.count(Topic::Pattern) > 0;
        let matching = patterns.then(|| topics.matching(channel));
        let by_pattern = matching
            .into_iter()
            .flatten()
            .map(|(pattern, seats)| (pattern.into(), seats.collect()))
            .collect();
        Audience {
            by_name: topics.listeners(topic, channel).collect(),
            by_pattern,
        }
    }

    fn count(&self) -> u64 {
        let by_pattern = self.by_pattern.iter().map(|(_, seats)| seats.len());
        let count = self.by_name.len() + by_pattern.sum::<usize>();
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

/// A message that a MULTI block or a script sends when it commits.
#[derive(Debug)]
pub(crate) struct Message {
    topic: Topic,
    channel: Box<[u8]>,
    text: Box<[u8]>,
    audience: Audience,
}

impl Message {
    /// Returns the number of clients that will get the message.
    pub(crate) fn count(&self) -> u64 {
        self.audience.count()
    }
}

impl Common {
    /// Informs observers of changes that are durable with `epoch`. `writer` is the client that made the changes. The
    /// caller holds the latches of the changed keys' partitions.
    pub(crate) fn tell(&self, events: &[Event], writer: Seat, epoch: Epoch) {
        for event in events {
            if event.class != Class::Miss {
                self.watches.touch(event.database, &event.key, epoch);
                self.key_changed(&event.key, writer, epoch);
                if self.scans.is_in_use() {
                    self.scans
                        .with(|scans| scans.touched(event.database, &event.key));
                }
            }
            let classes = self.published();
            if classes & event.class.bit() != 0 {
                let place = Place {
                    database: event.database,
                    key: &event.key,
                };
                self.publish_event(classes, place, event.name, epoch);
            }
        }
    }

    /// Informs observers of expired and removed keys. Clients that watch a key with WATCH are not informed, because
    /// for WATCH an expired key is already gone.
    pub(crate) fn tell_expired(&self, keys: &[(u8, Vec<u8>)], epoch: Epoch) {
        for (database, key) in keys {
            self.key_changed(key, Seat::NOBODY, epoch);
            let classes = self.published();
            if classes & notify::class::EXPIRED != 0 {
                let place = Place {
                    database: *database,
                    key,
                };
                self.publish_event(classes, place, "expired", epoch);
            }
        }
    }

    /// Returns whether any client gets reports of keys that have expired.
    pub(crate) fn hears_expired(&self) -> bool {
        let ends = || {
            let blocking = &self.blocking;
            blocking.is_in_use() && blocking.with(|blocking| blocking.any_ends())
        };
        self.published() & notify::class::EXPIRED != 0 || self.tracking.is_in_use() || ends()
    }

    fn publish_event(&self, classes: u16, place: Place<'_>, name: &str, epoch: Epoch) {
        for (channel, text) in notify::messages(classes, place.database, place.key, name) {
            self.publish(Topic::Channel, &channel, text, epoch);
        }
    }

    /// Sends a message to all clients that have subscribed to a channel by name or by pattern. Returns the number of
    /// these clients.
    pub(crate) fn publish(&self, topic: Topic, channel: &[u8], text: &[u8], epoch: Epoch) -> u64 {
        self.topics.with(|topics| {
            let message = Message {
                topic,
                channel: channel.into(),
                text: text.into(),
                audience: Audience::of(topics, topic, channel),
            };
            let count = message.count();
            self.send(message, epoch);
            count
        })
    }

    /// Returns a message that a MULTI block or a script sends when it commits. Its receivers are the clients that are
    /// subscribed now.
    pub(crate) fn message(&self, topic: Topic, channel: &[u8], text: &[u8]) -> Message {
        Message {
            topic,
            channel: channel.into(),
            text: text.into(),
            audience: self
                .topics
                .with(|topics| Audience::of(topics, topic, channel)),
        }
    }

    /// Sends the messages of a MULTI block or a script that has committed.
    pub(crate) fn send_deferred(&self, messages: Vec<Message>, epoch: Epoch) {
        if !messages.is_empty() {
            self.topics.with(|_| {
                messages
                    .into_iter()
                    .for_each(|message| self.send(message, epoch));
            });
        }
    }

    /// Posts a message to its receivers. The caller has locked the topics, so all receivers get the messages of a channel
    /// in one order.
    fn send(&self, message: Message, epoch: Epoch) {
        let Message {
            topic,
            channel,
            text,
            audience,
        } = message;
        let matched = audience.by_pattern.into_iter().map(|(pattern, seats)| {
            let (channel, text) = (channel.clone(), text.clone());
            let post = Post::Matched {
                pattern,
                channel,
                text,
            };
            (Arc::new(post), seats)
        });
        let matched: Vec<_> = matched.collect();
        let named = Arc::new(Post::Message {
            topic,
            channel,
            text,
        });
        for (post, seats) in std::iter::once((named, audience.by_name)).chain(matched) {
            for seat in seats {
                self.post(seat, &post, epoch);
            }
        }
    }
}

/// The client whose command runs or has just run. Its connection is in use, so its letters are written here.
pub(crate) struct InUse<'a> {
    /// The client's session.
    pub session: &'a mut Session,
    /// The bytes to which letters to the client are appended.
    pub to: &'a mut Vec<u8>,
}

impl State {
    /// Returns the mailbox of this loop.
    #[inline]
    pub(crate) fn mailbox(&self) -> &Mailbox {
        self.common.mailbox(self.event_loop)
    }

    /// Returns whether letters wait for delivery, or clients wait to be tried again.
    #[inline]
    fn has_mail(&self) -> bool {
        !self.mailbox().is_empty() || !self.try_again.is_empty()
    }

    /// Delivers the letters to this loop's clients.
    #[inline]
    pub(crate) fn read_mail(&mut self) {
        if self.has_mail() {
            self.deliver(None);
        }
    }

    /// Delivers the letters to this loop's clients, while the connection of one client is in use. The letters to this
    /// client follow its reply, and wait for their writes.
    #[inline]
    pub(crate) fn read_mail_behind(&mut self, session: &mut Session, replies: &mut Replies) {
        if !self.has_mail() {
            return;
        }
        let to = &mut replies.buf;
        if let Some(epoch) = self.deliver(Some(InUse { session, to })) {
            replies.seal(session.rest(epoch), self.reached);
        }
    }

    /// Delivers letters until the mailbox is empty. Returns the newest epoch of the letters to the reader. `None`: there
    /// were no letters to it.
    #[cold]
    pub(crate) fn deliver(&mut self, mut reader: Option<InUse<'_>>) -> Option<Epoch> {
        let (mut letters, mut newest, mut early) = (Vec::new(), None, Vec::new());
        let room = self.own_bytes_max();
        let begin = reader.as_ref().map_or(0, |reader| reader.to.len());
        while !self.mailbox().is_empty() {
            self.mailbox().take(&mut letters);
            for letter in letters.drain(..) {
                if let Post::TryAgain(places) = &*letter.post {
                    self.try_again.extend_from_slice(places);
                    continue;
                }
                match &mut reader {
                    // The client has just begun to wait, and its command has not ended yet.
                    Some(InUse { session, .. })
                        if session.seat == letter.to && letter.post.ends_wait() =>
                    {
                        early.push(letter);
                    }
                    Some(InUse { session, to }) if session.seat == letter.to => {
                        // The unread letters exceed the limit, so the client will be disconnected. No more are kept.
                        let before = to.len();
                        if before.saturating_sub(begin) < room {
                            self.write(&letter, session, to);
                        }
                        if to.len() > before {
                            newest = newest.max(Some(letter.epoch));
                        }
                    }
                    _ => self.append(&letter),
                }
            }
        }
        let places = self.take_free_places();
        if !places.is_empty() {
            crate::command::wait::serve(self, &places);
            newest = newest.max(self.deliver(reader));
        }
        for letter in early {
            self.mailbox().put(letter);
        }
        newest
    }

    /// Takes the keys whose waiting clients are to be served, except those that a long transaction holds.
    fn take_free_places(&mut self) -> Vec<(u8, Box<[u8]>)> {
        let (landings, mut places) = (
            self.common.flights.landings(),
            std::mem::take(&mut self.try_again),
        );
        if self.common.flights.any() {
            let mut held = Vec::new();
            for (database, key) in std::mem::take(&mut places) {
                let of_key = |db: &Db| std::iter::once(db.partition_of(&key)).collect();
                let partitions = self.db().map(of_key).unwrap_or_else(PartitionSet::empty);
                let is_held = self.common.flights.holds(&partitions);
                if is_held {
                    self.want(&partitions, landings);
                }
                let to = if is_held { &mut held } else { &mut places };
                to.push((database, key));
            }
            self.try_again = held;
        }
        places
    }

    /// Appends a letter to the replies of its receiver. If the receiver is gone, reports that to the client whose
    /// REDIRECT named the receiver.
    pub(crate) fn append(&mut self, letter: &Letter) {
        if self.beside.keep_letter(letter) {
            return;
        }
        let index = letter.to.index;
        let Some(mut connection) = self.connections.take(index) else {
            return self.return_letter(letter);
        };
        if connection.session.seat == letter.to && !connection.doomed {
            if self.end_wait(letter, &mut connection) {
                return self.connections.put(index, connection);
            }
            let before = connection.replies.buf.len();
            self.write(letter, &connection.session, &mut connection.replies.buf);
            if connection.replies.buf.len() > before {
                let rest = connection.session.rest(letter.epoch);
                connection.replies.seal(rest, self.reached);
                connection.account(self);
                connection.check_output(self);
                self.touch(index);
            }
        } else {
            self.return_letter(letter);
        }
        self.connections.put(index, connection);
    }

    /// Writes a letter for its receiver.
    fn write(&self, letter: &Letter, session: &Session, to: &mut Vec<u8>) {
        debug_assert_eq!(session.seat, letter.to, "a letter is for its receiver");
        debug_assert!(!letter.post.ends_wait(), "`end_wait` handles these");
        // A client that speaks RESP2 would take a message for a reply.
        let is_message = matches!(*letter.post, Post::Message { .. } | Post::Matched { .. });
        if is_message && !session.resp3 && session.subscriptions.is_none() {
            return;
        }
        let mut out = Out::new(to, session.resp3);
        match &*letter.post {
            Post::Message {
                topic,
                channel,
                text,
            } => {
                let word: &[u8] = match topic {
                    Topic::Shard => b"smessage",
                    Topic::Channel | Topic::Pattern => b"message",
                };
                write_words(&mut out, &[word, channel, text]);
            }
            Post::Matched {
                pattern,
                channel,
                text,
            } => write_words(&mut out, &[b"pmessage", pattern, channel, text]),
            Post::Line(line) => out.simple(line),
            Post::Changed { .. } => self.write_changed(session, letter, &mut out),
            Post::Redirected { keys, .. } => {
                crate::tracking::write_redirected(session, keys.as_deref(), &mut out);
            }
            Post::RedirectGone { id } => crate::tracking::write_gone(*id, &mut out),
            // These letters are for clients that wait, and are handled before.
            Post::Answer { .. } | Post::Denied(_) | Post::Gone(_) => {}
            Post::Refused(_) | Post::TryAgain(_) => {}
        }
    }

    /// Tries again to serve the clients that wait for these keys. The command beside the loop may hold the latches of
    /// these keys. So the clients are tried only when that command has ended.
    pub(crate) fn try_waiting(&mut self, keys: Vec<(u8, Vec<u8>)>) {
        if !self.common.blocking.is_in_use() {
            return;
        }
        self.common.blocking.with(|blocking| {
            let waited = keys
                .into_iter()
                .filter(|(database, key)| blocking.waits_for(*database, key));
            let waited = waited.map(|(database, key)| (database, key.into_boxed_slice()));
            self.try_again.extend(waited);
        });
        self.read_mail();
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

fn write_words(out: &mut Out<'_>, words: &[&[u8]]) {
    out.push(words.len());
    words.iter().for_each(|word| out.bulk(word));
}
