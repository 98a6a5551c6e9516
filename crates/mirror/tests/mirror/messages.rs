//! Tests of the frames of docs/formats/logd.md, and of bytes that are not frames.

use perdura_base::{Pos, StreamId, Uuid};
use perdura_mirror::{
    FRAME_BYTES_MAX, Framer, Generation, Greeting, Held, Machine, Node, NodeInc, Peer, Reason,
    Refused, Reply, Request, RingState, Sealed,
};

use crate::setup::{self, UUID, welcomed};

fn requests() -> Vec<Request<'static>> {
    let (generation, stream) = (Generation(3), StreamId(1));
    vec![
        Request::hello(Uuid([5; 16]), [6; 32]),
        Request::Proof([7; 32]),
        Request::Open {
            generation,
            stream,
            start: Pos(4096),
        },
        Request::Map {
            generation,
            stream,
            start: Pos(4096),
        },
        Request::Append {
            generation,
            stream,
            pos: Pos(8192),
            low: Pos(4096),
            bytes: &[1, 2, 3],
            pad: 4093,
        },
        Request::Seal { generation },
        Request::Read {
            generation,
            stream,
            from: Pos(9),
            len: 10,
        },
        Request::Retire { generation },
        Request::Ping,
        Request::Recall {
            generation,
            inc: NodeInc(8),
        },
        Request::Reread {
            inc: NodeInc(8),
            generation,
            stream,
            from: Pos(9),
            len: 10,
        },
        Request::Renew {
            generation,
            stream,
            start: Pos(4096),
            damage: 7,
        },
    ]
}

fn replies() -> Vec<Reply<'static>> {
    let (inc, generation, stream) = (NodeInc(u64::MAX), Generation(3), StreamId(15));
    let ring = RingState {
        generation,
        stream,
        low: Pos(1),
        end: Pos(2),
    };
    vec![
        Reply::Greeting(Greeting {
            version: 1,
            keyed: true,
            inc,
            machine: Machine([4; 16]),
            ring_bytes: 64 << 20,
            nonce: [5; 32],
            proof: [6; 32],
        }),
        Reply::Welcome { inc, generation },
        Reply::Held(Held { inc, ring }),
        Reply::Mapped(Held { inc, ring }, 70_000),
        Reply::Spoiled {
            inc,
            generation,
            stream,
            damage: 7,
        },
        Reply::Sealed(Sealed {
            inc,
            generation,
            rings: vec![ring; 3],
        }),
        Reply::Bytes {
            generation,
            stream,
            from: Pos(5),
            bytes: b"bytes",
        },
        Reply::Retired { inc, generation },
        Reply::Pong { inc },
        Reply::Refused(Refused {
            reason: Reason::Position,
            generation,
            pos: Pos(8),
            text: "why".into(),
        }),
    ]
}

#[test]
fn the_example_on_the_format_page_is_what_the_codec_writes() {
    let page = include_str!("../../../../docs/formats/logd.md");
    let block = page.split("```text hex").nth(1).unwrap();
    let hex = block.split("```").next().unwrap();
    let digits: String = hex.chars().filter(char::is_ascii_hexdigit).collect();
    let frame = requests()[4].frame();
    let written: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digits, written);
}

#[test]
fn every_message_is_read_as_it_was_written() {
    for request in requests() {
        assert_eq!(Request::decode(&request.frame()), Ok(request));
        assert_eq!(
            request.head().len() + request.tail().len(),
            request.frame().len()
        );
    }
    for reply in replies() {
        assert_eq!(Reply::decode(&reply.frame()), Ok(reply.clone()));
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    for frame in requests().iter().map(Request::frame) {
        for at in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert!(Request::decode(&flipped).is_err(), "bit {at} of {frame:?}");
        }
        for len in 0..frame.len() {
            assert!(Request::decode(&frame[..len]).is_err());
        }
    }
    for frame in replies().iter().map(Reply::frame) {
        for at in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert!(Reply::decode(&flipped).is_err(), "bit {at} of {frame:?}");
        }
        for len in 0..frame.len() {
            assert!(Reply::decode(&frame[..len]).is_err());
        }
    }
}

#[test]
fn a_long_text_is_cut_where_a_character_ends() {
    let refused = |text: String| {
        let refused = Reply::Refused(Refused {
            reason: Reason::Key,
            generation: Generation(0),
            pos: Pos(0),
            text,
        });
        let frame = refused.frame();
        match Reply::decode(&frame) {
            Ok(Reply::Refused(refused)) => refused.text,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused("x".repeat(2000)), "x".repeat(1000));
    assert_eq!(refused("\u{20ac}".repeat(500)), "\u{20ac}".repeat(333));
    assert_eq!(refused(String::new()), "");
}

/// Some changed frames get a correct checksum. They are well-formed requests that no client sends.
#[test]
fn a_node_survives_frames_and_bytes_that_nobody_sends() {
    let mut random = fastrand::Rng::with_seed(16);
    let mut node = Node::new(setup::options());
    let mut refused = 0;
    for round in 0..20_000 {
        let mut frame = random.choice(requests()).unwrap().frame();
        for _ in 0..random.usize(0..3) {
            let at = random.usize(8..frame.len());
            frame[at] = random.u8(..);
        }
        match random.u8(0..8) {
            0 => frame.truncate(random.usize(12..=frame.len())),
            1 => frame.extend((0..random.usize(..40)).map(|_| random.u8(..))),
            _ => {}
        }
        let len = u32::try_from(frame.len()).unwrap().to_le_bytes();
        frame[..4].copy_from_slice(&len);
        let crc = perdura_base::checksum::crc32c(&frame[8..]).to_le_bytes();
        frame[4..8].copy_from_slice(&crc);
        let mut peer = match random.bool() {
            true => welcomed(&mut node, UUID, &perdura_mirror::Key::none()),
            false => Peer::new([3; 32]),
        };
        let outcome = node.handle(&mut peer, &frame);
        let reply = Reply::decode(&outcome.reply).expect("a node says what the page has");
        if let Reply::Refused(why) = reply {
            refused += 1;
            assert_eq!(outcome.ends, why.reason.ends_connection(), "{why:?}");
            assert!(!why.text.is_empty(), "round {round}");
        }
    }
    assert!(
        refused > 2000 && node.stats().refusals == refused,
        "{refused}"
    );
    for _ in 0..2_000 {
        let mut framer = Framer::new();
        for _ in 0..random.usize(1..20) {
            let bytes: Vec<u8> = (0..random.usize(..60)).map(|_| random.u8(..4)).collect();
            framer.push(&bytes);
            while let Ok(Some(frame)) = framer.take() {
                let mut peer = Peer::new([3; 32]);
                assert!(node.handle(&mut peer, frame).ends);
            }
            assert!(framer.pending() < FRAME_BYTES_MAX);
        }
    }
}
