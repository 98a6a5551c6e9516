//! The network as the machines here see it: connections that carry whole frames, in order, until they break.
//!
//! In production a connection is a TCP stream, perhaps with TLS; in the simulator it is a queue whose frames a seed
//! delays, and whose break a seed decides. A frame that was sent may have arrived or not when a connection
//! breaks: only a reply tells.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use perdura_base::Result;

use crate::handshake::Identity;
use crate::shared::Shared;

/// Makes connections to nodes.
pub trait Net: Send + Sync {
    /// Begins a connection to a node. It returns at once: a node that cannot be reached is told by the
    /// connection's break.
    ///
    /// # Errors
    /// [`perdura_base::Error::Usage`] for an address that this network cannot have.
    fn connect(&self, address: &str) -> Result<Box<dyn Connection>>;

    /// Waits until something has arrived on one of the network's connections, or one has broken, or for so long. Networks
    /// whose time does not pass by itself do not wait.
    fn wait(&self, _timeout: Duration) {}

    /// Reads anew what connections to come are made with, such as certificates. Returns whether there is any.
    ///
    /// # Errors
    /// The reason why it cannot be used; then all stays as it was.
    fn reload(&self) -> Result<bool> {
        Ok(false)
    }

    /// A connection to a node that passes memory, if the node is on this machine and offers one.
    fn local(&self, _node: &Identity) -> Option<Box<dyn Connection>> {
        None
    }
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Yes,
    /// The connection takes no more for now, and nothing of the frame was taken.
    Full,
}

/// A connection to a node. No call waits.
pub trait Connection: Send {
    /// Sends a frame, given in two parts.
    ///
    /// # Errors
    /// Why the connection is broken, for good.
    fn send(&mut self, head: &[u8], tail: &[u8]) -> Result<Sent, String>;

    /// The next frame that has arrived whole, if there is one.
    ///
    /// # Errors
    /// Why the connection is broken, for good.
    fn receive(&mut self) -> Result<Option<Vec<u8>>, String>;

    /// The memory that came with the frame that was received last: with a reply that says so, and no other.
    fn memory(&mut self) -> Option<Arc<dyn Shared>> {
        None
    }

    /// Whether the connection stands: the node's process has not ended.
    ///
    /// # Errors
    /// Why it is broken, for good.
    fn stands(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// What a thread that has nothing else to do waits for with `poll`: to become readable, and, while
    /// [`has_unsent`](Self::has_unsent), writable. Then it calls [`receive`](Self::receive), which also sends what was left.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether something that was taken waits for the network.
    fn has_unsent(&self) -> bool {
        false
    }
}
