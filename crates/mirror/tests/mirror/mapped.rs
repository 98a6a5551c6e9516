//! Tests of a ring that a node shares with the writer on its machine: what the node and the writer may do, and when.

use std::sync::Arc;

use perdura_base::checksum::crc32c;
use perdura_base::{Pos, StreamId};
use perdura_mirror::{
    Generation, Held, Key, Memories, Node, NodeOptions, Outcome, Peer, Reason, Reply, Request,
    Shared,
};

use crate::setup::{UUID, append, ask, open, options, welcome, welcomed};

fn node() -> Node {
    Node::new(NodeOptions {
        memories: Some(Memories::on_heap()),
        ..options()
    })
}

fn local(node: &mut Node) -> Peer {
    welcome(node, Peer::local([3; 32]), UUID, &Key::none())
}

fn map(generation: u64, start: u64) -> Request<'static> {
    Request::Map {
        generation: Generation(generation),
        stream: StreamId(0),
        start: Pos(start),
    }
}

fn mapped(outcome: &Outcome) -> Held {
    let memory = outcome
        .memory
        .as_ref()
        .expect("memory comes with the reply");
    match Reply::decode(&outcome.reply) {
        Ok(Reply::Mapped(held, bytes)) => {
            assert_eq!(usize::try_from(bytes), Ok(memory.len()));
            held
        }
        other => panic!("{other:?}"),
    }
}

fn reason(outcome: &Outcome) -> Reason {
    match Reply::decode(&outcome.reply) {
        Ok(Reply::Refused(refused)) => refused.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_ring_is_moved_to_shared_memory_and_back_with_what_it_holds() {
    let mut node = node();
    let (mut far, mut near) = (welcomed(&mut node, UUID, &Key::none()), local(&mut node));
    ask(&mut node, &mut far, &open(1, 0, 4096));
    ask(&mut node, &mut far, &append(1, 0, (4096, 4096), b"abc"));
    let held = mapped(&ask(&mut node, &mut near, &map(1, 4096)));
    assert_eq!((held.ring.low, held.ring.end), (Pos(4096), Pos(4100)));
    // A frame that the writer sent over its earlier connection arrives late. It is refused, because a mapped ring has
    // one writer.
    let late = ask(&mut node, &mut far, &append(1, 0, (4100, 4096), b"late"));
    assert_eq!(reason(&late), Reason::NoRing);
    let again = mapped(&ask(&mut node, &mut near, &map(1, 4096)));
    assert_eq!(again, held);
    ask(&mut node, &mut far, &open(1, 0, 4096));
    let on = ask(&mut node, &mut far, &append(1, 0, (4100, 4098), b"def"));
    assert!(
        matches!(Reply::decode(&on.reply), Ok(Reply::Held(held)) if held.ring.end == Pos(4104))
    );
    let read = Request::Read {
        generation: Generation(1),
        stream: StreamId(0),
        from: Pos(4098),
        len: 100,
    };
    let read = ask(&mut node, &mut far, &read).reply;
    assert!(matches!(
        Reply::decode(&read),
        Ok(Reply::Bytes {
            bytes: b"c\0def\0",
            ..
        })
    ));
}

#[test]
fn a_ring_that_ends_before_begins_again() {
    let mut node = node();
    let mut near = local(&mut node);
    mapped(&ask(&mut node, &mut near, &map(1, 4096)));
    let held = mapped(&ask(&mut node, &mut near, &map(1, 8192)));
    assert_eq!((held.ring.low, held.ring.end), (Pos(8192), Pos(8192)));
}

#[test]
fn memory_is_for_clients_on_the_machine_and_for_the_newest_writer() {
    let mut node = node();
    let (mut far, mut near) = (welcomed(&mut node, UUID, &Key::none()), local(&mut node));
    mapped(&ask(&mut node, &mut near, &map(5, 0)));
    let refused = ask(&mut node, &mut near, &map(4, 0));
    assert_eq!(reason(&refused), Reason::Generation);
    assert!(refused.memory.is_none());
    let refused = ask(&mut node, &mut far, &map(5, 0));
    assert_eq!(reason(&refused), Reason::Malformed);
    assert!(refused.ends && refused.memory.is_none());
}

/// The first request of a newer writer closes a mapped ring, even if the request is not a seal.
#[test]
fn a_mapped_ring_is_closed_when_the_generation_rises() {
    let seal = Request::Seal {
        generation: Generation(6),
    };
    for newer in [seal, open(6, 1, 0), map(6, 0)] {
        let mut node = node();
        let mut near = local(&mut node);
        let memory = ask(&mut node, &mut near, &map(5, 0)).memory.unwrap();
        assert_eq!(memory.load(64), 0);
        ask(&mut node, &mut near, &newer);
        assert_eq!(memory.load(64), 6, "{newer:?}");
    }
}

#[test]
fn a_node_that_cannot_share_answers_as_to_open() {
    let mut node = Node::new(options());
    let mut near = local(&mut node);
    let opened = ask(&mut node, &mut near, &map(1, 4096));
    assert!(opened.memory.is_none());
    assert!(
        matches!(Reply::decode(&opened.reply), Ok(Reply::Held(held)) if held.ring.end == Pos(4096))
    );
    let on = ask(&mut node, &mut near, &append(1, 0, (4096, 4096), b"abc"));
    assert!(matches!(Reply::decode(&on.reply), Ok(Reply::Held(_))));
}

fn spoiled(outcome: &Outcome) -> u64 {
    assert!(outcome.memory.is_none());
    match Reply::decode(&outcome.reply) {
        Ok(Reply::Spoiled { damage, .. }) => damage,
        other => panic!("{other:?}"),
    }
}

fn renew(damage: u64) -> Request<'static> {
    Request::Renew {
        generation: Generation(1),
        stream: StreamId(0),
        start: Pos(4096),
        damage,
    }
}

/// Maps a ring and appends 300 bytes at position 4,096, as the format page describes. Returns the ring's memory.
fn with_an_append(node: &mut Node, near: &mut Peer) -> Arc<dyn Shared> {
    let memory = ask(node, near, &map(1, 4096)).memory.unwrap();
    // The table has 64 entries, so the ring's bytes begin after two pages. Position 4,096 is at index 4,096 of
    // 65,536.
    memory.write(8192 + 4096, &[7; 300]);
    let words = [4096, 4396, u64::from(crc32c(&[7; 300]))];
    (0..)
        .zip(words)
        .for_each(|(at, word)| memory.store(4096 + 8 * at, word));
    memory.store(192, 1);
    memory
}

/// The test flips a bit of a block, of the block's entry or of the block's checksum. Then the writer maps or opens the
/// ring again. Before the flip, the node reported that it holds the bytes. Now the node must report the damage,
/// however often the writer asks.
#[test]
fn a_ring_whose_memory_is_damaged_is_spoiled_until_its_writer_renews_it() {
    let flips: [(usize, u8); 4] = [
        (8192 + 4096, 1),
        (8192 + 4395, 128),
        (4096 + 8, 64),
        (4096 + 16, 2),
    ];
    for (at, bit) in flips {
        for again in [map(1, 4096), open(1, 0, 4096)] {
            let mut node = node();
            let mut near = local(&mut node);
            let memory = with_an_append(&mut node, &mut near);
            let held = mapped(&ask(&mut node, &mut near, &map(1, 4096)));
            assert_eq!(held.ring.end, Pos(4396));
            let mut byte = [0];
            memory.read(at, &mut byte);
            memory.write(at, &[byte[0] ^ bit]);
            let damage = spoiled(&ask(&mut node, &mut near, &again));
            assert_eq!((damage, memory.load(64)), (1, u64::MAX), "{at}: {again:?}");
            assert_eq!(spoiled(&ask(&mut node, &mut near, &again)), 1);
            let late = ask(&mut node, &mut near, &append(1, 0, (4396, 4096), b"late"));
            assert_eq!(reason(&late), Reason::NoRing);
            let of_another = ask(&mut node, &mut near, &renew(2));
            assert_eq!(spoiled(&of_another), 1);
            let renewed = ask(&mut node, &mut near, &renew(1));
            let Ok(Reply::Held(held)) = Reply::decode(&renewed.reply) else {
                panic!("{renewed:?}");
            };
            assert_eq!((held.ring.low, held.ring.end), (Pos(4096), Pos(4096)));
        }
    }
}

/// A broken connection delivers a *renew* late. If the node obeyed, it would drop bytes acknowledged since the *renew*
/// was sent.
#[test]
fn a_late_renew_drops_no_ring_that_is_in_order_and_none_of_another_damage() {
    let mut node = node();
    let mut near = local(&mut node);
    let memory = with_an_append(&mut node, &mut near);
    memory.write(8192 + 4096, &[8]);
    assert_eq!(spoiled(&ask(&mut node, &mut near, &map(1, 4096))), 1);
    ask(&mut node, &mut near, &renew(1));
    let memory = with_an_append(&mut node, &mut near);
    ask(&mut node, &mut near, &renew(1));
    let held = mapped(&ask(&mut node, &mut near, &map(1, 4096)));
    assert_eq!(held.ring.end, Pos(4396), "it is in order");
    drop(memory);
    let memory = ask(&mut node, &mut near, &map(1, 4096)).memory.unwrap();
    memory.write(8192 + 4096, &[8]);
    assert_eq!(spoiled(&ask(&mut node, &mut near, &map(1, 4096))), 2);
    assert_eq!(spoiled(&ask(&mut node, &mut near, &renew(1))), 2);
}

/// The takeover may send *retire* to a node that it did not seal.
#[test]
fn a_ring_that_is_retired_is_closed_too() {
    let mut node = node();
    let (mut old, mut new) = (local(&mut node), local(&mut node));
    let memory = ask(&mut node, &mut old, &map(5, 0)).memory.unwrap();
    let generation = Generation(6);
    ask(&mut node, &mut new, &Request::Retire { generation });
    assert_eq!(memory.load(64), 6);
}

/// A replaced writer can still write to the memory of its ring. The sealed bytes must not change, and the writer's
/// other rings are sealed too.
#[test]
fn a_writer_that_opens_a_sealed_ring_again_changes_nothing() {
    let mut node = node();
    let mut near = local(&mut node);
    let first = ask(&mut node, &mut near, &map(5, 0)).memory.unwrap();
    let seal = |generation| Request::Seal {
        generation: Generation(generation),
    };
    ask(&mut node, &mut near, &seal(6));
    let second = ask(&mut node, &mut near, &map(6, 0)).memory.unwrap();
    first.store(64, 0);
    first.store(192, 1);
    let sealed = ask(&mut node, &mut near, &seal(7)).reply;
    assert_eq!(second.load(64), 7);
    let Ok(Reply::Sealed(sealed)) = Reply::decode(&sealed) else {
        panic!("no sealed");
    };
    assert_eq!(sealed.rings[0].end, Pos(0));
}
