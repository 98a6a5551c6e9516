//! The log in the memory of mirrored nodes: a commit waits for two memories instead of a disk.
//!
//! A *group* is a pair of nodes. Each stream of the log belongs to one group. The two nodes of the group receive every
//! sealed block of the stream. An arbiter stores the *view*. The view contains the writer's generation and the *mode*
//! of each group. The mode says what holds an acknowledged block: both nodes, one node and the disk, or only the disk.
//! A little later the writer also copies the blocks to its segments on disk. After a crash a *takeover* raises the
//! generation, seals the nodes and drains their bytes into the segments. Then the ordinary restart runs. It does not
//! depend on nodes.
//!
//! The types of this crate are state machines. Their caller passes the network, the arbiter and the time to each
//! step. In production the callers are threads with sockets. In the simulator the caller is a seeded loop.
//!
//! # Source
//! H. Wu et al., *A Database Redo Log System Based on Virtual Memory Disk*, sections 3.1, 3.2 and 4.1.
//!
//! # Deviations
//! * The paper's nodes have no generation and no incarnation. So the paper's system would not notice that a node
//!   has rebooted with empty memory, or that a writer was replaced.
//! * The paper copies "when idle", which never happens under load. We limit the number of bytes that wait for the copy,
//!   and their waiting time.
//! * The paper counts only the failure of all nodes at once. But data are lost if the two nodes of *one* group and the
//!   writer fail before the copy. Our takeover reports exactly which bytes are lost.

mod auth;
mod choice;
mod framer;
mod handshake;
pub mod hard_copy;
mod ids;
mod lease;
mod link;
mod mapped;
mod message;
mod net;
mod node;
mod options;
mod register;
mod ring;
mod shared;
pub mod sim;
mod state;
mod status;
mod takeover;
mod view;
mod writer;

pub use auth::{Key, NONCE_BYTES, Nonce, PROOF_BYTES, Side, Terms};
pub use framer::Framer;
pub use handshake::{Caller, Greeted, Handshake, Identity};
pub use ids::{Generation, Machine, NodeInc, RingName};
pub use mapped::{Append, Writing};
pub use message::{
    FRAME_BYTES_MAX, Greeting, Held, Malformed, READ_BYTES_MAX, Reason, Refused, Reply, Request,
    RingState, Sealed,
};
pub use net::{Connection, Net, Sent};
pub use node::{Holdings, Node, NodeOptions, NodeStats, Outcome, Peer};
pub use options::MirrorOptions;
pub use register::{LockedFile, NumberedFiles, Register, Swap};
pub use ring::{Ring, RingRefusal};
pub use shared::{HeapMemory, Memories, Shared};
pub use status::{GroupStatus, NodeStatus, Status};
pub use takeover::{Claim, Claimant, Fetch, Fetched, Kept, Patience, beginning_view};
pub use view::{ADDRESS_BYTES_MAX, GROUPS_MAX, Member, Mode, View};
pub use writer::{Beginning, Log, Managed, Mirror};
