//! The network as this crate's machines see it: connections that carry whole frames, in order, until they break.
//!
//! In production a connection is a TCP stream, perhaps with TLS. In the simulator it is a queue; a seed decides the
//! delay of its frames and its break. A frame that was sent may have arrived or not when a connection breaks. Only a
//! reply confirms it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use perdura_base::Result;

use crate::handshake::Identity;
use crate::shared::Shared;

/// A factory of connections to nodes.
pub trait Net: Send + Sync {
    /// Begins a connection to a node and returns at once. If the node cannot be reached, the connection breaks.
    ///
    /// # Errors
    /// [`perdura_base::Error::Usage`] for an address that is not possible on this network.
    fn connect(&self, address: &str) -> Result<Box<dyn Connection>>;

    /// Waits until something has arrived on one of the network's connections, one has broken, or the time is over.
    /// Networks whose time does not pass by itself do not wait.
    fn wait(&self, _timeout: Duration) {}

    /// Reads the material for future connections anew, such as certificates. Returns whether the network has any.
    ///
    /// # Errors
    /// The reason why it cannot be used. Nothing has changed then.
    fn reload(&self) -> Result<bool> {
        Ok(false)
    }

    /// Returns a connection to a node that passes memory. `None`: the node is not on this machine, or does not offer
    /// one.
    fn local(&self, _node: &Identity) -> Option<Box<dyn Connection>> {
        None
    }
}

/// The fate of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The frame is on its way.
    Yes,
    /// The connection takes no more for now, and nothing of the frame was taken.
    Full,
}

/// A connection to a node. No call waits.
pub trait Connection: Send {
    /// Sends a frame, given in two parts.
    ///
    /// # Errors
    /// The reason why the connection is broken, for good.
    fn send(&mut self, head: &[u8], tail: &[u8]) -> Result<Sent, String>;

    /// Returns the next frame. `None`: it has not arrived whole.
    ///
    /// # Errors
    /// The reason why the connection is broken, for good.
    fn receive(&mut self) -> Result<Option<Vec<u8>>, String>;

    /// Returns the memory that came with the last received frame. Only a reply that announces memory has one.
    fn memory(&mut self) -> Option<Arc<dyn Shared>> {
        None
    }

    /// Checks that the connection stands: the node's process has not ended.
    ///
    /// # Errors
    /// The reason why it is broken, for good.
    fn stands(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the descriptor on which an idle thread waits with `poll`. It waits for the descriptor to become
    /// readable, and, while [`has_unsent`](Self::has_unsent), writable. Then it calls [`receive`](Self::receive), which
    /// also sends the rest.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns whether bytes that were taken still wait for the network.
    fn has_unsent(&self) -> bool {
        false
    }
}
