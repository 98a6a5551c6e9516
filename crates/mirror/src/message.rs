//! The messages between clients and nodes. The format page below is the only description of them.
#![doc = include_str!("../../../docs/formats/logd.md")]

mod codec;

use std::fmt;

use perdura_base::{Pos, StreamId, Uuid};

use crate::auth::{Nonce, PROOF_BYTES};
use crate::ids::{Generation, Machine, NodeInc};

/// The longest frame, bytes: the longest block and its description.
pub const FRAME_BYTES_MAX: usize = perdura_wal::block::BLOCK_BYTES_MAX + 96;
/// The shortest frame, bytes: one without a body.
pub(crate) const FRAME_BYTES_MIN: usize = 12;
/// The most bytes of a ring that one read returns.
pub const READ_BYTES_MAX: u32 = 1 << 20;
/// The largest position: a log never reaches it.
pub(crate) const POS_MAX: u64 = 1 << 62;
/// The version of the protocol.
const VERSION: u16 = 1;
const MAGIC: &[u8; 4] = b"PLGD";
const TEXT_BYTES_MAX: usize = 1000;
/// The most rings that a reply names. A node keeps fewer of one database.
const RINGS_MAX: usize = 4096;

/// A frame that the page does not allow, with its fault.
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

/// A client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// The first request.
    Hello {
        /// The version of the protocol that the client speaks.
        version: u16,
        /// The database.
        uuid: Uuid,
        /// The client's nonce.
        nonce: Nonce,
    },
    /// The proof that the client has the key.
    Proof([u8; PROOF_BYTES]),
    /// Make a ring, or continue with it.
    Open {
        /// The writer's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The position up to which the stream is on the writer's disk.
        start: Pos,
    },
    /// Make a ring or continue with it, in memory that the client maps.
    Map {
        /// The writer's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The position up to which the stream is on the writer's disk.
        start: Pos,
    },
    /// Make a spoiled ring anew, without its contents.
    Renew {
        /// The writer's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The position up to which the stream is on the writer's disk.
        start: Pos,
        /// The number of the damage that the node has reported.
        damage: u64,
    },
    /// Keep a block.
    Append {
        /// The writer's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The position of the block.
        pos: Pos,
        /// The position up to which the stream is synced on the writer's disk.
        low: Pos,
        /// The block without the zeros at its end.
        bytes: &'a [u8],
        /// The number of those zeros.
        pad: u32,
    },
    /// Take nothing more from older generations.
    Seal {
        /// The new generation.
        generation: Generation,
    },
    /// Return bytes of a ring.
    Read {
        /// The ring's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The first byte's position.
        from: Pos,
        /// The number of bytes, at most [`READ_BYTES_MAX`].
        len: u32,
    },
    /// Drop the rings of older generations.
    Retire {
        /// The generation that stays.
        generation: Generation,
    },
    /// Answer if you live.
    Ping,
    /// Seal, and report the hard copy of an ended start of the node.
    Recall {
        /// The new generation.
        generation: Generation,
        /// The start that has ended.
        inc: NodeInc,
    },
    /// Return bytes from the hard copy of an ended start of the node.
    Reread {
        /// The start that has ended.
        inc: NodeInc,
        /// The ring's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The first byte's position.
        from: Pos,
        /// The number of bytes, at most [`READ_BYTES_MAX`].
        len: u32,
    },
}

/// A node's first reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// The version of the protocol that the node speaks.
    pub version: u16,
    /// True if the node has a key.
    pub keyed: bool,
    /// The node's incarnation.
    pub inc: NodeInc,
    /// Its machine.
    pub machine: Machine,
    /// The most bytes that one of its rings holds.
    pub ring_bytes: u64,
    /// Its nonce.
    pub nonce: Nonce,
    /// The proof that it has the key.
    pub proof: [u8; PROOF_BYTES],
}

/// The part of a stream that a node holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingState {
    /// The writer's generation.
    pub generation: Generation,
    /// The stream.
    pub stream: StreamId,
    /// The position of the first byte.
    pub low: Pos,
    /// The position behind the last byte.
    pub end: Pos,
}

/// The answer to an open or an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The node's incarnation.
    pub inc: NodeInc,
    /// The part of the stream that it holds.
    pub ring: RingState,
}

/// The answer to a seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The node's incarnation.
    pub inc: NodeInc,
    /// The lowest generation from which it still takes blocks.
    pub generation: Generation,
    /// All rings of the database.
    pub rings: Vec<RingState>,
}

/// The reason why a node refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It speaks another version.
    Version,
    /// The client has not proven that it has the key.
    Key,
    /// The node has seen a higher generation.
    Generation,
    /// The block does not begin at the ring's end.
    Position,
    /// The ring does not exist.
    NoRing,
    /// The ring has no room for the block.
    Full,
    /// The node has no memory for a ring.
    Memory,
    /// The frame is not allowed here.
    Malformed,
    /// The memory does not hold the appended bytes.
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

    /// Returns whether the node ends the connection with this refusal.
    #[must_use]
    pub fn ends_connection(self) -> bool {
        matches!(self, Reason::Version | Reason::Key | Reason::Malformed)
    }
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The reason.
    pub reason: Reason,
    /// The highest generation that the node has seen.
    pub generation: Generation,
    /// The ring's end if the reason is [`Position`](Reason::Position); else 0.
    pub pos: Pos,
    /// An explanation for an operator.
    pub text: String,
}

/// A node's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The first reply.
    Greeting(Greeting),
    /// The client may continue.
    Welcome {
        /// The node's incarnation.
        inc: NodeInc,
        /// The highest generation that the node has seen.
        generation: Generation,
    },
    /// The part of a stream that the node holds.
    Held(Held),
    /// Like [`Reply::Held`], for a ring in memory that comes with the frame. The number is the memory's length in
    /// bytes.
    Mapped(Held, u64),
    /// The ring of a stream is damaged: the answer to an open or a map.
    Spoiled {
        /// The node's incarnation.
        inc: NodeInc,
        /// The ring's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The number of the damage, from 1.
        damage: u64,
    },
    /// The rings of the database that the node holds.
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
        /// The generation that stays.
        generation: Generation,
    },
    /// The node lives.
    Pong {
        /// The node's incarnation.
        inc: NodeInc,
    },
    /// The node refuses the request.
    Refused(Refused),
}
