//! The client's side of the handshake on a new connection: hello, greeting, proof, welcome.

use perdura_base::Uuid;

use crate::auth::{Key, Nonce, Side, Terms};
use crate::ids::{Generation, Machine, NodeInc};
use crate::message::{Greeting, Reply, Request};

/// The facts about a client that are the same for all nodes.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The database.
    pub uuid: Uuid,
    /// The client's generation.
    pub generation: Generation,
    /// The key that the node must also have.
    pub key: Key,
    /// The minimum size of a node's rings, in bytes. The client cannot use a node with smaller rings.
    pub ring_bytes_min: u64,
}

/// The identity of a node, from its greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The incarnation of the node.
    pub inc: NodeInc,
    /// The node's machine.
    pub machine: Machine,
    /// The maximum number of bytes that one ring of the node can hold.
    pub ring_bytes: u64,
}

/// A handshake as the client sees it.
pub struct Handshake {
    nonce: Nonce,
    identity: Option<Identity>,
}

/// The result of taking a reply.
pub enum Greeted {
    /// The client must send this request.
    Say(Request<'static>),
    /// The handshake is done, and the node serves the client. The generation is the highest generation that the node
    /// has seen.
    Ready(Identity, Generation),
}

impl Handshake {
    /// Begins the handshake of a connection. `nonce` is a random number used only for this connection.
    #[must_use]
    pub fn new(nonce: Nonce) -> Handshake {
        Handshake {
            nonce,
            identity: None,
        }
    }

    /// Returns the client's first request.
    #[must_use]
    pub fn hello(&self, caller: &Caller) -> Request<'static> {
        Request::hello(caller.uuid, self.nonce)
    }

    /// Processes a reply of the node. Returns the client's next step.
    ///
    /// # Errors
    /// The reason why the client cannot use the node.
    pub fn take(&mut self, reply: &Reply<'_>, caller: &Caller) -> Result<Greeted, String> {
        match (reply, self.identity) {
            (Reply::Greeting(greeting), None) => self.greeted(greeting, caller),
            (Reply::Welcome { inc, generation }, Some(identity)) if identity.inc == *inc => {
                Ok(Greeted::Ready(identity, *generation))
            }
            (Reply::Refused(refused), _) => Err(format!("the node refuses: {}", refused.text)),
            (reply, _) => Err(format!("the node answers a greeting with {reply:?}")),
        }
    }

    fn greeted(&mut self, greeting: &Greeting, caller: &Caller) -> Result<Greeted, String> {
        let (ours, theirs) = (Greeting::version(), greeting.version);
        if theirs != ours {
            return Err(format!(
                "the node speaks version {theirs} of the protocol, not {ours}"
            ));
        }
        let terms = Terms {
            client: self.nonce,
            node: greeting.nonce,
            uuid: caller.uuid,
            inc: greeting.inc,
        };
        let proven = (caller.key).accepts(Side::Node, &terms, &greeting.proof);
        if caller.key.is_set() != greeting.keyed || !proven {
            let which = match (caller.key.is_set(), greeting.keyed) {
                (true, false) => "the node has no key, but this database has one",
                (false, true) => "the node needs a key, but this database has none",
                _ => "the node has another key",
            };
            return Err(format!(
                "{which}. Give both the same key (--key-file, log-key-file)"
            ));
        }
        if greeting.ring_bytes < caller.ring_bytes_min {
            return Err(format!(
                "the node's rings have {} bytes, but the log's tail may have {}. Start the node \
                 with a larger --ring",
                greeting.ring_bytes, caller.ring_bytes_min
            ));
        }
        self.identity = Some(Identity {
            inc: greeting.inc,
            machine: greeting.machine,
            ring_bytes: greeting.ring_bytes,
        });
        let proof = (caller.key).prove(Side::Client, &terms);
        Ok(Greeted::Say(Request::Proof(proof)))
    }
}
