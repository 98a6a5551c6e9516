//! The network as the machines here see it: connections that carry whole frames, in order, until they break.
//!
//! In production a connection is a TCP stream, perhaps with TLS; in the simulator it is a queue whose frames a seed
//! delays, and whose break a seed decides. A frame that was sent may have arrived or not when a connection
//! breaks: only a reply tells.

use std::os::fd::BorrowedFd;

use perdura_base::Result;

/// Makes connections to nodes.
pub trait Net: Send + Sync {
    /// Begins a connection to a node. It returns at once: a node that cannot be reached is told by the
    /// connection's break.
    ///
    /// # Errors
    /// [`perdura_base::Error::Usage`] for an address that this network cannot have.
    fn connect(&self, address: &str) -> Result<Box<dyn Connection>>;
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
