//! The process of a node of the mirrored log, and the network over which clients reach nodes.
//!
//! `perdura-mirror` has the frames and rings of a node. This crate has the node's sockets and threads. [`Logd`] is a
//! running node. [`TcpNet`] is the network over which a database's writer and takeovers reach nodes.
//!
//! # Threads
//! One thread accepts clients. Each client has a thread, which blocks in a read. If there are few clients and each
//! waits for its replies, this gives the shortest time from a frame's arrival to the reply. One lock protects the node.
//! A thread holds the lock while it copies a block. A writer on the node's machine needs no such thread to add a block:
//! the writer writes into memory that the node shares. If the node has a directory for a hard copy, a further thread
//! copies the rings to the directory. If the node has a peer, one more thread greets the peer.

mod client;
mod connection;
mod fit;
mod hard_copy;
mod identity;
mod local;
mod mapping;
mod memory_disk;
mod net;
mod peer;
mod rarely;
mod serve;
mod socket;
mod threads;

pub use client::{Client, unexpected};
pub use connection::Limits;
pub use hard_copy::HardCopyState;
pub use identity::{draw_nonce, machine};
pub use memory_disk::{MEMORY_BLOCK_BYTES, MemoryDisk, MemoryDiskOptions, ring_bytes_for};
pub use net::{LoadClientTls, TcpNet};
pub use peer::PeerOptions;
pub use rustls::{ClientConfig, ServerConfig};
pub use serve::{LoadServerTls, Logd, LogdOptions, LogdStats, serve};
