//! A node: it keeps rings and answers requests. See docs/formats/logd.md.
//!
//! # Invariants
//! * Until *retire*, a takeover can read all bytes that the node has reported as held. If the node cannot return the
//!   bytes, the node refuses the read with a reason.
//! * The highest generation of a database never falls. Appends of lower generations are refused.
//! * A frame that the protocol does not allow changes nothing and ends the connection.
//! * When a database's generation rises, the node seals the mapped rings of the earlier writers.

mod held;
mod opening;
mod recall;
mod serving;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{Pos, StreamId, Uuid};

use crate::auth::{Key, Nonce, Side, Terms};
use crate::hard_copy::Earlier;
use crate::ids::{Generation, Machine, NodeInc, RingName};
use crate::message::{Greeting, Malformed, Reason, Refused, Reply, Request, RingState};
use crate::ring::RingRefusal;
use crate::shared::{Memories, Shared};
use held::NodeRing;

/// The maximum number of databases with a record in the node. Without this limit a client could make the node use all
/// memory.
const DATABASES_MAX: usize = 4096;

/// The options with which a node is started.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// The maximum number of bytes that a ring holds.
    pub ring_bytes: u64,
    /// The maximum number of rings of all databases together.
    pub rings_max: usize,
    /// The key that clients must have. It may be unset.
    pub key: Key,
    /// The node's machine.
    pub machine: Machine,
    /// A random number that makes this start of the node different from all others.
    pub inc: NodeInc,
    /// The source of memory that clients on this machine can map. `None`: the node shares no memory.
    pub memories: Option<Memories>,
}

/// The figures of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// The number of databases that the node knows.
    pub databases: u64,
    /// The number of rings.
    pub rings: u64,
    /// The number of bytes in the rings.
    pub bytes: u64,
    /// The number of blocks that clients have appended by message since the node's start.
    pub appends: u64,
    /// The number of refused frames since the node's start.
    pub refusals: u64,
}

/// The node's state of a connection to a client.
#[derive(Debug)]
pub struct Peer {
    nonce: Nonce,
    stage: Stage,
    /// True if the connection can pass memory to the client.
    is_local: bool,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// The client has sent nothing.
    New,
    /// The node has sent a greeting, and the client must send a proof.
    Greeted { uuid: Uuid, nonce: Nonce },
    /// The client has proven that it has the key. The node answers its requests.
    Welcome(Uuid),
}

impl Peer {
    /// Returns the state of a new connection. `nonce` is a random number used only for this connection.
    #[must_use]
    pub fn new(nonce: Nonce) -> Peer {
        Peer {
            nonce,
            stage: Stage::New,
            is_local: false,
        }
    }

    /// Like [`new`](Self::new), for a connection that can pass memory, because the client is on the node's machine.
    #[must_use]
    pub fn local(nonce: Nonce) -> Peer {
        Peer {
            is_local: true,
            ..Peer::new(nonce)
        }
    }

    /// Returns whether the client has proven that it has the key.
    #[must_use]
    pub fn is_welcome(&self) -> bool {
        matches!(self.stage, Stage::Welcome(_))
    }
}

/// The result of handling a frame.
#[derive(Debug)]
pub struct Outcome {
    /// The frame to send back.
    pub reply: Vec<u8>,
    /// The memory to send with the reply. `None`: no memory is sent.
    pub memory: Option<Arc<dyn Shared>>,
    /// True if the connection must be closed after the reply.
    pub ends: bool,
}

/// The contents of a node, for the hard copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holdings {
    /// All rings, each with its database.
    pub rings: Vec<(Uuid, RingState)>,
    /// For each database, a generation. All lower generations are retired.
    pub retired: Vec<(Uuid, Generation)>,
}

#[derive(Default)]
struct Database {
    generation: Generation,
    /// All generations below this generation are retired.
    retired: Generation,
    rings: BTreeMap<(Generation, StreamId), NodeRing>,
}

impl Database {
    /// Notes the generation of a new writer. Earlier writers cannot append any more.
    fn raise(&mut self, generation: Generation) {
        let older = self.rings.range_mut(..(generation, StreamId(0)));
        older.for_each(|(_, ring)| ring.seal(generation));
        self.generation = self.generation.max(generation);
        assert!(self.generation >= generation, "generations only rise");
    }
}

/// A node.
pub struct Node {
    options: NodeOptions,
    databases: HashMap<Uuid, Database>,
    /// The rings of earlier starts of the node, from its hard copy.
    earlier: Vec<Earlier>,
    appends: u64,
    refusals: u64,
    /// The number of damage reports so far.
    damages: u64,
}

/// A reply, and the memory to send with it.
type Answer<'a> = (Reply<'a>, Option<Arc<dyn Shared>>);

/// A refusal that is not yet encoded.
struct Refusal {
    reason: Reason,
    pos: Pos,
    text: String,
}

impl Refusal {
    fn new(reason: Reason, text: String) -> Refusal {
        Refusal {
            reason,
            pos: Pos(0),
            text,
        }
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Refusal {
        Refusal::new(Reason::Malformed, malformed.0)
    }
}

impl Node {
    /// Returns a node without rings.
    #[must_use]
    pub fn new(options: NodeOptions) -> Node {
        assert!(
            options.ring_bytes > 0 && options.rings_max > 0,
            "a node has room for a ring"
        );
        Node {
            options,
            databases: HashMap::new(),
            earlier: Vec::new(),
            appends: 0,
            refusals: 0,
            damages: 0,
        }
    }

    /// Returns the incarnation of the node.
    #[must_use]
    pub fn inc(&self) -> NodeInc {
        self.options.inc
    }

    /// Returns the figures of the node.
    #[must_use]
    pub fn stats(&self) -> NodeStats {
        let rings = || self.databases.values().flat_map(|one| one.rings.values());
        NodeStats {
            databases: to_u64(self.databases.len()),
            rings: to_u64(rings().count()),
            bytes: rings().map(NodeRing::len).sum(),
            appends: self.appends,
            refusals: self.refusals,
        }
    }

    /// Returns all rings, and the retired generations of each database.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        let mut holdings = Holdings::default();
        for (uuid, database) in &self.databases {
            holdings.retired.push((*uuid, database.retired));
            for (name, ring) in &database.rings {
                if let Ok(ring) = ring.state(name.0, name.1) {
                    holdings.rings.push((*uuid, ring));
                }
            }
        }
        holdings
    }

    /// Copies at most `len` bytes of a ring to the end of `out`. The first copied byte is at `from`, or at the ring's
    /// first position if that is higher. Returns the position of the first copied byte, and the ring's first position.
    /// `None`: the node does not have this ring.
    ///
    /// # Errors
    /// [`RingRefusal`] if the bytes are outside the ring or damaged.
    pub fn copy_of(
        &self,
        ring: RingName,
        from: Pos,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Option<Result<(Pos, Pos), RingRefusal>> {
        let database = self.databases.get(&ring.uuid)?;
        let ring = database.rings.get(&(ring.generation, ring.stream))?;
        Some(ring.extent().and_then(|(low, _)| {
            let from = from.max(low);
            ring.read(from, to_u64(len), out).map(|()| (from, low))
        }))
    }

    /// Handles one frame from a connection.
    pub fn handle(&mut self, peer: &mut Peer, frame: &[u8]) -> Outcome {
        let mut bytes = Vec::new();
        let request = Request::decode(frame).map_err(Refusal::from);
        let answer = request.and_then(|request| match (peer.stage, request) {
            (
                Stage::Welcome(uuid),
                Request::Map {
                    generation,
                    stream,
                    start,
                },
            ) if peer.is_local => {
                let memories = self.options.memories.clone();
                let ring = RingName {
                    uuid,
                    generation,
                    stream,
                };
                self.opened(ring, start, memories.as_ref())
            }
            _ => Ok((self.answer(peer, &request, &mut bytes)?, None)),
        });
        match answer {
            Ok((reply, memory)) => Outcome {
                reply: reply.frame(),
                memory,
                ends: false,
            },
            Err(refusal) => self.refuse(peer, refusal),
        }
    }

    /// Returns the last reply to a client that has sent bytes that are not a frame.
    pub fn refuse_malformed(&mut self, peer: &Peer, malformed: Malformed) -> Outcome {
        self.refuse(peer, malformed.into())
    }

    fn refuse(&mut self, peer: &Peer, refusal: Refusal) -> Outcome {
        self.refusals += 1;
        let generation = match peer.stage {
            Stage::Welcome(uuid) => self.generation(uuid),
            Stage::New | Stage::Greeted { .. } => Generation(0),
        };
        let refused = Refused {
            reason: refusal.reason,
            generation,
            pos: refusal.pos,
            text: refusal.text,
        };
        Outcome {
            ends: refused.reason.ends_connection(),
            memory: None,
            reply: Reply::Refused(refused).frame(),
        }
    }

    fn generation(&self, uuid: Uuid) -> Generation {
        let database = self.databases.get(&uuid);
        database.map_or(Generation(0), |database| database.generation)
    }

    fn answer<'a>(
        &mut self,
        peer: &mut Peer,
        request: &Request<'_>,
        bytes: &'a mut Vec<u8>,
    ) -> Result<Reply<'a>, Refusal> {
        let inc = self.options.inc;
        match (peer.stage, request) {
            (Stage::New, Request::Hello { .. }) => self.greet(peer, request),
            (Stage::Greeted { uuid, nonce }, Request::Proof(proof)) => {
                let terms = Terms {
                    client: nonce,
                    node: peer.nonce,
                    uuid,
                    inc,
                };
                if !self.options.key.accepts(Side::Client, &terms, proof) {
                    let why = "the client does not have the key of this node (--key-file)";
                    return Err(Refusal::new(Reason::Key, why.into()));
                }
                peer.stage = Stage::Welcome(uuid);
                let generation = self.generation(uuid);
                Ok(Reply::Welcome { inc, generation })
            }
            (Stage::Welcome(uuid), request) => self.serve(uuid, request, bytes),
            (Stage::New | Stage::Greeted { .. }, _) => {
                let why = "a connection begins with hello and proof";
                Err(Refusal::new(Reason::Malformed, why.into()))
            }
        }
    }

    fn greet(&self, peer: &mut Peer, hello: &Request<'_>) -> Result<Reply<'static>, Refusal> {
        let Request::Hello {
            version,
            uuid,
            nonce,
        } = *hello
        else {
            unreachable!("the caller has matched a hello");
        };
        if version != Greeting::version() {
            let ours = Greeting::version();
            let why = format!("this node speaks version {ours} of the protocol, not {version}");
            return Err(Refusal::new(Reason::Version, why));
        }
        peer.stage = Stage::Greeted { uuid, nonce };
        let (key, inc) = (&self.options.key, self.options.inc);
        let terms = Terms {
            client: nonce,
            node: peer.nonce,
            uuid,
            inc,
        };
        Ok(Reply::Greeting(Greeting {
            version,
            keyed: key.is_set(),
            inc,
            machine: self.options.machine,
            ring_bytes: self.options.ring_bytes,
            nonce: peer.nonce,
            proof: key.prove(Side::Node, &terms),
        }))
    }

    /// Fails if a later writer has replaced the writer of this generation.
    fn check_generation(&self, uuid: Uuid, generation: Generation) -> Result<(), Refusal> {
        let seen = self.generation(uuid);
        if generation < seen && !armed(Flaw::GenerationUnchecked) {
            let why = format!(
                "the writer has generation {generation}, and generation {seen} has replaced it"
            );
            return Err(Refusal::new(Reason::Generation, why));
        }
        Ok(())
    }

    fn ring(&mut self, name: RingName) -> Result<&mut NodeRing, Refusal> {
        let RingName {
            uuid,
            generation,
            stream,
        } = name;
        let database = self.databases.get_mut(&uuid);
        let ring = database.and_then(|database| database.rings.get_mut(&(generation, stream)));
        ring.ok_or_else(|| {
            let why = format!("no ring of generation {generation}, stream {stream}");
            Refusal::new(Reason::NoRing, why)
        })
    }

    /// Returns the record of a database, and makes it if the node does not know the database yet.
    fn database(&mut self, uuid: Uuid) -> Result<&mut Database, Refusal> {
        let known = self.databases.len();
        match self.databases.entry(uuid) {
            Entry::Occupied(database) => Ok(database.into_mut()),
            Entry::Vacant(place) if known < DATABASES_MAX => Ok(place.insert(Database::default())),
            Entry::Vacant(_) => {
                let why = format!("the node knows {known} databases, its most");
                Err(Refusal::new(Reason::Memory, why))
            }
        }
    }
}
