//! Tests of the bytes that a node keeps, returns and refuses.

use perdura_base::{Pos, StreamId, Uuid};
use perdura_mirror::hard_copy::Earlier;
use perdura_mirror::{
    Generation, Held, Key, Node, NodeInc, NodeOptions, Outcome, Peer, Reason, Refused, Reply,
    Request, RingState, Side, Terms,
};

use crate::setup::{NONCE, UUID, append, ask, open, options, welcomed};

fn held(outcome: &Outcome) -> Held {
    match Reply::decode(&outcome.reply) {
        Ok(Reply::Held(held)) => held,
        other => panic!("{other:?}"),
    }
}

fn refused(outcome: &Outcome) -> Refused {
    match Reply::decode(&outcome.reply) {
        Ok(Reply::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

fn ring(generation: u64, stream: u8, low: u64, end: u64) -> RingState {
    RingState {
        generation: Generation(generation),
        stream: StreamId(stream),
        low: Pos(low),
        end: Pos(end),
    }
}

fn read(generation: u64, stream: u8, from: u64) -> Request<'static> {
    Request::Read {
        generation: Generation(generation),
        stream: StreamId(stream),
        from: Pos(from),
        len: 1000,
    }
}

fn bytes(outcome: &Outcome) -> Vec<u8> {
    match Reply::decode(&outcome.reply) {
        Ok(Reply::Bytes { bytes, .. }) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn blocks_come_back_after_a_seal_and_until_the_ring_is_retired() {
    let mut node = Node::new(options());
    let mut writer = welcomed(&mut node, UUID, &Key::none());
    let opened = held(&ask(&mut node, &mut writer, &open(1, 0, 4096)));
    assert_eq!(
        (opened.inc, opened.ring),
        (NodeInc(77), ring(1, 0, 4096, 4096))
    );
    let first = held(&ask(
        &mut node,
        &mut writer,
        &append(1, 0, (4096, 4096), b"abc"),
    ));
    assert_eq!(first.ring, ring(1, 0, 4096, 4100));
    let second = held(&ask(
        &mut node,
        &mut writer,
        &append(1, 0, (4100, 4098), b"def"),
    ));
    assert_eq!(second.ring, ring(1, 0, 4098, 4104));

    let mut taker = welcomed(&mut node, UUID, &Key::none());
    let seal = Request::Seal {
        generation: Generation(2),
    };
    let sealed = ask(&mut node, &mut taker, &seal);
    let Ok(Reply::Sealed(sealed)) = Reply::decode(&sealed.reply) else {
        panic!("{sealed:?}");
    };
    assert_eq!(sealed.rings, [ring(1, 0, 4098, 4104)]);
    assert_eq!(
        (sealed.inc, sealed.generation),
        (NodeInc(77), Generation(2))
    );

    for late in [append(1, 0, (4104, 4098), b"late"), open(1, 1, 0)] {
        let why = refused(&ask(&mut node, &mut writer, &late));
        assert_eq!(
            (why.reason, why.generation),
            (Reason::Generation, Generation(2))
        );
    }
    assert_eq!(
        bytes(&ask(&mut node, &mut taker, &read(1, 0, 4098))),
        b"c\0def\0"
    );
    assert_eq!(
        bytes(&ask(&mut node, &mut taker, &read(1, 0, 4101))),
        b"ef\0"
    );
    held(&ask(&mut node, &mut taker, &open(2, 0, 8192)));
    let retire = Request::Retire {
        generation: Generation(2),
    };
    ask(&mut node, &mut taker, &retire);
    let why = refused(&ask(&mut node, &mut taker, &read(1, 0, 4098)));
    assert_eq!(why.reason, Reason::NoRing);
    assert_eq!(node.stats().rings, 1);
}

#[test]
fn a_ring_that_reaches_the_start_is_kept_and_another_one_begins_there() {
    let mut node = Node::new(options());
    let mut writer = welcomed(&mut node, UUID, &Key::none());
    held(&ask(&mut node, &mut writer, &open(1, 0, 0)));
    held(&ask(&mut node, &mut writer, &append(1, 0, (0, 0), b"abc")));
    let again = held(&ask(&mut node, &mut writer, &open(1, 0, 4)));
    assert_eq!(again.ring, ring(1, 0, 0, 4));
    let behind = held(&ask(&mut node, &mut writer, &open(1, 0, 4096)));
    assert_eq!(behind.ring, ring(1, 0, 4096, 4096));
}

#[test]
fn a_gap_a_repetition_and_a_block_without_room_are_refused_and_change_nothing() {
    let mut node = Node::new(options());
    let mut writer = welcomed(&mut node, UUID, &Key::none());
    let why = refused(&ask(&mut node, &mut writer, &append(1, 0, (0, 0), b"abc")));
    assert_eq!(why.reason, Reason::NoRing);
    held(&ask(&mut node, &mut writer, &open(1, 0, 0)));
    held(&ask(&mut node, &mut writer, &append(1, 0, (0, 0), b"abc")));
    for pos in [0, 3, 5, 4096] {
        let why = refused(&ask(&mut node, &mut writer, &append(1, 0, (pos, 0), b"x")));
        assert_eq!((why.reason, why.pos), (Reason::Position, Pos(4)));
    }
    let large = vec![1; 64 << 10];
    let why = refused(&ask(&mut node, &mut writer, &append(1, 0, (4, 0), &large)));
    assert_eq!(why.reason, Reason::Full);
    let why = refused(&ask(&mut node, &mut writer, &append(1, 0, (4, 5), b"x")));
    assert_eq!(why.reason, Reason::Malformed);
    assert_eq!(
        bytes(&ask(&mut node, &mut writer, &read(1, 0, 0))),
        b"abc\0"
    );
    let room = vec![1; (64 << 10) - 1];
    let full = held(&ask(&mut node, &mut writer, &append(1, 0, (4, 4), &room)));
    assert_eq!(full.ring, ring(1, 0, 4, 4 + (64 << 10)));
}

#[test]
fn databases_do_not_see_each_other_and_rings_have_a_bound() {
    let mut node = Node::new(options());
    let mut one = welcomed(&mut node, UUID, &Key::none());
    let mut other = welcomed(&mut node, Uuid([8; 16]), &Key::none());
    for stream in 0..7 {
        held(&ask(&mut node, &mut one, &open(9, stream, 0)));
    }
    let why = refused(&ask(&mut node, &mut other, &read(9, 0, 0)));
    assert_eq!(
        (why.reason, why.generation),
        (Reason::NoRing, Generation(0))
    );
    held(&ask(&mut node, &mut other, &open(1, 0, 0)));
    let why = refused(&ask(&mut node, &mut other, &open(1, 1, 0)));
    assert_eq!(why.reason, Reason::Memory);
    assert_eq!(node.stats().databases, 2);
}

#[test]
fn a_node_with_a_key_serves_those_who_have_it() {
    let key = Key::from_file("k", b"0123456789abcdef").unwrap();
    let keyed = || {
        Node::new(NodeOptions {
            key: key.clone(),
            ..options()
        })
    };
    let mut node = keyed();
    welcomed(&mut node, UUID, &key);
    let other = Key::from_file("k", b"fedcba9876543210").unwrap();
    for wrong in [Key::none(), other] {
        let mut node = keyed();
        let mut peer = Peer::new([2; 32]);
        ask(&mut node, &mut peer, &Request::hello(UUID, NONCE));
        let terms = Terms {
            client: NONCE,
            node: [2; 32],
            uuid: UUID,
            inc: NodeInc(77),
        };
        let proof = wrong.prove(Side::Client, &terms);
        let outcome = ask(&mut node, &mut peer, &Request::Proof(proof));
        assert!(outcome.ends && refused(&outcome).reason == Reason::Key);
        let outcome = ask(&mut node, &mut peer, &open(1, 0, 0));
        assert!(outcome.ends && refused(&outcome).reason == Reason::Malformed);
        assert_eq!(node.stats().rings, 0);
    }
}

#[test]
fn another_version_is_refused_by_name() {
    let mut node = Node::new(options());
    let mut peer = Peer::new([2; 32]);
    let hello = Request::Hello {
        version: 2,
        uuid: UUID,
        nonce: NONCE,
    };
    let outcome = ask(&mut node, &mut peer, &hello);
    let why = refused(&outcome);
    assert!(outcome.ends && why.reason == Reason::Version);
    assert!(why.text.contains("version 1") && why.text.contains("not 2"));
}

#[test]
fn a_node_without_memory_says_so() {
    let mut node = Node::new(NodeOptions {
        ring_bytes: u64::MAX / 4,
        ..options()
    });
    let mut peer = welcomed(&mut node, UUID, &Key::none());
    let why = refused(&ask(&mut node, &mut peer, &open(1, 0, 0)));
    assert_eq!(why.reason, Reason::Memory);
}

#[test]
fn a_node_remembers_a_bounded_number_of_databases_and_serves_those_it_knows() {
    let mut node = Node::new(options());
    let seal = Request::Seal {
        generation: Generation(1),
    };
    let mut name = |number: u32, request: &Request<'_>| {
        let mut uuid = Uuid([0; 16]);
        uuid.0[..4].copy_from_slice(&number.to_le_bytes());
        let mut peer = welcomed(&mut node, uuid, &Key::none());
        ask(&mut node, &mut peer, request)
    };
    for number in 0..4096 {
        let sealed = name(number, &seal);
        assert!(matches!(Reply::decode(&sealed.reply), Ok(Reply::Sealed(_))));
    }
    for request in [seal, open(1, 0, 0)] {
        assert_eq!(refused(&name(5000, &request)).reason, Reason::Memory);
        assert!(!matches!(
            Reply::decode(&name(4000, &request).reply),
            Ok(Reply::Refused(_))
        ));
    }
}

/// A client may name an earlier start of the node. Then the client gets that start's bytes from the hard copy, until
/// the bytes are retired.
#[test]
fn a_node_returns_what_an_earlier_start_has_left_and_seals_by_that() {
    let mut node = Node::new(options());
    node.remember(vec![Earlier {
        inc: NodeInc(5),
        uuid: UUID,
        generation: Generation(3),
        stream: StreamId(1),
        low: Pos(4096),
        bytes: vec![9; 5000],
    }]);
    let mut peer = welcomed(&mut node, UUID, &Key::none());
    let mut stranger = welcomed(&mut node, Uuid([1; 16]), &Key::none());
    let recall = |inc: u64| Request::Recall {
        generation: Generation(4),
        inc: NodeInc(inc),
    };
    for (peer, inc) in [(&mut peer, 6), (&mut stranger, 5)] {
        let outcome = ask(&mut node, peer, &recall(inc));
        assert_eq!(refused(&outcome).reason, Reason::NoRing);
    }
    let outcome = ask(&mut node, &mut peer, &recall(5));
    let Reply::Sealed(sealed) = Reply::decode(&outcome.reply).unwrap() else {
        panic!("{outcome:?}");
    };
    assert_eq!(
        (sealed.inc, sealed.rings),
        (NodeInc(5), vec![ring(3, 1, 4096, 9096)])
    );
    // The request for the earlier start's bytes has sealed the generation. So the writer of generation 3 is refused.
    let late = ask(&mut node, &mut peer, &open(3, 1, 0));
    assert_eq!(refused(&late).reason, Reason::Generation);
    let reread = |inc: u64, from: u64| Request::Reread {
        inc: NodeInc(inc),
        generation: Generation(3),
        stream: StreamId(1),
        from: Pos(from),
        len: 3000,
    };
    assert_eq!(
        bytes(&ask(&mut node, &mut peer, &reread(5, 4096))).len(),
        3000
    );
    assert_eq!(
        bytes(&ask(&mut node, &mut peer, &reread(5, 8096))).len(),
        1000
    );
    for wrong in [reread(6, 4096), reread(5, 4095), reread(5, 9097)] {
        let outcome = ask(&mut node, &mut peer, &wrong);
        assert_eq!(refused(&outcome).reason, Reason::NoRing);
    }
    ask(
        &mut node,
        &mut peer,
        &Request::Retire {
            generation: Generation(4),
        },
    );
    let outcome = ask(&mut node, &mut peer, &recall(5));
    assert_eq!(refused(&outcome).reason, Reason::NoRing);
}

/// Regression: a node accepted a block at the largest position, and the node's reply broke the format page's rules.
#[test]
fn no_ring_goes_behind_the_last_position() {
    let mut node = Node::new(options());
    let mut peer = welcomed(&mut node, UUID, &Key::none());
    let last = 1 << 62;
    let outcome = ask(&mut node, &mut peer, &open(1, 0, last));
    assert_eq!(held(&outcome).ring, ring(1, 0, last, last));
    let outcome = ask(&mut node, &mut peer, &append(1, 0, (last, last), b"x"));
    assert_eq!(refused(&outcome).reason, Reason::Malformed);
    let mut peer = welcomed(&mut node, UUID, &Key::none());
    let outcome = ask(&mut node, &mut peer, &open(1, 1, last + 1));
    assert_eq!(refused(&outcome).reason, Reason::Malformed);
}
