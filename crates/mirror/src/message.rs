//! What clients and nodes say to each other. The format page below is the only description of it.
#![doc = include_str!("../../../docs/formats/logd.md")]

mod codec;

use std::fmt;

use perdura_base::{Pos, StreamId, Uuid};

use crate::auth::{Nonce, PROOF_BYTES};
use crate::ids::{Generation, Machine, NodeInc};

/// The longest frame, bytes: the longest block and what is said of it.
pub const FRAME_BYTES_MAX: usize = perdura_wal::block::BLOCK_BYTES_MAX + 96;
/// The shortest frame, bytes: one without a body.
pub(crate) const FRAME_BYTES_MIN: usize = 12;
/// The most bytes of a ring that one read returns.
pub const READ_BYTES_MAX: u32 = 1 << 20;
/// No log gets farther.
pub(crate) const POS_MAX: u64 = 1 << 62;
/// The version of the protocol.
const VERSION: u16 = 1;
const MAGIC: &[u8; 4] = b"PLGD";
const TEXT_BYTES_MAX: usize = 1000;
/// The most rings that a reply names: more than a node keeps of one database.
const RINGS_MAX: usize = 4096;

/// A frame that the page does not allow: what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Malformed {
    fn because(why: &str) -> Malformed {
        Malformed(why.to_owned())
    }
}

/// What a client says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// The first word.
    Hello {
        /// The protocol's version, as the client speaks it.
        version: u16,
        /// The database.
        uuid: Uuid,
        /// The client's nonce.
        nonce: Nonce,
    },
    /// That the client has the key.
    Proof([u8; PROOF_BYTES]),
    /// Make a ring, or go on with it.
    Open {
        /// The writer's.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// All before is on the writer's disk.
        start: Pos,
    },
    /// As open, in memory that the client maps.
    Map {
        /// The writer's.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// All before is on the writer's disk.
        start: Pos,
    },
    /// Make a spoiled ring anew, without what it held.
    Renew {
        /// The writer's.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// All before is on the writer's disk.
        start: Pos,
        /// The number of the damage, as the node has said it.
        damage: u64,
    },
    /// Keep a block.
    Append {
        /// The writer's.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// Where the block stands.
        pos: Pos,
        /// All before is synced on the writer's disk.
        low: Pos,
        /// The block without the zeros at its end.
        bytes: &'a [u8],
        /// How many zeros those are.
        pad: u32,
    },
    /// Take nothing more of older generations.
    Seal {
        /// The new one.
        generation: Generation,
    },
    /// Return bytes of a ring.
    Read {
        /// The ring's.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The first byte's position.
        from: Pos,
        /// How many, at most [`READ_BYTES_MAX`].
        len: u32,
    },
    /// Drop the rings of older generations.
    Retire {
        /// The one that stays.
        generation: Generation,
    },
    /// Say that you live.
    Ping,
    /// Seal, and say what a start of the node that has ended left in its hard copy.
    Recall {
        /// The new generation.
        generation: Generation,
        /// The start that has ended.
        inc: NodeInc,
    },
    /// Return bytes that a start of the node that has ended left.
    Reread {
        /// The start that has ended.
        inc: NodeInc,
        /// The ring's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The first byte's position.
        from: Pos,
        /// How many, at most [`READ_BYTES_MAX`].
        len: u32,
    },
}

/// What a node says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// The protocol's version, as the node speaks it.
    pub version: u16,
    /// Whether the node has a key.
    pub keyed: bool,
    /// The node's incarnation.
    pub inc: NodeInc,
    /// Its machine.
    pub machine: Machine,
    /// The most bytes that one of its rings holds.
    pub ring_bytes: u64,
    /// Its nonce.
    pub nonce: Nonce,
    /// That it has the key.
    pub proof: [u8; PROOF_BYTES],
}

/// What a node holds of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingState {
    /// The writer's.
    pub generation: Generation,
    /// The stream.
    pub stream: StreamId,
    /// The position of the first byte.
    pub low: Pos,
    /// The position behind the last one.
    pub end: Pos,
}

/// The answer to an open or an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The node's incarnation.
    pub inc: NodeInc,
    /// What it holds.
    pub ring: RingState,
}

/// The answer to a seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The node's incarnation.
    pub inc: NodeInc,
    /// The generation from which on it takes blocks.
    pub generation: Generation,
    /// All rings of the database.
    pub rings: Vec<RingState>,
}

/// Why a node refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It speaks another version.
    Version,
    /// The client has not proven that it has the key.
    Key,
    /// The node has seen a higher generation.
    Generation,
    /// The block does not stand at the ring's end.
    Position,
    /// There is no such ring.
    NoRing,
    /// The ring has no room for the block.
    Full,
    /// The node has no memory for a ring.
    Memory,
    /// The frame is not allowed here.
    Malformed,
    /// The memory does not hold what was appended.
    Damaged,
}

impl Reason {
    const ALL: [Reason; 9] = [
        Reason::Version,
        Reason::Key,
        Reason::Generation,
        Reason::Position,
        Reason::NoRing,
        Reason::Full,
        Reason::Memory,
        Reason::Malformed,
        Reason::Damaged,
    ];

    fn code(self) -> u8 {
        match self {
            Reason::Version => 1,
            Reason::Key => 2,
            Reason::Generation => 3,
            Reason::Position => 4,
            Reason::NoRing => 5,
            Reason::Full => 6,
            Reason::Memory => 7,
            Reason::Malformed => 8,
            Reason::Damaged => 9,
        }
    }

    fn from_code(code: u8) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.code() == code)
    }

    /// Whether the node ends the connection with it.
    #[must_use]
    pub fn ends_connection(self) -> bool {
        matches!(self, Reason::Version | Reason::Key | Reason::Malformed)
    }
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// The highest generation that the node has seen.
    pub generation: Generation,
    /// The ring's end, if that is the reason; else 0.
    pub pos: Pos,
    /// Why, for an operator.
    pub text: String,
}

/// What a node says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Its first word.
    Greeting(Greeting),
    /// The client may go on.
    Welcome {
        /// The node's incarnation.
        inc: NodeInc,
        /// The highest generation that it has seen.
        generation: Generation,
    },
    /// What it holds of a stream.
    Held(Held),
    /// The same, in memory of so many bytes that comes with the frame.
    Mapped(Held, u64),
    /// What it had of a stream is damaged: the answer to an open or a map.
    Spoiled {
        /// The node's incarnation.
        inc: NodeInc,
        /// The ring's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// Numbers the damage, from 1.
        damage: u64,
    },
    /// What it holds of the database.
    Sealed(Sealed),
    /// Bytes of a ring.
    Bytes {
        /// The ring's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The first byte's position.
        from: Pos,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The rings of older generations are dropped.
    Retired {
        /// The node's incarnation.
        inc: NodeInc,
        /// The one that stays.
        generation: Generation,
    },
    /// It lives.
    Pong {
        /// The node's incarnation.
        inc: NodeInc,
    },
    /// It does not do it.
    Refused(Refused),
}
