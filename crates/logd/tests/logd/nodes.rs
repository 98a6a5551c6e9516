//! Tests of nodes in normal use.

use std::io::{Read, Write};
use std::time::Duration;

use perdura_base::{Error, Pos};
use perdura_logd::{Client, LogdOptions};
use perdura_mirror::{Framer, Generation, Key, Reason, Refused, Reply, Request};

use crate::setup::{
    PATIENCE, UUID, address, append, caller, client, eventually, held, net, open, options, raw,
    read, start,
};

#[test]
fn what_was_appended_is_read_by_another_connection_and_gone_with_the_node() {
    let (logd, said) = start(options());
    assert!(said.first().contains(&logd.inc().to_string()));
    let mut writer = client(&logd);
    assert_eq!(writer.identity().inc, logd.inc());
    writer.ask(&open(1, 0, 4096)).unwrap();
    let blocks: Vec<Vec<u8>> = (1..=5_u8)
        .map(|n| vec![n; 300_000 * usize::from(n)])
        .collect();
    let mut at = 4096;
    for block in &blocks {
        let ring = held(&writer.ask(&append(1, 0, (at, 4096), block)).unwrap());
        at += u64::try_from(block.len()).unwrap();
        assert_eq!((ring.low, ring.end), (Pos(4096), Pos(at)));
    }
    drop(writer);
    let mut reader = client(&logd);
    let sealed = reader
        .ask(&Request::Seal {
            generation: Generation(2),
        })
        .unwrap();
    let Reply::Sealed(sealed) = Reply::decode(&sealed).unwrap() else {
        panic!("no sealed")
    };
    assert_eq!(sealed.rings[0].end, Pos(at));
    let mut got = Vec::new();
    while Pos(4096 + u64::try_from(got.len()).unwrap()) < sealed.rings[0].end {
        let from = 4096 + u64::try_from(got.len()).unwrap();
        let reply = reader.ask(&read(1, 0, from, u32::MAX)).unwrap();
        let Reply::Bytes { bytes, .. } = Reply::decode(&reply).unwrap() else {
            panic!("no bytes at {from}")
        };
        got.extend_from_slice(bytes);
    }
    assert!(got == blocks.concat());
    let stats = logd.stats();
    assert_eq!(
        (stats.node.rings, stats.node.appends, stats.connections),
        (1, 5, 1)
    );
    let inc = logd.inc();
    let port = logd.addresses().to_vec();
    logd.stop();
    let broken = reader.ask(&Request::Ping).unwrap_err();
    assert!(
        broken.contains("closed") || broken.contains("reset"),
        "{broken}"
    );

    let again = LogdOptions {
        listen: port,
        ..options()
    };
    let (logd, _) = start(again);
    assert_ne!(logd.inc(), inc);
    let mut writer = client(&logd);
    let reply = writer.ask(&append(1, 0, (at, at), b"x")).unwrap();
    let Reply::Refused(refused) = Reply::decode(&reply).unwrap() else {
        panic!("a node without memory took a block")
    };
    assert_eq!(refused.reason, Reason::NoRing);
    logd.stop();
}

#[test]
fn thousands_of_frames_in_one_write_get_their_replies_in_order() {
    const FRAMES: u64 = 5000;
    let (logd, _) = start(options());
    let (mut socket, mut framer) = (raw(&logd), Framer::new());
    let mut bytes = Request::hello(UUID, [1; 32]).frame();
    bytes.extend(Request::Proof([0; 32]).frame());
    bytes.extend(open(1, 0, 0).frame());
    for number in 0..FRAMES {
        bytes.extend(append(1, 0, (number * 10, 0), b"0123456789").frame());
    }
    socket.write_all(&bytes).unwrap();
    let (mut replies, mut buf) = (0, [0; 65536]);
    while replies < FRAMES + 3 {
        let read = socket.read(&mut buf).unwrap();
        assert!(read > 0, "the node left after {replies} replies");
        framer.push(&buf[..read]);
        while let Some(frame) = framer.take().unwrap() {
            if replies > 2 {
                assert_eq!(held(frame).end, Pos((replies - 2) * 10));
            }
            replies += 1;
        }
    }
    assert_eq!(logd.stats().node.appends, FRAMES);
    logd.stop();
}

#[test]
fn many_reads_at_once_are_answered_in_parts_and_a_client_that_does_not_take_them_is_dropped() {
    let limits = crate::setup::impatient();
    let (logd, said) = start(LogdOptions {
        limits,
        ..options()
    });
    let mut writer = client(&logd);
    writer.ask(&open(1, 0, 0)).unwrap();
    let block = vec![5; 1 << 20];
    writer.ask(&append(1, 0, (0, 0), &block)).unwrap();
    // This client reads all 64 MiB of its replies.
    for _ in 0..64 {
        writer.send(&read(1, 0, 0, 1 << 20)).unwrap();
    }
    for _ in 0..64 {
        let reply = writer.receive().unwrap();
        assert!(
            matches!(Reply::decode(&reply).unwrap(), Reply::Bytes { bytes, .. } if bytes == block)
        );
    }
    let mut deaf = client(&logd);
    for _ in 0..64 {
        // The connection may break while the client is sending.
        let _ = deaf.send(&read(1, 0, 0, 1 << 20));
    }
    eventually("the deaf client is dropped", || {
        logd.stats().connections == 1
    });
    said.wait_for("ended");
    writer.ask(&Request::Ping).unwrap();
    logd.stop();
}

#[test]
fn a_wrong_key_is_refused_on_either_side() {
    let key = |text: &[u8]| Key::from_file("the key", text).unwrap();
    let ours = key(b"a key of enough bytes");
    let (logd, _) = start(LogdOptions {
        key: ours.clone(),
        ..options()
    });
    let connect =
        |key: &Key| Client::connect(&net(), &address(&logd), &caller(key.clone()), PATIENCE);
    connect(&ours).unwrap().ask(&Request::Ping).unwrap();
    let why = connect(&key(b"another key of enough")).err().unwrap();
    assert!(why.contains("another key"), "{why}");
    let why = connect(&Key::none()).err().unwrap();
    assert!(why.contains("the node needs a key"), "{why}");

    // The client does not check the node's proof. So the node itself must refuse the wrong proof of the client.
    let mut socket = raw(&logd);
    let mut said = Request::hello(UUID, [1; 32]).frame();
    said.extend(Request::Proof([0; 32]).frame());
    said.extend(open(1, 0, 0).frame());
    socket.write_all(&said).unwrap();
    let mut framer = Framer::new();
    let mut all = Vec::new();
    socket.read_to_end(&mut all).unwrap();
    framer.push(&all);
    framer.take().unwrap().unwrap();
    let refused = framer.take().unwrap().unwrap().to_vec();
    let Reply::Refused(Refused { reason, text, .. }) = Reply::decode(&refused).unwrap() else {
        panic!("it was not refused")
    };
    assert!(
        reason == Reason::Key && text.contains("--key-file"),
        "{text}"
    );
    assert!(
        framer.take().unwrap().is_none(),
        "nothing follows a refusal"
    );
    assert_eq!(logd.stats().node.rings, 0);
    logd.stop();
}

#[test]
fn addresses_that_cannot_be_listened_on_are_errors_before_anything_runs() {
    let (logd, _) = start(options());
    let taken = LogdOptions {
        listen: logd.addresses().to_vec(),
        ..options()
    };
    let why = perdura_logd::Logd::start(taken).err().unwrap();
    assert!(why.to_string().contains(&address(&logd)), "{why}");
    for wrong in [
        LogdOptions {
            listen: Vec::new(),
            ..options()
        },
        LogdOptions {
            tls_listen: logd.addresses().to_vec(),
            ..options()
        },
    ] {
        let why = perdura_logd::Logd::start(wrong).err().unwrap();
        assert!(matches!(why, Error::Usage(_)), "{why}");
    }
    logd.stop();
}

#[test]
fn a_node_that_spins_answers_as_one_that_does_not() {
    let spin = Duration::from_micros(200);
    let (logd, _) = start(LogdOptions { spin, ..options() });
    let mut writer = client(&logd);
    writer.set_spin(true);
    writer.ask(&open(1, 0, 0)).unwrap();
    for number in 0..200 {
        if number % 50 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        let ring = held(&writer.ask(&append(1, 0, (number * 4, 0), b"1234")).unwrap());
        assert_eq!(ring.end, Pos(number * 4 + 4));
    }
    logd.stop();
}
