//! The log: a history of changes, in blocks that belong to one commit epoch each.
//!
//! # Overview
//! ```text
//!  append(group) ──► lane of the thread ──► open block of the stream, of epoch e ──► seal: headers
//!    ──► flusher: durable writes ──► D
//! ```
//! D is the durable epoch of a [`Rung`]. The rungs are the log's disks and, if the log has a mirror, the memories of
//! other machines.
//! * A transaction keeps its latches until it has appended its group and has read the epoch `E` under the lock of its
//!   lane or stream. The transaction is *acknowledged* when the durable epoch `D` reaches this epoch.
//! * To close an epoch, the log raises `E` and then visits every stream and its lanes. After the visit of a stream, no
//!   record of the old epoch can be appended to it. So the ends that the visits return (`V_e`) say exactly what
//!   must be durable.
//! * All frames of a block are of one epoch. A restart keeps whole durable epochs and permanently voids the rest.
//!
//! The log knows nothing of tables: a group is opaque bytes.
//!
//! # Source
//! *Differential Logging* (000), section 4.1, for the streams. The epochs are our addition; they make it safe to
//! release latches early with several streams. Two differences of the same bytes may be in different streams. Without
//! epochs, a crash could keep only the later difference. A restart would then compute bits that never existed.
//!
//! # Locks, in order
//! `placing`, `collecting` and `in_place` < a flusher's state < `closing` < a stream's `inner` < a lane < the list in
//! `age`; `inner` < `ends`. Only `placing`, `collecting` and `in_place` are held while a thread waits for a device. A thread
//! that waits for one of the three holds none of them.

mod age;
pub mod anchor;
mod append;
pub mod block;
mod cursor;
mod cut;
pub mod drain;
mod ends;
mod epoch_source;
mod epochs;
mod evidence;
mod failure;
mod flight;
mod flush;
mod flusher;
mod footing;
pub mod frame;
#[cfg(test)]
mod hex_example;
mod lane;
pub mod lineage;
mod lives;
mod log;
mod lookup;
mod mirror;
mod numbers;
mod parent;
mod placing;
mod reads;
mod rewrite;
mod room;
mod rung;
mod scan;
pub mod scheme;
mod seal;
pub mod segment;
mod shelf;
mod sizes;
mod stream;
mod survivor;
mod sync;
mod tail;
mod trouble;
mod unit;

pub use anchor::{ChainLink, History, Vouched};
pub use append::Appended;
pub use block::{BlockHeader, Holds};
pub use cursor::{DurableBlock, LogCursor};
pub use cut::{Cut, Elsewhere, decide_cut};
pub use ends::EpochEnds;
pub use epoch_source::{EpochSource, SourceStep};
pub use failure::Failure;
pub use flush::{Begun, Collected, FlushProgress, Wait};
pub use frame::{
    ActiveTxn, Archived, Direction, EndRecord, Frame, FrameKind, RestartRecord, Role, encode_active,
};
pub use lane::{LANES_MAX, LaneId};
pub use lineage::{Lineage, PAST_MAX, PastLife};
pub use lives::Lives;
pub use log::{Wal, WalOptions, WalStart, WalStats};
pub use mirror::TailOptions;
pub use parent::Parent;
pub use reads::UnitReads;
pub use rung::{Reached, Rung};
pub use scan::{BlockRef, COPIED, Check, StreamScan, scan_stream};
pub use scheme::{Guard, Mode, Order, Scheme};
pub use sizes::{SegmentSizes, Span};
pub use survivor::{LogOf, Survivor, lives_of, lives_to_drain, survive};
pub use tail::Sealed;
pub use unit::{Origin, RawUnit, Unit};
