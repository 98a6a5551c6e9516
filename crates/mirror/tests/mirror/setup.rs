//! Helpers that connect a client to a node in memory.

use perdura_base::{Pos, StreamId, Uuid};
use perdura_mirror::{
    Generation, Key, Machine, Node, NodeInc, NodeOptions, Nonce, Outcome, Peer, Reply, Request,
    Side, Terms,
};

pub const UUID: Uuid = Uuid([7; 16]);
pub const NONCE: Nonce = [1; 32];

pub fn options() -> NodeOptions {
    NodeOptions {
        ring_bytes: 64 << 10,
        rings_max: 8,
        key: Key::none(),
        machine: Machine([9; 16]),
        memories: None,
        inc: NodeInc(77),
    }
}

/// Returns a connection to the node. Its client has proven that it has the key.
pub fn welcomed(node: &mut Node, uuid: Uuid, key: &Key) -> Peer {
    welcome(node, Peer::new([2; 32]), uuid, key)
}

/// Performs the handshake on a new connection to the node.
pub fn welcome(node: &mut Node, mut peer: Peer, uuid: Uuid, key: &Key) -> Peer {
    let hello = node.handle(&mut peer, &Request::hello(uuid, NONCE).frame());
    let Reply::Greeting(greeting) = Reply::decode(&hello.reply).unwrap() else {
        panic!("{hello:?}");
    };
    let terms = Terms {
        client: NONCE,
        node: greeting.nonce,
        uuid,
        inc: greeting.inc,
    };
    let proof = key.prove(Side::Client, &terms);
    let welcome = node.handle(&mut peer, &Request::Proof(proof).frame());
    let welcome = Reply::decode(&welcome.reply).unwrap();
    assert!(matches!(welcome, Reply::Welcome { .. }), "{welcome:?}");
    peer
}

pub fn open(generation: u64, stream: u8, start: u64) -> Request<'static> {
    Request::Open {
        generation: Generation(generation),
        stream: StreamId(stream),
        start: Pos(start),
    }
}

pub fn append(generation: u64, stream: u8, (pos, low): (u64, u64), bytes: &[u8]) -> Request<'_> {
    Request::Append {
        generation: Generation(generation),
        stream: StreamId(stream),
        pos: Pos(pos),
        low: Pos(low),
        bytes,
        pad: 1,
    }
}

pub fn ask(node: &mut Node, peer: &mut Peer, request: &Request<'_>) -> Outcome {
    node.handle(peer, &request.frame())
}
