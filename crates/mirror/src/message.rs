//! The messages between clients and nodes. The format page below is the only description of the messages.
#![doc = include_str!("../../../docs/formats/logd.md")]

mod codec;

use std::fmt;

use perdura_base::{Pos, StreamId, Uuid};

use crate::auth::{Nonce, PROOF_BYTES};
use crate::ids::{Generation, Machine, NodeInc};

/// The maximum number of bytes of a frame: the longest block and its description.
pub const FRAME_BYTES_MAX: usize = perdura_wal::block::BLOCK_BYTES_MAX + 96;
/// The minimum number of bytes of a frame: a frame without a body.
pub(crate) const FRAME_BYTES_MIN: usize = 12;
/// The maximum number of bytes that one read of a ring returns.
pub const READ_BYTES_MAX: u32 = 1 << 20;
/// An upper bound of the positions in a log. No log reaches it.
pub(crate) const POS_MAX: u64 = 1 << 62;
/// The version of the protocol.
const VERSION: u16 = 1;
const MAGIC: &[u8; 4] = b"PLGD";
const TEXT_BYTES_MAX: usize = 1000;
/// The maximum number of rings that a reply can list. A node has fewer rings of one database.
const RINGS_MAX: usize = 4096;

/// A description of why bytes are not a valid frame.
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
    /// Prove, with this proof, that the client has the key.
    Proof([u8; PROOF_BYTES]),
    /// Make a ring, or continue an existing one.
    Open {
        /// The writer's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The stream's end on the writer's disk.
        start: Pos,
    },
    /// Like [`Open`](Self::Open), but with the ring in memory that the client maps.
    Map {
        /// The writer's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The stream's end on the writer's disk.
        start: Pos,
    },
    /// Replace a spoiled ring by an empty one.
    Renew {
        /// The writer's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The stream's end on the writer's disk.
        start: Pos,
        /// The sequence number of the damage report in the node's reply.
        damage: u64,
    },
    /// Append a block to a ring.
    Append {
        /// The writer's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The position of the block.
        pos: Pos,
        /// The stream's synced end on the writer's disk.
        low: Pos,
        /// The block without the zeros at its end.
        bytes: &'a [u8],
        /// The number of zeros at the end of the block, which are not sent.
        pad: u32,
    },
    /// Seal the rings of older generations, and return the list of rings.
    Seal {
        /// The new generation.
        generation: Generation,
    },
    /// Return some bytes of a ring.
    Read {
        /// The ring's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The position of the first byte.
        from: Pos,
        /// The number of bytes, at most [`READ_BYTES_MAX`].
        len: u32,
    },
    /// Drop the rings of older generations.
    Retire {
        /// The oldest generation whose rings are kept.
        generation: Generation,
    },
    /// Reply, to show that the node is running.
    Ping,
    /// Seal the rings of older generations, and return the rings in the hard copy of an earlier start of the node.
    Recall {
        /// The new generation.
        generation: Generation,
        /// The incarnation of the earlier start.
        inc: NodeInc,
    },
    /// Return some bytes from the hard copy of an earlier start of the node.
    Reread {
        /// The incarnation of the earlier start.
        inc: NodeInc,
        /// The ring's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The position of the first byte.
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
    /// The node's machine.
    pub machine: Machine,
    /// The maximum number of bytes that one ring of the node holds.
    pub ring_bytes: u64,
    /// The node's nonce.
    pub nonce: Nonce,
    /// The proof that the node has the key.
    pub proof: [u8; PROOF_BYTES],
}

/// The part of a stream that is in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingState {
    /// The writer's generation.
    pub generation: Generation,
    /// The stream.
    pub stream: StreamId,
    /// The position of the first byte.
    pub low: Pos,
    /// The position after the last byte.
    pub end: Pos,
}

/// The reply to an open or an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The node's incarnation.
    pub inc: NodeInc,
    /// The part of the stream that the node holds.
    pub ring: RingState,
}

/// The reply to a seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The node's incarnation.
    pub inc: NodeInc,
    /// The lowest generation that the node still takes blocks from.
    pub generation: Generation,
    /// All rings that the node has of the database.
    pub rings: Vec<RingState>,
}

/// The reason why a node refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The node speaks a different version of the protocol.
    Version,
    /// The client's proof is wrong: the client does not have the node's key.
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
    /// The bytes are not a valid frame, or the protocol does not allow the frame at this point.
    Malformed,
    /// The ring's memory does not hold the bytes that were appended.
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

    /// Returns whether a node ends the connection after a refusal for this reason.
    #[must_use]
    pub fn ends_connection(self) -> bool {
        matches!(self, Reason::Version | Reason::Key | Reason::Malformed)
    }
}

/// A node's refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The reason.
    pub reason: Reason,
    /// The highest generation that the node has seen.
    pub generation: Generation,
    /// The position of the ring's end if the reason is [`Position`](Reason::Position), otherwise 0.
    pub pos: Pos,
    /// An explanation for an operator.
    pub text: String,
}

/// A node's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The reply to a hello.
    Greeting(Greeting),
    /// The reply to a right proof: the client may send requests.
    Welcome {
        /// The node's incarnation.
        inc: NodeInc,
        /// The highest generation that the node has seen.
        generation: Generation,
    },
    /// The part of a stream that the node holds.
    Held(Held),
    /// Like [`Reply::Held`], for a ring in shared memory. The memory itself comes with the frame. The second field is
    /// the length of the memory, bytes.
    Mapped(Held, u64),
    /// The reply to an open or a map if the ring is damaged.
    Spoiled {
        /// The node's incarnation.
        inc: NodeInc,
        /// The ring's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The sequence number of the damage report, from 1.
        damage: u64,
    },
    /// The reply to a seal.
    Sealed(Sealed),
    /// Bytes of a ring.
    Bytes {
        /// The ring's generation.
        generation: Generation,
        /// The stream.
        stream: StreamId,
        /// The position of the first byte.
        from: Pos,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The node has dropped the rings of older generations.
    Retired {
        /// The node's incarnation.
        inc: NodeInc,
        /// The oldest generation whose rings are kept.
        generation: Generation,
    },
    /// The reply to a ping.
    Pong {
        /// The node's incarnation.
        inc: NodeInc,
    },
    /// The node refuses the request.
    Refused(Refused),
}
