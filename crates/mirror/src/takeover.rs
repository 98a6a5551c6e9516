//! The takeover: a process replaces the writer, seals the nodes, and fetches the bytes that may be only in the nodes.
//!
//! ```text
//! claim: gen + 1 in the arbiter ──► seal the nodes of each mirror ──► read their rings ──► drain (perdura_wal)
//! ```
//! Then the ordinary restart runs, which needs no nodes. The nodes keep the rings until the new writer sends *retire*.
//! It sends *retire* when the anchor names the life of the new writer. So a takeover may be interrupted at any point.
//! The next takeover finds the bytes again, even in another process. A *mirror* below is a group in mode Mirror.
//!
//! # Invariants
//! * A node is sealed before it is read. So a replaced writer cannot add bytes after the read.
//! * A node counts only if the node's incarnation is in the view. A rebooted node has a new incarnation and holds
//!   nothing.
//! * One node of each mirror is enough, because each of the two holds all acknowledged bytes.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::{to_u32, to_u64};
use perdura_base::{Epoch, Error, Incarnation, Pos, Result, StreamId, Uuid};

use crate::auth::{Key, Nonce};
use crate::handshake::{Caller, Greeted, Handshake, Identity};
use crate::ids::Generation;
use crate::message::{READ_BYTES_MAX, Reason, Reply, Request, RingState};
use crate::net::{Connection, Net, Sent};
use crate::register::{Register, Swap};
use crate::view::{Member, Mode, View};

/// A process that becomes the writer.
#[derive(Debug, Clone)]
pub struct Claimant {
    /// The identity of the database.
    pub uuid: Uuid,
    /// A random number that identifies the process.
    pub writer: u64,
    /// The wall clock, microseconds since 1970.
    pub wall_us: u64,
    /// The number of groups that are configured.
    pub groups: u8,
    /// The number of the log's streams.
    pub streams: u8,
}

/// A state machine that raises the generation in the arbiter. A step takes at most two operations of the arbiter.
pub struct Claim {
    by: Claimant,
    tried: Option<View>,
}

impl Claim {
    /// Returns a claim that has not begun.
    #[must_use]
    pub fn new(by: Claimant) -> Claim {
        Claim { by, tried: None }
    }

    /// Takes a step. Returns the claimed view once the arbiter has stored it; `None` before. The claimed view is the
    /// previous view with a higher generation. If there was no view, all groups are in mode Disk.
    ///
    /// # Errors
    /// Errors of the arbiter. The step may then be repeated.
    pub fn step(&mut self, register: &mut dyn Register) -> Result<Option<View>> {
        if let Some(tried) = self.tried.clone() {
            match register.replace(&tried) {
                Ok(Swap::Done) => return Ok(Some(tried)),
                // Either an earlier attempt of this claim has stored the view, or another process has stored one.
                Ok(Swap::Lost) => {
                    let now = register.read()?;
                    self.tried = None;
                    return Ok(now.filter(|now| *now == tried));
                }
                Err(error) => return Err(error),
            }
        }
        let next = match register.read()? {
            Some(before) => View {
                v: before.v + 1,
                generation: Generation(match armed(Flaw::GenerationKept) {
                    true => before.generation.0,
                    false => before.generation.0 + 1,
                }),
                writer: self.by.writer,
                wall_us: self.by.wall_us,
                ..before
            },
            None => View {
                uuid: self.by.uuid,
                v: 1,
                generation: Generation(1),
                writer: self.by.writer,
                rings: Generation(1),
                life: Incarnation(0),
                hard: Epoch(0),
                wall_us: self.by.wall_us,
                groups: vec![Mode::Disk; usize::from(self.by.groups)],
                homes: (0..self.by.streams)
                    .map(|stream| stream % self.by.groups)
                    .collect(),
            },
        };
        assert!(
            next.rings <= next.generation && next.writer == self.by.writer,
            "a claim changes the writer alone"
        );
        self.tried = Some(next);
        Ok(None)
    }
}

/// Returns the first view of a writer's life. The writer stores this view after the anchor names the life. The view
/// has as many groups as are configured, all in mode Disk.
#[must_use]
pub fn beginning_view(claimed: &View, by: &Claimant, life: Incarnation, hard: Epoch) -> View {
    assert!(
        claimed.writer == by.writer && claimed.uuid == by.uuid,
        "the process that claimed the view begins"
    );
    View {
        v: claimed.v + 1,
        rings: claimed.generation,
        life,
        hard,
        wall_us: by.wall_us,
        groups: vec![Mode::Disk; usize::from(by.groups)],
        homes: (0..by.streams).map(|stream| stream % by.groups).collect(),
        ..claimed.clone()
    }
}

/// Bytes of a stream that a node has returned. They are empty if the node has no needed byte. All earlier bytes are on
/// the writer's disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The address of the node.
    pub holder: String,
    /// The position of the first byte.
    pub from: Pos,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The waiting times of a takeover.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The time that a takeover waits for one node of a mirror after the other node was sealed, in nanoseconds.
    pub other_ns: u64,
    /// The time limit for one node of each mirror to return all acknowledged bytes, nanoseconds.
    pub all_ns: u64,
    /// The time between two attempts to connect to a node, nanoseconds.
    pub retry_ns: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            other_ns: 300_000_000,
            all_ns: 10_000_000_000,
            retry_ns: 100_000_000,
        }
    }
}

/// The result of a step of [`Fetch`].
#[derive(Debug, PartialEq, Eq)]
pub enum Fetched {
    /// A frame was sent or received. Another step may follow at once.
    Step,
    /// Nothing was sent or received. The takeover waits for nodes.
    Waits,
    /// For each stream, the bytes that the nodes have returned.
    All(Vec<Vec<Kept>>),
}

/// A state machine that seals the nodes of a view and reads the nodes' bytes.
pub struct Fetch {
    view: View,
    caller: Caller,
    net: Arc<dyn Net>,
    patience: Patience,
    /// For each stream, the position of the first needed byte. The disk holds the bytes before this position.
    from: Vec<Pos>,
    /// True if the takeover continues although some acknowledged bytes cannot be fetched.
    accept_loss: bool,
    lacks: Option<Error>,
    groups: Vec<(usize, [Visit; 2])>,
    begun_ns: Option<u64>,
    random: Box<dyn FnMut() -> u64 + Send>,
}

/// A node that is to be sealed and read.
struct Visit {
    member: Member,
    connection: Option<Box<dyn Connection>>,
    tried_ns: Option<u64>,
    stage: Stage,
    trouble: Option<String>,
    /// The time of the node's seal. `None`: the node is not sealed.
    sealed_ns: Option<u64>,
    /// True if the node has lost bytes that it had accepted. The takeover uses the bytes that are left, but they are
    /// not enough.
    is_damaged: bool,
    /// True if the node returns bytes from its copy on disk, the *hard copy*.
    is_recalled: bool,
    kept: Vec<(StreamId, Kept, Pos)>,
}

enum Stage {
    Down,
    Greeting(Handshake),
    Sealing,
    /// The ring at this index of `kept` is being read.
    Reading(usize),
    Done,
    /// The node has restarted and holds no bytes that are needed.
    Empty,
}

impl Fetch {
    /// Begins to fetch from the members of `view`, the claimed view. `from` has the position of the first needed byte
    /// of each stream.
    #[must_use]
    pub fn new(
        view: View,
        key: Key,
        net: Arc<dyn Net>,
        patience: Patience,
        from: Vec<Pos>,
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Fetch {
        assert_eq!(view.homes.len(), from.len(), "a position for each stream");
        let visit = |member: &Member| Visit {
            member: member.clone(),
            connection: None,
            tried_ns: None,
            stage: Stage::Down,
            trouble: None,
            sealed_ns: None,
            is_damaged: false,
            is_recalled: false,
            kept: Vec::new(),
        };
        let mut groups = Vec::new();
        for (number, mode) in view.groups.iter().enumerate() {
            let serves = view.homes.iter().any(|home| usize::from(*home) == number);
            if let Mode::Mirror(members) = mode
                && serves
            {
                groups.push((number, [visit(&members[0]), visit(&members[1])]));
            }
        }
        Fetch {
            caller: Caller {
                uuid: view.uuid,
                generation: view.generation,
                key,
                ring_bytes_min: 0,
            },
            view,
            net,
            patience,
            from,
            accept_loss: false,
            lacks: None,
            groups,
            begun_ns: None,
            random,
        }
    }

    /// Sets whether the takeover continues if no node of a mirror holds all acknowledged bytes. The takeover then uses
    /// all bytes that it can reach. These include the bytes that earlier starts of a node have left on the node's disk.
    #[must_use]
    pub fn accepting_loss(mut self, accept_loss: bool) -> Fetch {
        self.accept_loss = accept_loss;
        self
    }

    /// Takes the reason why acknowledged bytes may be missing from the fetched bytes. `None`: no bytes are missing.
    pub fn take_lacks(&mut self) -> Option<Error> {
        self.lacks.take()
    }

    /// Takes a step. Does not block.
    ///
    /// # Errors
    /// [`Error::Usage`] if no node of a mirror holds all acknowledged bytes, or no such node answers in time. The bytes
    /// are lost unless a node that holds them becomes reachable again. If the loss is accepted, there is no error.
    pub fn step(&mut self, now_ns: u64) -> Result<Fetched> {
        let begun_ns = *self.begun_ns.get_or_insert(now_ns);
        let mut moved = false;
        for (number, visits) in &mut self.groups {
            for visit in visits.iter_mut() {
                let mut context = Context {
                    view: &self.view,
                    caller: &self.caller,
                    net: self.net.as_ref(),
                    from: &self.from,
                    group: *number,
                    accept_loss: self.accept_loss,
                    retry_ns: self.patience.retry_ns,
                    now_ns,
                };
                moved |= visit.step(&mut context, &mut self.random);
            }
        }
        if moved {
            return Ok(Fetched::Step);
        }
        let over = now_ns >= begun_ns + self.patience.all_ns;
        for (number, visits) in &self.groups {
            let has_one = visits.iter().any(Visit::suffices);
            let lost = !has_one && visits.iter().all(Visit::is_settled);
            if lost || (over && !has_one) {
                let error = no_node(*number, visits);
                if !self.accept_loss {
                    return Err(error);
                }
                self.lacks.get_or_insert(error);
                continue;
            }
            let sealed = visits.iter().filter_map(|visit| visit.sealed_ns).min();
            let waits_for_other =
                sealed.is_none_or(|since| now_ns < since + self.patience.other_ns);
            if !has_one || (waits_for_other && !visits.iter().all(Visit::is_settled)) {
                return Ok(Fetched::Waits);
            }
        }
        let mut groups = self.groups.iter();
        assert!(
            self.lacks.is_some() || groups.all(|(_, visits)| visits.iter().any(Visit::suffices)),
            "each mirror has returned what was acknowledged, or the loss is accepted"
        );
        let mut all = vec![Vec::new(); self.from.len()];
        for visit in self.groups.iter_mut().flat_map(|(_, visits)| visits) {
            if visit.is_done() {
                for (stream, kept, _) in visit.kept.drain(..) {
                    all[usize::from(stream.0)].push(kept);
                }
            }
        }
        Ok(Fetched::All(all))
    }
}

fn no_node(group: usize, visits: &[Visit; 2]) -> Error {
    let told: Vec<String> = visits
        .iter()
        .map(|visit| {
            let why = visit.trouble.as_deref().unwrap_or("it does not answer");
            format!("{}: {why}", visit.member.address)
        })
        .collect();
    Error::Usage(format!(
        "acknowledged transactions may be only in the memory of the nodes of group {group}, and no node returns them \
         ({}). Only the generation was changed. Make one of the nodes reachable, with its memory intact, and try \
         again. Or give --accept-loss: it takes what their hard copies (--dir) have, and prints the loss",
        told.join("; ")
    ))
}

struct Context<'a> {
    view: &'a View,
    caller: &'a Caller,
    net: &'a dyn Net,
    from: &'a [Pos],
    group: usize,
    accept_loss: bool,
    retry_ns: u64,
    now_ns: u64,
}

impl Visit {
    fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Returns whether the node has returned all acknowledged bytes.
    fn suffices(&self) -> bool {
        self.is_done() && !self.is_damaged
    }

    /// Returns whether no more bytes will come from this node.
    fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Done | Stage::Empty)
    }

    /// Connects if that is due, and handles one frame. Returns whether there was anything to do.
    fn step(&mut self, context: &mut Context<'_>, random: &mut dyn FnMut() -> u64) -> bool {
        if self.is_settled() {
            return false;
        }
        let Some(connection) = &mut self.connection else {
            let retry_ns = context.retry_ns;
            let due = self
                .tried_ns
                .is_none_or(|tried| context.now_ns >= tried + retry_ns);
            if due {
                self.connect(context, crate::writer::nonce(random));
            }
            return due;
        };
        let frame = match connection.receive() {
            Ok(None) => return false,
            Ok(Some(frame)) => frame,
            Err(why) => {
                self.break_off(why);
                return true;
            }
        };
        let taken = match Reply::decode(&frame) {
            Ok(reply) => self.take(&reply, context),
            Err(malformed) => Err(format!("the node sends {malformed}")),
        };
        if let Err(why) = taken {
            self.break_off(why);
        }
        true
    }

    fn connect(&mut self, context: &Context<'_>, nonce: Nonce) {
        self.tried_ns = Some(context.now_ns);
        match context.net.connect(&self.member.address) {
            Ok(connection) => {
                let handshake = Handshake::new(nonce);
                let hello = handshake.hello(context.caller);
                self.connection = Some(connection);
                self.stage = Stage::Greeting(handshake);
                if let Err(why) = self.say(&hello) {
                    self.break_off(why);
                }
            }
            Err(error) => self.trouble = Some(error.to_string()),
        }
    }

    /// Closes the connection. The node stays sealed. The next connection reads the bytes again from the start.
    fn break_off(&mut self, why: String) {
        self.connection = None;
        self.stage = Stage::Down;
        (self.is_damaged, self.is_recalled) = (false, false);
        self.kept.clear();
        self.trouble = Some(why);
    }

    fn say(&mut self, request: &Request<'_>) -> Result<(), String> {
        let connection = self.connection.as_mut().ok_or("there is no connection")?;
        match connection.send(&request.head(), request.tail())? {
            Sent::Yes => Ok(()),
            // Only one request is sent at a time, so the connection should have room.
            Sent::Full => Err("the connection accepts no data".into()),
        }
    }

    fn take(&mut self, reply: &Reply<'_>, context: &Context<'_>) -> Result<(), String> {
        match (&mut self.stage, reply) {
            (Stage::Greeting(handshake), reply) => match handshake.take(reply, context.caller)? {
                Greeted::Say(request) => self.say(&request),
                Greeted::Ready(Identity { inc, .. }, _)
                    if inc != self.member.inc && !armed(Flaw::EmptyNodeSuffices) =>
                {
                    let was = self.member.inc;
                    self.trouble = Some(format!(
                        "it was restarted and its memory is empty: it was node {was} and is now node {inc}"
                    ));
                    if context.accept_loss {
                        self.stage = Stage::Sealing;
                        self.is_recalled = true;
                        let (generation, inc) = (context.caller.generation, was);
                        return self.say(&Request::Recall { generation, inc });
                    }
                    (self.connection, self.stage) = (None, Stage::Empty);
                    Ok(())
                }
                Greeted::Ready(..) => {
                    self.stage = Stage::Sealing;
                    let generation = context.caller.generation;
                    self.say(&Request::Seal { generation })
                }
            },
            // The node's earlier start has left no bytes, or the node has no hard copy.
            (Stage::Sealing, Reply::Refused(_)) if self.is_recalled => {
                (self.connection, self.stage) = (None, Stage::Empty);
                Ok(())
            }
            (Stage::Sealing, Reply::Sealed(sealed))
                if sealed.inc == self.member.inc || armed(Flaw::EmptyNodeSuffices) =>
            {
                self.sealed_ns.get_or_insert(context.now_ns);
                // The hard copy may lack the newest acknowledged bytes.
                self.is_damaged |= self.is_recalled;
                for (number, home) in (0u8..).zip(&context.view.homes) {
                    if usize::from(*home) == context.group {
                        self.want(StreamId(number), &sealed.rings, context);
                    }
                }
                self.read_on(0, context)
            }
            (Stage::Reading(at), Reply::Bytes { from, bytes, .. }) => {
                let at = *at;
                let (_, kept, end) = &mut self.kept[at];
                let reached = kept.from.0 + to_u64(kept.bytes.len());
                if from.0 != reached || bytes.is_empty() || reached + to_u64(bytes.len()) > end.0 {
                    return Err(format!(
                        "the node returns other bytes than those from {reached} on"
                    ));
                }
                assert!(self.sealed_ns.is_some(), "a node is read when it is sealed");
                kept.bytes.extend_from_slice(bytes);
                self.read_on(at, context)
            }
            // The bytes before the damaged position are valid and are used.
            (Stage::Reading(at), Reply::Refused(refused)) if refused.reason == Reason::Damaged => {
                let at = *at;
                self.trouble = Some(refused.text.clone());
                self.is_damaged = true;
                let (_, kept, end) = &mut self.kept[at];
                *end = Pos(kept.from.0 + to_u64(kept.bytes.len()));
                self.read_on(at, context)
            }
            (_, Reply::Refused(refused)) => Err(format!("the node refuses: {}", refused.text)),
            (_, reply) => Err(format!("the node sent an unexpected answer: {reply:?}")),
        }
    }

    /// Determines which bytes of a stream must be read from this node.
    fn want(&mut self, stream: StreamId, rings: &[RingState], context: &Context<'_>) {
        let of = (context.view.rings, stream);
        let ring = rings
            .iter()
            .find(|ring| (ring.generation, ring.stream) == of);
        let Some(ring) = ring else {
            self.trouble = Some(format!("it has dropped the ring of stream {stream}"));
            self.is_damaged = !armed(Flaw::EmptyNodeSuffices);
            return;
        };
        let from = ring.low.max(context.from[usize::from(stream.0)]);
        let copy = if self.is_recalled {
            "the hard copy of "
        } else {
            ""
        };
        let kept = Kept {
            holder: format!("{copy}{}", self.member.address),
            from,
            bytes: Vec::new(),
        };
        self.kept.push((stream, kept, ring.end.max(from)));
    }

    /// Requests the next bytes of the ring at index `at` of `kept`. If all bytes of this ring were read, continues with
    /// the next ring.
    fn read_on(&mut self, mut at: usize, context: &Context<'_>) -> Result<(), String> {
        while let Some((stream, kept, end)) = self.kept.get(at) {
            let reached = Pos(kept.from.0 + to_u64(kept.bytes.len()));
            if reached >= *end {
                at += 1;
                continue;
            }
            let left = (end.0 - reached.0).min(u64::from(READ_BYTES_MAX));
            let (generation, stream, from) = (context.view.rings, *stream, reached);
            let len = to_u32(perdura_base::num::to_usize(left));
            let read = match self.is_recalled {
                true => Request::Reread {
                    inc: self.member.inc,
                    generation,
                    stream,
                    from,
                    len,
                },
                false => Request::Read {
                    generation,
                    stream,
                    from,
                    len,
                },
            };
            self.stage = Stage::Reading(at);
            return self.say(&read);
        }
        if armed(Flaw::RingsRetiredEarly) {
            let generation = context.caller.generation;
            self.say(&Request::Retire { generation })?;
        }
        (self.stage, self.connection) = (Stage::Done, None);
        Ok(())
    }
}
