//! The peer: the other node of a pair. This node checks whether the peer is running, and whether the two can be a
//! mirror.
//!
//! A database finds out without help which of its nodes are running. But some mistakes stay hidden until the database
//! needs the nodes: both nodes on one machine, rings of different sizes, one node used twice. A node can report these
//! mistakes to the operator during the setup. So a node with a known peer greets the peer at the start, and then every
//! few seconds ("Greeting" in docs/formats/logd.md). The node logs a line when the result of the greeting changes.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use perdura_base::{Error, Result, Uuid};
use perdura_mirror::{Caller, Generation, Identity, Key, NodeInc};

use crate::client::{Client, Ungreeted};
use crate::net::TcpNet;
use crate::threads;

/// The time from one greeting to the next.
const EVERY: Duration = Duration::from_secs(2);
/// The longest time to wait for each frame of the peer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The other node of the pair.
#[derive(Clone)]
pub struct PeerOptions {
    /// The address of the peer, `HOST:PORT`.
    pub address: String,
    /// The network over which the peer is reached.
    pub net: TcpNet,
    /// True if the peer may run on this node's machine.
    pub one_machine: bool,
}

impl PeerOptions {
    /// Checks that the peer is not this node itself.
    ///
    /// # Errors
    /// Fails with [`Error::Usage`] if this node itself listens on the address.
    pub fn check(&self, listens: &[SocketAddr]) -> Result<()> {
        let peer = self.net.resolved(&self.address);
        match listens.iter().find(|own| Some(**own) == peer) {
            None => Ok(()),
            Some(own) => Err(Error::Usage(format!(
                "the peer {} is this node's own address, {own}. Give the address of the other \
                 node of the pair",
                self.address
            ))),
        }
    }
}

/// The peer's state as it was last logged.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    /// The peer has not answered yet.
    Never,
    /// The peer answered the last greeting. The second field is the reason why the two nodes cannot be a mirror.
    /// `None`: they can.
    Here(NodeInc, Option<String>),
    /// The peer had answered before, and did not answer the last greeting.
    Lost(NodeInc),
}

/// A node and its peer.
struct Pair {
    peer: PeerOptions,
    caller: Caller,
    own: Identity,
    seen: Seen,
}

impl Pair {
    /// Greets the peer.
    fn greet(&self) -> std::result::Result<Identity, Ungreeted> {
        let (net, address) = (&self.peer.net, &self.peer.address);
        let client = Client::greeted(net, address, &self.caller, PATIENCE)?;
        Ok(client.identity())
    }

    /// Returns the reason why the two nodes cannot be a mirror. `None`: they can.
    fn misfit(&self, peer: &Identity) -> Option<String> {
        let (own, address) = (&self.own, &self.peer.address);
        if peer.inc == own.inc {
            return Some(format!(
                "the peer {address} is this node itself, {}. Give the address of the other node \
                 of the pair",
                own.inc
            ));
        }
        if peer.machine == own.machine && !self.peer.one_machine {
            return Some(format!(
                "the peer {address}, node {}, is on the same machine as this node, {}: both are \
                 on {}, and would fail together. Run one of them on another machine, or give \
                 --one-machine",
                peer.inc, own.inc, own.machine
            ));
        }
        (peer.ring_bytes != own.ring_bytes).then(|| {
            format!(
                "the peer {address} has rings of {} bytes, but this node has rings of {}. Give \
                 both the same --ring",
                peer.ring_bytes, own.ring_bytes
            )
        })
    }

    /// Records the result of a greeting, and logs a line if the result has changed.
    fn report(&mut self, found: std::result::Result<Identity, Ungreeted>) {
        let Some(line) = self.note(found) else { return };
        match self.seen {
            Seen::Here(_, None) => tracing::info!("{line}"),
            _ => tracing::warn!("{line}"),
        }
    }

    /// Records the result of a greeting. Returns the line to log. `None`: nothing has changed.
    fn note(&mut self, found: std::result::Result<Identity, Ungreeted>) -> Option<String> {
        let address = &self.peer.address;
        let (peer, misfit) = match found {
            Ok(peer) => (peer, self.misfit(&peer)),
            Err(Ungreeted::Away(why) | Ungreeted::Unfit(why)) => {
                let Seen::Here(inc, _) = self.seen else {
                    return None;
                };
                self.seen = Seen::Lost(inc);
                return Some(format!("The peer {address}, node {inc}, is lost: {why}"));
            }
        };
        let now = Seen::Here(peer.inc, misfit);
        let before = std::mem::replace(&mut self.seen, now.clone());
        if before == now {
            return None;
        }
        let is_one = |inc: NodeInc| inc == peer.inc;
        let mut line = match before {
            Seen::Never => format!(
                "The peer {address} is node {} of machine {}, with rings of {} bytes",
                peer.inc, peer.machine, peer.ring_bytes
            ),
            Seen::Lost(inc) if is_one(inc) => {
                format!("The peer {address} is back: node {inc} was not restarted")
            }
            Seen::Here(inc, _) if is_one(inc) => {
                format!("The peer {address}, node {inc}, has changed")
            }
            Seen::Here(inc, _) | Seen::Lost(inc) => format!(
                "The peer {address} is back as node {}: it was restarted and has lost the \
                 contents of node {inc}",
                peer.inc
            ),
        };
        if let Seen::Here(_, Some(misfit)) = now {
            line.push_str(&format!("; BUT {misfit}"));
        }
        Some(line)
    }
}

/// A thread that greets a peer until this value is dropped.
pub(crate) struct Watch(
    #[expect(dead_code, reason = "its end is what the thread waits for")] Sender<()>,
);

impl Watch {
    /// Greets the peer once now, and then repeatedly in the background. A peer that does not answer is not an error,
    /// because the nodes of a pair may start in any order.
    ///
    /// # Errors
    /// Fails with [`Error::Usage`] if the two nodes cannot be a mirror.
    pub(crate) fn start(peer: PeerOptions, key: Key, own: Identity) -> Result<Watch> {
        let caller = Caller {
            uuid: Uuid([0; 16]),
            generation: Generation(0),
            key,
            ring_bytes_min: 0,
        };
        let mut pair = Pair {
            peer,
            caller,
            own,
            seen: Seen::Never,
        };
        match pair.greet() {
            Ok(found) => match pair.misfit(&found) {
                Some(why) => return Err(Error::Usage(why)),
                None => pair.report(Ok(found)),
            },
            Err(Ungreeted::Unfit(why)) => {
                let address = &pair.peer.address;
                return Err(Error::Usage(format!("the peer {address}: {why}")));
            }
            Err(Ungreeted::Away(why)) => tracing::warn!(
                "The peer {} cannot be reached yet: {why}. This node continues and tries again",
                pair.peer.address
            ),
        }
        let (stop, stopped) = channel();
        let thread = threads::spawn("logd peer", move || watch(pair, &stopped));
        thread.map_err(|e| Error::io("start", "a thread", e))?;
        Ok(Watch(stop))
    }
}

fn watch(mut pair: Pair, stopped: &Receiver<()>) {
    while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        let found = pair.greet();
        pair.report(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perdura_mirror::Machine;

    fn identity(inc: u64, machine: u8, ring_bytes: u64) -> Identity {
        Identity {
            inc: NodeInc(inc),
            machine: Machine([machine; 16]),
            ring_bytes,
        }
    }

    fn pair(one_machine: bool) -> Pair {
        let address = "127.0.0.1:9";
        Pair {
            peer: PeerOptions {
                address: address.into(),
                net: TcpNet::new(&[address.into()], None).unwrap(),
                one_machine,
            },
            caller: Caller {
                uuid: Uuid([0; 16]),
                generation: Generation(0),
                key: Key::none(),
                ring_bytes_min: 0,
            },
            own: identity(1, 1, 64),
            seen: Seen::Never,
        }
    }

    fn away() -> std::result::Result<Identity, Ungreeted> {
        Err(Ungreeted::Away("refused".into()))
    }

    #[test]
    fn what_changes_is_said_once() {
        let mut pair = pair(false);
        let steps: [(std::result::Result<Identity, Ungreeted>, &str); 10] = [
            (away(), ""),
            (Ok(identity(2, 2, 64)), "is node 0000000000000002"),
            (Ok(identity(2, 2, 64)), ""),
            (away(), "node 0000000000000002, is lost: refused"),
            (away(), ""),
            (Ok(identity(2, 2, 64)), "was not restarted"),
            (Ok(identity(3, 2, 64)), "back as node 0000000000000003"),
            (
                Err(Ungreeted::Unfit("another key".into())),
                "is lost: another key",
            ),
            (
                Ok(identity(4, 2, 32)),
                "contents of node 0000000000000003; BUT the peer",
            ),
            (Ok(identity(4, 2, 32)), ""),
        ];
        for (number, (found, words)) in steps.into_iter().enumerate() {
            let said = pair.note(found).unwrap_or_default();
            assert!(said.contains(words), "{number}: {said}");
            assert_eq!(said.is_empty(), words.is_empty(), "{number}: {said}");
        }
    }

    #[test]
    fn two_nodes_that_cannot_be_a_mirror_are_named() {
        let misfit = |pair: &Pair, peer: Identity| pair.misfit(&peer).unwrap_or_default();
        let (strict, lax) = (pair(false), pair(true));
        for pair in [&strict, &lax] {
            assert!(misfit(pair, identity(1, 1, 64)).contains("this node itself"));
            let rings = misfit(pair, identity(2, 2, 32));
            assert!(
                rings.contains("rings of 32 bytes, but this node has rings of 64"),
                "{rings}"
            );
            assert_eq!(misfit(pair, identity(2, 2, 64)), "");
        }
        let same = misfit(&strict, identity(2, 1, 64));
        for words in ["0000000000000001", "0000000000000002", "--one-machine"] {
            assert!(same.contains(words), "{same}");
        }
        assert_eq!(misfit(&lax, identity(2, 1, 64)), "");
    }

    #[test]
    fn a_node_is_not_its_own_peer() {
        let peer = pair(true).peer;
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(peer.check(&[address("127.0.0.1:9")]).is_err());
        assert!(
            peer.check(&[address("127.0.0.1:8"), address("10.0.0.1:9")])
                .is_ok()
        );
    }
}
