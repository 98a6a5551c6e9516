//! Fuzzing of the protocol's nodes and clients, and of the files of views and hard copies. A node gets requests of
//! arbitrary clients. A writer and a takeover get replies of arbitrary nodes.
//!
//! An input is a message that is almost valid. Its fields are taken from a set of special values, and some bytes are
//! changed or removed. In most inputs the length and the checksum are then corrected. The tests look for a panic, for a
//! reply against the format page, and for an acknowledgement of unshipped bytes.
//!
//! A panic prints the seed and the index of the input. `PERDURA_FUZZ_INPUTS` sets the count of inputs of each test, and
//! `PERDURA_FUZZ_SEED` sets the seed:
//!
//! ```text
//! PERDURA_FUZZ_INPUTS=10000000 cargo test --release -p perdura-mirror --test mirror fuzz -- --nocapture
//! ```

mod files;
mod peers;

use fastrand::Rng;
use perdura_base::checksum::crc32c;
use perdura_base::{Epoch, Incarnation, Pos, StreamId};
use perdura_mirror::hard_copy::Earlier;
use perdura_mirror::{
    FRAME_BYTES_MAX, Framer, Generation, Greeting, Held, Key, Machine, Mode, Node, NodeInc, Peer,
    Reason, Refused, Reply, Request, RingState, Sealed, View,
};

use crate::setup::{self, UUID, ask, open, welcomed};

/// The number of inputs of each test, unless the environment sets it.
const INPUTS: u64 = 20_000;
/// The number of inputs that one node or one writer gets. Then a test makes a new one.
const ROUND: u64 = 200;
const NUMBERS: [u64; 16] = [
    0,
    1,
    63,
    64,
    4095,
    4096,
    8192,
    (1 << 16) - 1,
    1 << 16,
    1 << 20,
    1 << 32,
    (1 << 62) - 4096,
    1 << 62,
    (1 << 62) + 1,
    u64::MAX - 4095,
    u64::MAX,
];

/// The progress of a test. It is printed if the test panics.
struct Run {
    seed: u64,
    input: u64,
    inputs: u64,
    name: &'static str,
}

impl Run {
    fn new(name: &'static str) -> (Run, Rng) {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let run = Run {
            seed: number("PERDURA_FUZZ_SEED").unwrap_or(16),
            input: 0,
            inputs: number("PERDURA_FUZZ_INPUTS").unwrap_or(INPUTS),
            name,
        };
        let rng = Rng::with_seed(run.seed);
        (run, rng)
    }

    fn next(&mut self) -> bool {
        self.input += 1;
        self.input <= self.inputs
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let (seed, input, name) = (self.seed, self.input, self.name);
        match std::thread::panicking() {
            true => eprintln!("{name}: PERDURA_FUZZ_SEED={seed}, input {input}"),
            false => println!("{name}: {} inputs with seed {seed}", self.inputs),
        }
    }
}

fn number(rng: &mut Rng) -> u64 {
    match rng.u8(..4) {
        0 => rng.u64(..300),
        1 => rng.u64(..),
        _ => NUMBERS[rng.usize(..NUMBERS.len())],
    }
}

/// Returns a generation, in most cases the present writer's generation.
fn generation(rng: &mut Rng) -> Generation {
    Generation(match rng.u16(..1024) {
        0 => number(rng),
        1..=32 => rng.u64(..4),
        _ => 1,
    })
}

fn stream(rng: &mut Rng) -> StreamId {
    StreamId(match rng.u8(..8) {
        0 => rng.u8(..),
        _ => rng.u8(..2),
    })
}

fn array<const N: usize>(rng: &mut Rng) -> [u8; N] {
    std::array::from_fn(|_| rng.u8(..))
}

fn request<'a>(rng: &mut Rng, bytes: &'a [u8], end: Pos) -> Request<'a> {
    let (generation, stream) = (generation(rng), stream(rng));
    match rng.u8(..16) {
        0 => Request::Hello {
            version: u16::from(rng.u8(..3)),
            uuid: UUID,
            nonce: array(rng),
        },
        1 => Request::Proof(array(rng)),
        2 | 3 => Request::Open {
            generation,
            stream,
            start: Pos(match rng.u8(..4) {
                0 => number(rng),
                _ => end.0,
            }),
        },
        4..=7 => {
            let near = end.0.wrapping_add(rng.u64(..3)).wrapping_sub(1);
            let far = number(rng);
            let pos = *rng.choice(&[end.0, end.0, near, far]).unwrap();
            Request::Append {
                generation,
                stream,
                pos: Pos(pos),
                low: Pos(rng.u64(..=pos).min(number(rng))),
                bytes: &bytes[..rng.usize(..=bytes.len())],
                pad: match rng.u8(..4) {
                    0 => u32::try_from(number(rng)).unwrap_or(u32::MAX),
                    _ => rng.u32(..5000),
                },
            }
        }
        8 => Request::Seal { generation },
        9 => Request::Read {
            generation,
            stream,
            from: Pos(end.0.wrapping_sub(number(rng))),
            len: rng.u32(..),
        },
        10 => Request::Retire { generation },
        13 => Request::Map {
            generation,
            stream,
            start: Pos(number(rng)),
        },
        14 => Request::Renew {
            generation,
            stream,
            start: Pos(number(rng)),
            damage: rng.u64(..3),
        },
        11 => Request::Recall {
            generation,
            inc: NodeInc(rng.u64(4..6)),
        },
        12 => Request::Reread {
            inc: NodeInc(rng.u64(4..6)),
            generation,
            stream,
            from: Pos(number(rng)),
            len: rng.u32(..),
        },
        _ => Request::Ping,
    }
}

fn ring(rng: &mut Rng, near: Pos) -> RingState {
    let far = number(rng);
    let end = *rng.choice(&[near.0, near.0, far]).unwrap();
    RingState {
        generation: generation(rng),
        stream: stream(rng),
        low: Pos(rng.u64(..=end)),
        end: Pos(end),
    }
}

/// Returns a reply with numbers near the right numbers.
fn reply(rng: &mut Rng, inc: NodeInc, near: Pos) -> Vec<u8> {
    let inc = if rng.u8(..8) == 0 { NodeInc(9) } else { inc };
    let generation = generation(rng);
    let bytes: Vec<u8> = (0..rng.usize(..300)).map(|_| rng.u8(..)).collect();
    let reply = match rng.u8(..9) {
        8 => Reply::Spoiled {
            inc,
            generation,
            stream: stream(rng),
            damage: rng.u64(..3),
        },
        0 => Reply::Greeting(Greeting {
            version: u16::from(rng.u8(..3)),
            keyed: rng.bool(),
            inc,
            machine: Machine(array(rng)),
            ring_bytes: number(rng),
            nonce: array(rng),
            proof: [0; 32],
        }),
        1 => Reply::Welcome { inc, generation },
        2 | 3 => Reply::Held(Held {
            inc,
            ring: ring(rng, near),
        }),
        4 => Reply::Sealed(Sealed {
            inc,
            generation,
            rings: (0..rng.u8(..4)).map(|_| ring(rng, near)).collect(),
        }),
        5 => Reply::Bytes {
            generation,
            stream: stream(rng),
            from: Pos(number(rng)),
            bytes: &bytes,
        },
        6 => Reply::Pong { inc },
        _ => Reply::Refused(Refused {
            reason: *rng
                .choice(&[
                    Reason::Generation,
                    Reason::Full,
                    Reason::Damaged,
                    Reason::Key,
                ])
                .unwrap(),
            generation,
            pos: near,
            text: "no".into(),
        }),
    };
    reply.frame()
}

/// Damages a frame. In most cases, then corrects its length and checksum.
fn damage(rng: &mut Rng, frame: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(8..frame.len());
        match rng.u8(..4) {
            0 => frame.truncate(at.max(12)),
            1 => frame.insert(at, rng.u8(..)),
            _ => frame[at] = rng.u8(..),
        }
    }
    if rng.u8(..16) > 0 {
        let len = u32::try_from(frame.len()).unwrap().to_le_bytes();
        frame[..4].copy_from_slice(&len);
        let crc = crc32c(&frame[8..]).to_le_bytes();
        frame[4..8].copy_from_slice(&crc);
    }
}

#[test]
fn a_node_under_any_client() {
    let (mut run, mut rng) = Run::new("node");
    let mut node = Node::new(setup::options());
    let mut peer = Peer::new([0; 32]);
    let (mut end, mut framer) = (Pos(0), Framer::new());
    let (mut held, mut refused) = (0, 0);
    while run.next() {
        if run.input % ROUND == 1 {
            node = Node::new(setup::options());
            node.remember(vec![Earlier {
                inc: NodeInc(5),
                uuid: UUID,
                generation: Generation(1),
                stream: StreamId(0),
                low: Pos(63),
                bytes: vec![1; 9000],
            }]);
            let mut opened = welcomed(&mut node, UUID, &Key::none());
            end = Pos(number(&mut rng).min(1 << 62));
            ask(&mut node, &mut opened, &open(1, 0, end.0));
        }
        if run.input % 16 == 1 {
            framer = Framer::new();
            peer = match rng.u8(..4) {
                0 => Peer::new([3; 32]),
                _ => welcomed(&mut node, UUID, &Key::none()),
            };
        }
        let bytes = vec![rng.u8(..); rng.usize(..9000)];
        let mut frame = request(&mut rng, &bytes, end).frame();
        if rng.u8(..4) == 0 {
            damage(&mut rng, &mut frame);
        }
        // The frame arrives in two pieces, as it may from a socket.
        let cut = rng.usize(..=frame.len());
        for part in [&frame[..cut], &frame[cut..]] {
            framer.push(part);
            let outcome = match framer.take() {
                Ok(None) => continue,
                Ok(Some(frame)) => node.handle(&mut peer, frame),
                Err(malformed) => node.refuse_malformed(&peer, malformed),
            };
            match Reply::decode(&outcome.reply).expect("a node says what the page has") {
                Reply::Held(of) => {
                    (end, held) = (of.ring.end, held + 1);
                    assert!(of.ring.low <= end && end.0 - of.ring.low.0 <= 64 << 10);
                }
                Reply::Refused(why) => {
                    refused += 1;
                    assert_eq!(outcome.ends, why.reason.ends_connection(), "{why:?}");
                }
                _ => assert!(!outcome.ends),
            }
            if outcome.ends {
                framer = Framer::new();
                peer = welcomed(&mut node, UUID, &Key::none());
            }
        }
        assert!(framer.pending() < FRAME_BYTES_MAX);
        let stats = node.stats();
        assert!(stats.rings <= 8 && stats.bytes <= stats.rings * (64 << 10));
    }
    assert!(
        held > run.inputs / 50 && refused > run.inputs / 50,
        "{held}, {refused}"
    );
}

fn view(groups: Vec<Mode>) -> View {
    View {
        uuid: UUID,
        v: 1,
        generation: Generation(1),
        writer: 1,
        rings: Generation(1),
        life: Incarnation(1),
        hard: Epoch(0),
        wall_us: 0,
        groups,
        homes: vec![0; 2],
    }
}
