//! The process of a node of the mirrored log, and the network that reaches it.
//!
//! The frames and rings of a node are in `perdura-mirror`; this crate has its sockets and threads. [`Logd`] is a node
//! that runs. [`TcpNet`] is the network through which a database's writer and its takeovers reach nodes.
//!
//! # Threads
//! One thread accepts, and each client has one, which blocks in a read. With few clients, each of which waits for its
//! replies, that is the shortest way from a frame's arrival to its reply. The node is under one lock, held for the copy
//! of a block. A writer on the node's machine needs no thread for a block: it writes into memory that the node shares.
//! With a directory for a hard copy, one more thread copies the rings to it. With a peer, one more thread greets that
//! peer.

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
