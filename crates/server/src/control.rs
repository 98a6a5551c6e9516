//! Messages from other threads to the event loop.

use crate::acl::prove::Proved;
use crate::command::server::info::Fields;
use crate::engine::{Db, Epoch, Error};
use crate::gate::Gate;
use crate::net::Newcomer;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tokio::sync::oneshot;

/// A message from another thread to the loop.
pub(crate) enum Message {
    /// The database has opened, or could not be opened.
    Opened(Result<Db, Error>),
    /// The database is open. Loop 0 has received [`Message::Opened`].
    Joined {
        /// The database.
        db: Db,
        /// The time of opening, seconds since 1970.
        at: u64,
    },
    /// A connection for this loop.
    Newcomer(Box<Newcomer>),
    /// Keys past their expiry have been removed.
    Expired {
        /// The keys, with their databases.
        keys: Vec<(u8, Vec<u8>)>,
        /// The epoch that makes the removal durable.
        epoch: Epoch,
    },
    /// The thread that checks passwords has checked one.
    Proved(Proved),
    /// The checkpoint of SAVE has ended. The client that requested it waits.
    Saved {
        /// The client's id.
        client: u64,
        /// The result of the checkpoint.
        result: Result<(), Error>,
    },
    /// A request for all fields of INFO. They are sent through this sender.
    Figures(oneshot::Sender<Fields>),
    /// A request to end, with a checkpoint or without.
    Stop {
        /// True if a checkpoint is to be made.
        checkpoint: bool,
    },
}

/// The sending end of the loop's messages, for any thread.
#[derive(Clone)]
pub(crate) struct Control {
    /// The sender of messages.
    pub sender: Sender<Message>,
    /// The gate, for the wake-up.
    pub gate: Arc<Gate>,
}

impl Control {
    /// Sends a message and wakes the loop. A message to an ended loop is dropped.
    pub(crate) fn send(&self, message: Message) {
        let _ = self.sender.send(message);
        self.gate.wake();
    }
}
