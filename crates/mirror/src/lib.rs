//! The log in the memory of mirrored nodes: a commit waits for two memories instead of a disk.
//!
//! A *group* is a pair of nodes. Each stream of the log belongs to one group, whose nodes both receive every sealed
//! block of it. The *view*, in an arbiter, names the writer's generation and the places on which each group's
//! acknowledgements rest: both nodes, one node and the disk, or the disk alone. The writer copies the same blocks to
//! its segments a little later (the hard copy). After a crash a *takeover* raises the generation, seals the nodes and
//! drains their bytes into the segments. The ordinary restart follows and knows nothing of nodes.
//!
//! Everything in this crate is a machine whose steps take the network, the arbiter and the time from outside. Threads
//! and sockets drive it in production, a seed in the simulator.
//!
//! # Source
//! H. Wu et al., *A Database Redo Log System Based on Virtual Memory Disk*, sections 3.1, 3.2 and 4.1.
//!
//! # Deviations
//! * The paper's nodes have no generation and no incarnation: a node that rebooted with empty memory, and a writer that
//!   was replaced, would go unnoticed.
//! * "When idle" never comes under load: the tail that is not copied has a bound in bytes and in time.
//! * The paper counts the failure of all nodes at once. But data are already lost when both nodes of *one* group and
//!   the writer fail before the copy. That loss is named exactly.

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
