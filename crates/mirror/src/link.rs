//! The writer's connection to one node: greeting, rings, blocks on their way.
//!
//! ```text
//! down ──connect──► greeting ──welcome──► ready          any ──break──► down
//! ```
//! Replies come in the order of the requests. So the node is *waited for* since the first request that it has not
//! answered, or since its last answer, whichever is later.
//!
//! # Invariants
//! * A position counts as held if a reply of this incarnation of the node said so. It is at most the position that was
//!   sent.
//! * A link that breaks keeps its knowledge of the incarnation that it had.
//!
//! A node on the writer's machine is reached by a second way, which passes memory ([`Net::local`]). The link moves to
//! it once it knows the node's identity. Blocks are then written into the node's memory. They are held if the node has
//! not closed the ring and its process has not ended: see docs/formats/logd.md.

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

/// The interval at which the connection of a node that owes nothing is checked for its end, nanoseconds.
const LOOK_NS: u64 = 1_000_000;

/// The least time before an operator hears of another trouble of a node, nanoseconds.
const NEWS_NS: u64 = 1_000_000_000;

enum Stage {
    Down,
    Greeting(Handshake),
    Ready,
}

/// The progress of a stream at the node.
#[derive(Clone, Copy)]
enum Progress {
    /// The ring was not asked for.
    Closed,
    /// The ring was asked for, and the node has not answered.
    Opening,
    /// Blocks are sent. The fields are the positions that were sent and that are held.
    Open { sent: Pos, held: Pos },
}

/// A connection to a node, or the intent to connect.
pub(crate) struct Link {
    pub address: String,
    connection: Option<Box<dyn Connection>>,
    stage: Stage,
    identity: Option<Identity>,
    streams: Vec<Progress>,
    /// The rings that are written in the node's memory.
    mapped: Vec<Option<Writing>>,
    /// True if the connection passes memory.
    is_local: bool,
    /// The last try to move to the node's memory.
    home_try: Option<HomeTry>,
    /// The position of each stream that the incarnation in `identity` is known to hold, across breaks.
    held: Vec<Pos>,
    /// The streams whose rings at this incarnation are spoiled, each with the number of the damage. 0 is not a node's
    /// number: the writer has found that damage. Such a ring is not opened before it is made anew.
    spoiled: Vec<Option<u64>>,
    /// True if a view that may be in force counts the incarnation. Kept up to date while a ring is spoiled.
    pub is_counted: bool,
    /// The number of requests that the node has not answered.
    awaited: u32,
    /// The time since which the node is waited for, or at which it was last heard, nanoseconds.
    since_ns: u64,
    /// The time at which the connection was last checked, nanoseconds.
    looked_ns: u64,
    /// The time since which no connection is ready, nanoseconds.
    down_ns: u64,
    /// The time of the last try to connect, nanoseconds.
    tried_ns: Option<u64>,
    /// The reason why the link is not connected.
    pub trouble: Option<String>,
    /// The highest generation that the node has said it has seen.
    pub seen: Generation,
    /// The trouble that was last reported, and the time of the report.
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

    /// Returns the news of the node for an operator: another trouble than the last one, or the end of a trouble.
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

    /// Returns the position of a stream that the node is known to hold.
    pub fn held(&self, stream: StreamId) -> Pos {
        self.held[usize::from(stream.0)]
    }

    /// Returns whether the stream's ring is open, and everything that was sent up to `pos` is held.
    pub fn holds(&self, stream: StreamId, pos: Pos) -> bool {
        let progress = self.streams[usize::from(stream.0)];
        matches!(progress, Progress::Open { held, .. } if held >= pos)
    }

    /// Returns the time since which the node has been silent although it was asked, or has had no connection. `None`:
    /// it owes nothing.
    pub fn silent_since_ns(&self) -> Option<u64> {
        match self.is_ready() {
            true => (self.awaited > 0).then_some(self.since_ns),
            false => Some(self.down_ns),
        }
    }

    /// Returns the time of the next try to connect. `None`: the link has a connection.
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

    /// Sends a request. Returns whether it is on its way.
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

    /// Returns whether the connection is to be checked: a reply is expected, or it is time to see whether it still
    /// stands.
    pub fn is_looked_at(&self, now_ns: u64) -> bool {
        self.awaited > 0 || now_ns >= self.looked_ns + LOOK_NS
    }

    /// Returns whether a stream's blocks are written into the node's memory.
    pub fn is_written(&self, stream: StreamId) -> bool {
        self.mapped[usize::from(stream.0)].is_some()
    }

    /// Takes the node's replies; the streams were shipped up to `ends`. Returns whether a reply has arrived.
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

    /// Notes that the node has answered.
    fn hear(&mut self, now_ns: u64) -> Result<(), String> {
        if self.awaited == 0 {
            return Err("the node sent an answer to no question".into());
        }
        self.awaited -= 1;
        self.since_ns = now_ns;
        Ok(())
    }

    /// Takes a ring in the node's memory, to be written from now on.
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
                // The ring was made anew. It is opened now as one that holds nothing.
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
            // Sending continues at the end of the node's ring; see `send`.
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
            // The takeover's generation is in the view, which the caller reads.
            Reason::Generation => Err(refused.text),
            // The next send opens the ring again, and learns its end.
            Reason::Position | Reason::NoRing | Reason::Full => Err(refused.text),
            Reason::Version
            | Reason::Key
            | Reason::Memory
            | Reason::Malformed
            | Reason::Damaged => Err(format!("the node refuses: {}", refused.text)),
        }
    }

    /// Asks an idle node whether it lives.
    pub fn ping(&mut self, ping_ns: u64, now_ns: u64) {
        if self.is_ready() && self.awaited == 0 && now_ns >= self.since_ns + ping_ns {
            self.say(&Request::Ping, now_ns);
        }
    }

    /// Asks the node to drop the rings of writers before this one. Returns whether the request is on its way.
    pub fn retire(&mut self, caller: &Caller, now_ns: u64) -> bool {
        let generation = caller.generation;
        self.is_ready() && self.say(&Request::Retire { generation }, now_ns)
    }
}
