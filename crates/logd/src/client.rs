//! A client that waits for its replies. Measurements and tools use it. A database's writer never waits, and uses
//! other code.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura_mirror::{
    Caller, Connection, Greeted, Handshake, Identity, Malformed, Net, Refused, Reply, Request,
    Sent, Shared,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::identity::draw_nonce;

/// The reason why a client could not use a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ungreeted {
    /// The client has no connection, the connection has ended, or the node has sent nothing over it.
    Away(String),
    /// The client cannot use the node, or the node refuses the client.
    Unfit(String),
}

impl Ungreeted {
    fn why(self) -> String {
        match self {
            Ungreeted::Away(why) | Ungreeted::Unfit(why) => why,
        }
    }
}

/// A connection to a node after the *welcome*.
pub struct Client {
    connection: Box<dyn Connection>,
    identity: Identity,
    patience: Duration,
    spin: bool,
}

impl Client {
    /// Connects. The node and the client then prove to each other their knowledge of the key. No call waits longer than
    /// `patience`.
    ///
    /// # Errors
    /// Fails with the reason why no connection was made, or why the client cannot use the node.
    pub fn connect(
        net: &dyn Net,
        address: &str,
        caller: &Caller,
        patience: Duration,
    ) -> Result<Client, String> {
        Client::greeted(net, address, caller, patience).map_err(Ungreeted::why)
    }

    /// Like [`connect`](Self::connect), but the error says whether the connection is missing or the node cannot be
    /// used.
    pub(crate) fn greeted(
        net: &dyn Net,
        address: &str,
        caller: &Caller,
        patience: Duration,
    ) -> Result<Client, Ungreeted> {
        let connection = net.connect(address);
        let connection = connection.map_err(|error| Ungreeted::Away(error.to_string()))?;
        Client::greet(connection, caller, patience)
    }

    /// Like [`connect`](Self::connect), but connects over a Unix socket. The node must be on this machine, and shares
    /// its memory over this socket.
    ///
    /// # Errors
    /// Fails with the reason why no connection was made, or why the client cannot use the node.
    pub fn connect_here(
        net: &dyn Net,
        node: &Identity,
        caller: &Caller,
        patience: Duration,
    ) -> Result<Client, String> {
        let connection = net.local(node);
        let connection = connection.ok_or("the node offers no memory on this machine")?;
        Client::greet(connection, caller, patience).map_err(Ungreeted::why)
    }

    fn greet(
        mut connection: Box<dyn Connection>,
        caller: &Caller,
        patience: Duration,
    ) -> Result<Client, Ungreeted> {
        let nonce = draw_nonce().map_err(|error| Ungreeted::Away(error.to_string()))?;
        let mut handshake = Handshake::new(nonce);
        let mut say = handshake.hello(caller);
        let identity = loop {
            let sent = send(connection.as_mut(), &say, patience);
            let frame = sent.and_then(|()| receive(connection.as_mut(), patience, false));
            let frame = frame.map_err(Ungreeted::Away)?;
            let reply = Reply::decode(&frame).map_err(|why| unexpected(Err(why)));
            let taken = reply.and_then(|reply| handshake.take(&reply, caller));
            match taken.map_err(Ungreeted::Unfit)? {
                Greeted::Say(next) => say = next,
                Greeted::Ready(identity, _) => break identity,
            }
        };
        Ok(Client {
            connection,
            identity,
            patience,
            spin: false,
        })
    }

    /// Returns the identity of the node.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the memory that came with the last reply. `None`: no memory came with it.
    pub fn memory(&mut self) -> Option<Arc<dyn Shared>> {
        self.connection.memory()
    }

    /// Checks that the connection is intact.
    ///
    /// # Errors
    /// Fails with the reason why the connection is broken.
    pub fn stands(&mut self) -> Result<(), String> {
        self.connection.stands()
    }

    /// Sets whether the client polls for replies instead of sleeping.
    pub fn set_spin(&mut self, spin: bool) {
        self.spin = spin;
    }

    /// Sends a request. Does not wait for the reply.
    ///
    /// # Errors
    /// Fails with the reason why the connection is broken.
    pub fn send(&mut self, request: &Request<'_>) -> Result<(), String> {
        send(self.connection.as_mut(), request, self.patience)
    }

    /// Waits for the next reply and returns its frame. The caller decodes it.
    ///
    /// # Errors
    /// Fails with the reason why the connection is broken, or if the node does not reply in time.
    pub fn receive(&mut self) -> Result<Vec<u8>, String> {
        receive(self.connection.as_mut(), self.patience, self.spin)
    }

    /// Sends a request and returns the reply.
    ///
    /// # Errors
    /// Fails like [`send`](Self::send) and [`receive`](Self::receive).
    pub fn ask(&mut self, request: &Request<'_>) -> Result<Vec<u8>, String> {
        self.send(request)?;
        self.receive()
    }
}

/// Returns a description of an unexpected reply.
#[must_use]
pub fn unexpected(reply: Result<Reply<'_>, Malformed>) -> String {
    match reply {
        Ok(Reply::Refused(Refused { text, .. })) => format!("the node refuses: {text}"),
        Ok(other) => format!("the node sent an unexpected reply: {other:?}"),
        Err(malformed) => format!("the node sent an invalid frame: {malformed}"),
    }
}

fn send(to: &mut dyn Connection, request: &Request<'_>, patience: Duration) -> Result<(), String> {
    let (head, tail) = (request.head(), request.tail());
    let begin = Instant::now();
    while to.send(&head, tail)? == Sent::Full {
        if begin.elapsed() >= patience {
            return Err("the node accepts no more data".into());
        }
        wait(to, patience);
    }
    Ok(())
}

fn receive(from: &mut dyn Connection, patience: Duration, spin: bool) -> Result<Vec<u8>, String> {
    let begin = Instant::now();
    loop {
        if let Some(frame) = from.receive()? {
            return Ok(frame);
        }
        if begin.elapsed() >= patience {
            return Err(format!(
                "the node has not answered for {} ms",
                patience.as_millis()
            ));
        }
        if spin {
            std::hint::spin_loop();
        } else {
            wait(from, patience);
        }
    }
}

/// Sleeps until the connection has bytes to read or room for unsent bytes.
fn wait(connection: &dyn Connection, patience: Duration) {
    let Some(fd) = connection.fd() else { return };
    let flags = match connection.has_unsent() {
        true => PollFlags::IN | PollFlags::OUT,
        false => PollFlags::IN,
    };
    let timeout = Timespec::try_from(patience).ok();
    // If the wait was interrupted, the caller just checks again.
    let _ = poll(&mut [PollFd::from_borrowed_fd(fd, flags)], timeout.as_ref());
}
