//! The writer's connection to one node: handshake, rings, and the sending of blocks.
//!
//! ```text
//! down ──connect──► greeting ──welcome──► ready          any ──break──► down
//! ```
//! Replies come in the order of the requests. A link with an unanswered request is *waiting*. Its wait began when the
//! oldest unanswered request was sent, or at the last answer if that came later.
//!
//! # Invariants
//! * A position counts as held only if a reply of this incarnation of the node has reported it. A held position is
//!   never above the position that was sent.
//! * If the connection breaks, the link remembers the node's incarnation and the positions that this incarnation holds.
//!
//! A node on the writer's machine offers a second connection, over which the node shares its memory ([`Net::local`]).
//! When the link knows the node's identity, the link changes to that connection. The writer then writes blocks directly
//! into the node's memory. A block in this memory counts as held if the node's process has not ended and has not closed
//! the ring: see docs/formats/logd.md.

mod home;
mod sending;
mod spoiled;

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{Pos, StreamId};

use crate::auth::Nonce;
use crate::handshake::{Caller, Greeted, Handshake, Identity};
use crate::ids::{Generation, NodeInc};
use crate::mapped::Writing;
use crate::message::{Held, Reason, Refused, Reply, Request};
use crate::net::{Connection, Net, Sent};
use crate::shared::Shared;
use home::HomeTry;

/// The interval between checks of an idle connection, nanoseconds. The check finds out whether the connection has
/// ended.
const LOOK_NS: u64 = 1_000_000;

/// The minimum time between two messages to an operator about different troubles of one node, nanoseconds.
const NEWS_NS: u64 = 1_000_000_000;

enum Stage {
    Down,
    Greeting(Handshake),
    Ready,
}

/// The progress of one stream at the node.
#[derive(Clone, Copy)]
enum Progress {
    /// The node was not asked to open the ring.
    Closed,
    /// The node was asked to open the ring and has not answered.
    Opening,
    /// The ring is open. Blocks up to position `sent` were sent, and the node holds the blocks up to position `held`.
    Open { sent: Pos, held: Pos },
}

/// A connection to a node, or the intent to connect.
pub(crate) struct Link {
    pub address: String,
    connection: Option<Box<dyn Connection>>,
    stage: Stage,
    identity: Option<Identity>,
    streams: Vec<Progress>,
    /// The rings in the node's memory that this link writes to. `None`: the stream's blocks are sent.
    mapped: Vec<Option<Writing>>,
    /// True if the node shares its memory over the connection.
    is_local: bool,
    /// The last attempt to switch to the node's shared memory.
    home_try: Option<HomeTry>,
    /// For each stream, the end of the part that the incarnation in `identity` holds. This position stays known after a
    /// connection breaks.
    held: Vec<Pos>,
    /// For each stream, the sequence number of the damage report on the stream's ring in this incarnation. `None`: the
    /// ring is not spoiled. 0: the writer has found the damage; nodes never use this number. A spoiled ring is not
    /// opened before the node has renewed the ring.
    spoiled: Vec<Option<u64>>,
    /// True if a view that may be in force has this incarnation as a member. Only kept up to date while a ring is
    /// spoiled.
    pub is_counted: bool,
    /// The number of requests that the node has not answered.
    awaited: u32,
    /// The time at which the wait for the next answer began, nanoseconds. If all requests are answered, it is the time
    /// of the node's last answer.
    since_ns: u64,
    /// The time of the last check of the connection, nanoseconds.
    looked_ns: u64,
    /// The time since which the link has had no ready connection, nanoseconds.
    down_ns: u64,
    /// The time of the last attempt to connect, nanoseconds.
    tried_ns: Option<u64>,
    /// The reason why the link is not connected.
    pub trouble: Option<String>,
    /// The highest generation that the node has reported.
    pub seen: Generation,
    /// The trouble in the last report to an operator, and the time of the report.
    told: Option<(String, u64)>,
}

impl Link {
    pub fn new(address: String, streams: u8) -> Link {
        Link {
            address,
            connection: None,
            stage: Stage::Down,
            identity: None,
            streams: vec![Progress::Closed; usize::from(streams)],
            mapped: (0..streams).map(|_| None).collect(),
            is_local: false,
            home_try: None,
            held: vec![Pos(0); usize::from(streams)],
            spoiled: vec![None; usize::from(streams)],
            is_counted: true,
            awaited: 0,
            since_ns: 0,
            looked_ns: 0,
            down_ns: 0,
            tried_ns: None,
            trouble: None,
            seen: Generation(0),
            told: None,
        }
    }

    /// Returns a message for an operator: a new trouble of the node, or the end of its trouble. `None`: nothing has
    /// changed.
    pub fn take_news(&mut self, now_ns: u64) -> Option<String> {
        let told = self.told.as_ref();
        match &self.trouble {
            Some(why) if told.is_none_or(|(last, at)| last != why && now_ns >= at + NEWS_NS) => {
                self.told = Some((why.clone(), now_ns));
                Some(format!("node {}: {why}", self.address))
            }
            None if self.is_ready() => {
                self.told.take()?;
                Some(format!("node {} takes blocks", self.address))
            }
            _ => None,
        }
    }

    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    pub fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready)
    }

    /// Returns the position up to which the node is known to hold a stream.
    pub fn held(&self, stream: StreamId) -> Pos {
        self.held[usize::from(stream.0)]
    }

    /// Returns whether the ring of the stream is open and the node holds the stream up to `pos`.
    pub fn holds(&self, stream: StreamId, pos: Pos) -> bool {
        let progress = self.streams[usize::from(stream.0)];
        matches!(progress, Progress::Open { held, .. } if held >= pos)
    }

    /// Returns the time at which the node's silence began, nanoseconds. The node is silent if the link waits for an
    /// answer, or if the link has no ready connection. `None`: the node is not silent.
    pub fn silent_since_ns(&self) -> Option<u64> {
        match self.is_ready() {
            true => (self.awaited > 0).then_some(self.since_ns),
            false => Some(self.down_ns),
        }
    }

    /// Returns the time of the next attempt to connect. `None`: the link has a connection.
    pub fn due_ns(&self, retry_ns: u64) -> Option<u64> {
        if self.connection.is_some() {
            return None;
        }
        Some(self.tried_ns.map_or(0, |tried| tried + retry_ns))
    }

    /// Begins to connect.
    pub fn connect(&mut self, net: &dyn Net, caller: &Caller, nonce: Nonce, now_ns: u64) {
        assert!(self.connection.is_none(), "a link has one connection");
        self.tried_ns = Some(now_ns);
        match net.connect(&self.address) {
            Ok(connection) => {
                self.is_local = false;
                self.greet(connection, caller, nonce, now_ns);
            }
            Err(error) => self.trouble = Some(error.to_string()),
        }
    }

    fn greet(
        &mut self,
        connection: Box<dyn Connection>,
        caller: &Caller,
        nonce: Nonce,
        now_ns: u64,
    ) {
        let handshake = Handshake::new(nonce);
        let hello = handshake.hello(caller);
        self.connection = Some(connection);
        self.stage = Stage::Greeting(handshake);
        self.awaited = 0;
        self.say(&hello, now_ns);
    }

    fn break_off(&mut self, why: String, now_ns: u64) {
        if self.is_ready() {
            self.down_ns = now_ns;
        }
        self.connection = None;
        self.stage = Stage::Down;
        self.awaited = 0;
        self.streams.fill(Progress::Closed);
        self.mapped.fill_with(|| None);
        assert!(!why.is_empty(), "a break has a reason");
        self.trouble = Some(why);
    }

    /// Sends a request. Returns whether the connection took it.
    fn say(&mut self, request: &Request<'_>, now_ns: u64) -> bool {
        let Some(connection) = &mut self.connection else {
            return false;
        };
        match connection.send(&request.head(), request.tail()) {
            Ok(Sent::Yes) => {
                if self.awaited == 0 {
                    self.since_ns = now_ns;
                }
                self.awaited += 1;
                true
            }
            Ok(Sent::Full) => false,
            Err(why) => {
                self.break_off(why, now_ns);
                false
            }
        }
    }

    /// Returns whether the link must look for replies now. It must if a request is unanswered, or if it is time to
    /// check whether the connection has ended.
    pub fn is_looked_at(&self, now_ns: u64) -> bool {
        self.awaited > 0 || now_ns >= self.looked_ns + LOOK_NS
    }

    /// Returns whether the stream's blocks are written directly into the node's memory.
    pub fn is_written(&self, stream: StreamId) -> bool {
        self.mapped[usize::from(stream.0)].is_some()
    }

    /// Reads the node's replies. `ends` has the end of each stream's tail. Returns whether a reply has arrived.
    pub fn receive(&mut self, caller: &Caller, ends: &[Pos], now_ns: u64) -> bool {
        self.looked_ns = now_ns;
        let mut heard = false;
        while let Some(connection) = &mut self.connection {
            let frame = match connection.receive() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) if armed(Flaw::DeadRingCounts) && self.has_mapped() => break,
                Err(why) => {
                    self.break_off(why, now_ns);
                    break;
                }
            };
            heard = true;
            let taken = match Reply::decode(&frame) {
                Ok(Reply::Mapped(held, bytes)) => match connection.memory() {
                    Some(memory) if to_u64(memory.len()) == bytes => {
                        let heard = self.hear(now_ns);
                        heard.and_then(|()| self.take_mapped(&held, memory, caller, ends))
                    }
                    _ => Err("the node shares memory that has not come".into()),
                },
                Ok(reply) => self.take(reply, caller, ends, now_ns),
                Err(malformed) => Err(format!("the node sends {malformed}")),
            };
            if let Err(why) = taken {
                self.break_off(why, now_ns);
            }
        }
        heard
    }

    /// Notes that the node has answered a request.
    fn hear(&mut self, now_ns: u64) -> Result<(), String> {
        if self.awaited == 0 {
            return Err("the node sent an answer to no question".into());
        }
        self.awaited -= 1;
        self.since_ns = now_ns;
        Ok(())
    }

    /// Takes a ring in the node's memory. The link writes to it from now on.
    fn take_mapped(
        &mut self,
        held: &Held,
        memory: Arc<dyn Shared>,
        caller: &Caller,
        ends: &[Pos],
    ) -> Result<(), String> {
        let at = usize::from(held.ring.stream.0);
        let is_asked = matches!(self.streams.get(at), Some(Progress::Opening));
        if !self.is_ready() || !is_asked {
            return Err("the node maps a ring that was not asked for".into());
        }
        self.note_held(held, caller, ends)?;
        let ring = Writing::new(memory)?;
        if ring.end() != held.ring.end {
            return Err("the node shares memory that holds something else".into());
        }
        self.mapped[at] = Some(ring);
        Ok(())
    }

    fn take(
        &mut self,
        reply: Reply<'_>,
        caller: &Caller,
        ends: &[Pos],
        now_ns: u64,
    ) -> Result<(), String> {
        self.hear(now_ns)?;
        if let Stage::Greeting(handshake) = &mut self.stage {
            let greeted = handshake.take(&reply, caller)?;
            self.greeted(&greeted, now_ns);
            return Ok(());
        }
        match reply {
            Reply::Held(held) => self.note_held(&held, caller, ends),
            Reply::Pong { inc } | Reply::Retired { inc, .. } => self.check_inc(inc),
            Reply::Spoiled {
                inc,
                generation,
                stream,
                damage,
            } => {
                self.check_inc(inc)?;
                let at = usize::from(stream.0);
                let is_asked = matches!(self.streams.get(at), Some(Progress::Opening));
                if !is_asked || generation != caller.generation || damage == 0 {
                    return Err("the node reports damage in a ring that was not asked for".into());
                }
                self.spoil(at, damage);
                Ok(())
            }
            Reply::Refused(refused) => self.refused(refused),
            reply => Err(format!("the node sent an unexpected answer: {reply:?}")),
        }
    }

    fn greeted(&mut self, greeted: &Greeted, now_ns: u64) {
        match greeted {
            Greeted::Say(request) => {
                self.say(request, now_ns);
            }
            Greeted::Ready(identity, seen) => {
                if self
                    .identity
                    .is_none_or(|before| before.inc != identity.inc)
                    && !armed(Flaw::HeldByOldStart)
                {
                    self.held.fill(Pos(0));
                    self.spoiled.fill(None);
                }
                assert!(self.awaited == 0, "a greeting has one request on the way");
                self.identity = Some(*identity);
                self.seen = self.seen.max(*seen);
                self.stage = Stage::Ready;
                self.trouble = None;
            }
        }
    }

    fn check_inc(&self, inc: NodeInc) -> Result<(), String> {
        match self.identity {
            Some(identity) if identity.inc == inc => Ok(()),
            _ => Err(format!("the node was restarted, or is another node: {inc}")),
        }
    }

    fn note_held(&mut self, reply: &Held, caller: &Caller, ends: &[Pos]) -> Result<(), String> {
        self.check_inc(reply.inc)?;
        let ring = reply.ring;
        let at = usize::from(ring.stream.0);
        if ring.generation != caller.generation || at >= self.streams.len() {
            return Err("the node answers for another ring".into());
        }
        if matches!(self.streams[at], Progress::Opening) {
            if self.spoiled[at].take().is_some() {
                // The node has made the ring anew. The ring holds nothing, and the next `send` opens it.
                self.streams[at] = Progress::Closed;
                if !self.is_spoiled() {
                    self.trouble = None;
                }
                return Ok(());
            }
            if ring.end < self.held[at] && !armed(Flaw::HeldByOldStart) {
                self.spoil(at, 0);
                return Ok(());
            }
        }
        let sent = match self.streams[at] {
            // `send` continues where the node's ring ends.
            Progress::Opening if ring.end <= ends[at] => ring.end,
            Progress::Opening => {
                let (holds, end) = (ring.end, ends[at]);
                return Err(format!(
                    "the node claims {holds} of a stream that ends at {end}"
                ));
            }
            Progress::Open { sent, .. } => sent,
            Progress::Closed => return Err("the node has a ring that was not asked for".into()),
        };
        if ring.end > sent {
            return Err(format!("the node claims {}, but {sent} was sent", ring.end));
        }
        self.streams[at] = Progress::Open {
            sent,
            held: ring.end,
        };
        assert!(ring.end <= sent, "what is held was sent");
        self.held[at] = self.held[at].max(ring.end);
        Ok(())
    }

    fn refused(&mut self, refused: Refused) -> Result<(), String> {
        self.seen = self.seen.max(refused.generation);
        match refused.reason {
            // A takeover has replaced this writer. The caller finds the new generation in the view.
            Reason::Generation => Err(refused.text),
            // The next `send` asks for the ring again, and the node's reply says where the ring ends.
            Reason::Position | Reason::NoRing | Reason::Full => Err(refused.text),
            Reason::Version
            | Reason::Key
            | Reason::Memory
            | Reason::Malformed
            | Reason::Damaged => Err(format!("the node refuses: {}", refused.text)),
        }
    }

    /// Sends a ping to a node after `ping_ns` of idle time.
    pub fn ping(&mut self, ping_ns: u64, now_ns: u64) {
        if self.is_ready() && self.awaited == 0 && now_ns >= self.since_ns + ping_ns {
            self.say(&Request::Ping, now_ns);
        }
    }

    /// Asks the node to drop the rings of earlier writers. Returns whether the connection took the request.
    pub fn retire(&mut self, caller: &Caller, now_ns: u64) -> bool {
        let generation = caller.generation;
        self.is_ready() && self.say(&Request::Retire { generation }, now_ns)
    }
}
