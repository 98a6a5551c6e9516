//! The process of a node of the mirrored log, and the network over which clients reach nodes.
//!
//! `perdura-mirror` has the frames and rings of a node. This crate has its sockets and threads. [`Logd`] is a running
//! node. [`TcpNet`] is the network over which a database's writer and its takeovers reach nodes.
//!
//! # Threads
//! One thread accepts clients. Each client has a thread, which blocks in a read. With few clients that each wait for
//! their replies, this gives the shortest time from the arrival of a frame to its reply. The node is behind one lock,
//! which is held while a block is copied. A writer on the node's machine needs no thread for a block: it writes into
//! memory that the node shares. If the node has a directory for a hard copy, another thread copies the rings to it.
//! If it has a peer, another thread greets that peer.

mod client;
mod connection;
mod fit;
mod hard_copy;
mod identity;
mod local;
mod mapping;
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
pub use net::{LoadClientTls, TcpNet};
pub use peer::PeerOptions;
pub use rustls::{ClientConfig, ServerConfig};
pub use serve::{LoadServerTls, Logd, LogdOptions, LogdStats, serve};
