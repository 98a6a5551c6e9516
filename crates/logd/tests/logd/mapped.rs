//! Tests of rings in memory that a node shares with a writer on its machine.

use std::sync::Arc;

use perdura_base::{Pos, StreamId};
use perdura_logd::{Client, Logd, LogdOptions};
use perdura_mirror::{Generation, Held, Key, Reply, Request, Shared};

use crate::setup::{PATIENCE, caller, client, held, net, open, options, start};

/// Connects a client over the node's Unix socket, which the node uses to share memory.
fn here(logd: &Logd) -> Client {
    let node = client(logd).identity();
    Client::connect_here(&net(), &node, &caller(Key::none()), PATIENCE).unwrap()
}

fn map(stream: u8) -> Request<'static> {
    Request::Map {
        generation: Generation(1),
        stream: StreamId(stream),
        start: Pos(4096),
    }
}

fn mapped(client: &mut Client) -> (Held, Arc<dyn Shared>) {
    let reply = client.receive().unwrap();
    match Reply::decode(&reply) {
        Ok(Reply::Mapped(held, bytes)) => {
            let memory = client.memory().expect("memory comes with the reply");
            assert_eq!(usize::try_from(bytes), Ok(memory.len()));
            (held, memory)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn memory_comes_with_its_reply_however_many_are_asked_for_at_once() {
    let (logd, _said) = start(options());
    let mut writer = here(&logd);
    for stream in 0..3 {
        writer.send(&Request::Ping).unwrap();
        writer.send(&map(stream)).unwrap();
    }
    let mut memories = Vec::new();
    for stream in 0..3 {
        let pong = writer.receive().unwrap();
        assert!(matches!(Reply::decode(&pong), Ok(Reply::Pong { .. })));
        let (held, memory) = mapped(&mut writer);
        assert_eq!((held.inc, held.ring.stream), (logd.inc(), StreamId(stream)));
        // Each ring must have its own memory. The word is in a page that the ring does not use.
        assert_eq!(memory.load(2048), 0);
        memory.store(2048, u64::from(stream) + 1);
        memories.push(memory);
    }
    let all: Vec<u64> = memories.iter().map(|memory| memory.load(2048)).collect();
    assert_eq!(all, [1, 2, 3]);
    logd.stop();
}

#[test]
fn a_seal_closes_the_memory_and_the_end_of_the_node_the_connection() {
    let (logd, _said) = start(options());
    let mut writer = here(&logd);
    writer.send(&map(0)).unwrap();
    let (_, memory) = mapped(&mut writer);
    writer.stands().unwrap();
    assert_eq!(memory.load(64), 0);
    let generation = Generation(2);
    client(&logd).ask(&Request::Seal { generation }).unwrap();
    assert_eq!(memory.load(64), 2);
    logd.stop();
    let broken = writer.stands().unwrap_err();
    assert!(broken.contains("closed"), "{broken}");
}

#[test]
fn a_node_that_does_not_share_is_reached_by_messages_alone() {
    let (logd, _said) = start(LogdOptions {
        shares: false,
        ..options()
    });
    let mut far = client(&logd);
    let node = far.identity();
    assert!(Client::connect_here(&net(), &node, &caller(Key::none()), PATIENCE).is_err());
    assert_eq!(held(&far.ask(&open(1, 0, 4096)).unwrap()).end, Pos(4096));
    logd.stop();
}

#[test]
fn the_key_is_needed_on_the_machine_too() {
    let key = |text: &[u8]| Key::from_file("key", text).unwrap();
    let (logd, _said) = start(LogdOptions {
        key: key(b"the key of this node"),
        ..options()
    });
    let address = crate::setup::address(&logd);
    let with = |key: Key| caller(key);
    let ours = with(key(b"the key of this node"));
    let node = Client::connect(&net(), &address, &ours, PATIENCE)
        .unwrap()
        .identity();
    assert!(Client::connect_here(&net(), &node, &ours, PATIENCE).is_ok());
    let stranger = with(key(b"the key of another one"));
    assert!(Client::connect_here(&net(), &node, &stranger, PATIENCE).is_err());
    logd.stop();
}

/// The memory mapped by the two processes is damaged, as by a flipped bit.
#[test]
fn memory_that_was_damaged_is_found_when_its_writer_comes_again() {
    let (logd, _said) = start(options());
    let mut writer = here(&logd);
    writer.send(&map(0)).unwrap();
    let (_, memory) = mapped(&mut writer);
    // Write an append's entry with a wrong checksum.
    let words = [4096, 8192, 1];
    (0..)
        .zip(words)
        .for_each(|(at, word)| memory.store(4096 + 8 * at, word));
    memory.store(192, 1);
    drop(writer);
    let mut writer = here(&logd);
    let reply = writer.ask(&map(0)).unwrap();
    let Ok(Reply::Spoiled { damage, inc, .. }) = Reply::decode(&reply) else {
        panic!("{reply:?}");
    };
    assert_eq!((damage, inc, memory.load(64)), (1, logd.inc(), u64::MAX));
    let renew = Request::Renew {
        generation: Generation(1),
        stream: StreamId(0),
        start: Pos(4096),
        damage,
    };
    assert_eq!(held(&writer.ask(&renew).unwrap()).end, Pos(4096));
    writer.send(&map(0)).unwrap();
    let (held, fresh) = mapped(&mut writer);
    assert_eq!(
        (held.ring.end, fresh.load(64), fresh.load(192)),
        (Pos(4096), 0, 0)
    );
    logd.stop();
}
