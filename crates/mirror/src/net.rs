//! The network as this crate uses it: connections that carry complete frames, in order, until they break.
//!
//! In production a connection is a TCP stream, perhaps with TLS. In the simulator a connection is a queue. A seed
//! decides the arrival times of frames and the time of a break. After a break, a sent frame may have arrived or not.
//! Only a reply shows the frame's arrival.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use perdura_base::Result;

use crate::handshake::Identity;
use crate::shared::Shared;

/// A factory of connections to nodes.
pub trait Net: Send + Sync {
    /// Begins to connect to a node, and returns at once. If the node cannot be reached, the connection breaks later.
    ///
    /// # Errors
    /// [`perdura_base::Error::Usage`] for an address that this network cannot have.
    fn connect(&self, address: &str) -> Result<Box<dyn Connection>>;

    /// Waits until bytes have arrived on one of the network's connections, a connection has broken, or the timeout is
    /// over. A simulated network does not wait.
    fn wait(&self, _timeout: Duration) {}

    /// Rereads from disk the files that new connections use, such as certificates. Returns whether the network uses
    /// such files.
    ///
    /// # Errors
    /// The reason why the new files cannot be used. The old files stay in use.
    fn reload(&self) -> Result<bool> {
        Ok(false)
    }

    /// Returns a connection over which a node shares its memory. `None`: the node is not on this machine, or does not
    /// share memory.
    fn local(&self, _node: &Identity) -> Option<Box<dyn Connection>> {
        None
    }
}

/// The result of sending a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The frame was taken.
    Yes,
    /// The connection is full for now, and no byte of the frame was taken.
    Full,
}

/// A connection to a node. No method waits.
pub trait Connection: Send {
    /// Sends a frame, given in two parts.
    ///
    /// # Errors
    /// The reason why the connection is broken. It stays broken.
    fn send(&mut self, head: &[u8], tail: &[u8]) -> Result<Sent, String>;

    /// Returns the next frame. `None`: no frame has arrived completely.
    ///
    /// # Errors
    /// The reason why the connection is broken. It stays broken.
    fn receive(&mut self) -> Result<Option<Vec<u8>>, String>;

    /// Returns the memory that came with the last received frame. `None`: the frame is not a reply that announces
    /// memory.
    fn memory(&mut self) -> Option<Arc<dyn Shared>> {
        None
    }

    /// Checks that the connection is not broken. While it is not broken, the node's process has not ended.
    ///
    /// # Errors
    /// The reason why the connection is broken. It stays broken.
    fn stands(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the descriptor that an idle thread passes to `poll`. The thread waits until the descriptor is readable
    /// or, if [`has_unsent`](Self::has_unsent) returns true, writable. Then it calls [`receive`](Self::receive), which
    /// also sends the unsent bytes.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns whether some bytes of the taken frames are not yet sent.
    fn has_unsent(&self) -> bool {
        false
    }
}
