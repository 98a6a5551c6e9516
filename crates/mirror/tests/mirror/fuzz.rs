//! Fuzzing of the protocol on both sides, and of the files: a node under clients of every kind, a writer and a takeover under
//! nodes of every kind, views and hard copies.
//!
//! An input is a message that is almost one: its fields are of a bag of values that mean something somewhere, bytes of it
//! change, pieces vanish, and then its length and checksum are made to hold, mostly. What counts is what does not
//! happen: no panic, no reply that the page does not have, and no acknowledgement of what was not shipped.
//!
//! A panic prints the seed and the input's number. `PERDURA_FUZZ_INPUTS` says how many inputs each test has, `PERDURA_FUZZ_SEED`
//! with which seed:
//!
//! ```text
//! PERDURA_FUZZ_INPUTS=10000000 cargo test --release -p perdura-mirror --test mirror fuzz -- --nocapture
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;
use perdura_base::checksum::crc32c;
use perdura_base::{Epoch, Incarnation, Pos, Result, StreamId};
use perdura_device::{Access, Disk, MemDisk};
use perdura_mirror::hard_copy::{Earlier, HardCopier, list};
use perdura_mirror::sim::SimRegister;
use perdura_mirror::{
    Beginning, Connection, FRAME_BYTES_MAX, Fetch, Fetched, Framer, Generation, Greeting, Held,
    Key, Log, Machine, Member, Mirror, MirrorOptions, Mode, Net, Node, NodeInc, NodeOptions,
    Patience, Peer, Reason, Refused, Reply, Request, RingState, Sealed, Sent, View,
};

use crate::setup::{self, UUID, append, ask, open, welcomed};

/// Inputs of each test, if the environment does not say.
const INPUTS: u64 = 20_000;
/// Inputs that one node, writer or takeover meets.
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

/// Says where a run was when it panics.
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

/// Mostly that of the writer that everyone knows.
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
    match rng.u8(..15) {
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

/// Some reply; the numbers are near those of the node's true one.
fn reply(rng: &mut Rng, inc: NodeInc, near: Pos) -> Vec<u8> {
    let inc = if rng.u8(..8) == 0 { NodeInc(9) } else { inc };
    let generation = generation(rng);
    let bytes: Vec<u8> = (0..rng.usize(..300)).map(|_| rng.u8(..)).collect();
    let reply = match rng.u8(..8) {
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

/// Makes length and checksum hold, mostly.
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
        // As a socket would have it: in pieces.
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

/// A network whose nodes answer, and whose answers are changed on their way.
struct Liars {
    nodes: [Arc<Mutex<Node>>; 2],
    rng: Mutex<Rng>,
}

impl Liars {
    fn new(rng: &mut Rng) -> Arc<Liars> {
        let node = |number: u8| {
            Arc::new(Mutex::new(Node::new(NodeOptions {
                inc: NodeInc(u64::from(number)),
                machine: Machine([number; 16]),
                ring_bytes: 1 << 20,
                ..setup::options()
            })))
        };
        Arc::new(Liars {
            nodes: [node(1), node(2)],
            rng: Mutex::new(rng.fork()),
        })
    }
}

impl Net for Liars {
    fn connect(&self, address: &str) -> Result<Box<dyn Connection>> {
        let mut rng = self.rng.lock().fork();
        Ok(Box::new(Liar {
            node: Arc::clone(&self.nodes[usize::from(address == "b")]),
            peer: Peer::new([4; 32]),
            lies: [6, 40, 250][rng.usize(..3)],
            rng,
            replies: VecDeque::new(),
            said: 0,
            near: Pos(0),
        }))
    }
}

struct Liar {
    node: Arc<Mutex<Node>>,
    peer: Peer,
    rng: Rng,
    replies: VecDeque<Vec<u8>>,
    said: u32,
    near: Pos,
    /// One of so many replies is not what the node said.
    lies: u8,
}

impl Connection for Liar {
    fn send(&mut self, head: &[u8], tail: &[u8]) -> std::result::Result<Sent, String> {
        match self.rng.u16(..500) {
            0 => return Err("it broke".into()),
            1..=9 => return Ok(Sent::Full),
            _ => {}
        }
        let frame = [head, tail].concat();
        let mut node = self.node.lock();
        let mut outcome = node.handle(&mut self.peer, &frame);
        if let Ok(Reply::Held(held)) = Reply::decode(&outcome.reply) {
            self.near = held.ring.end;
        }
        // The greeting is true, mostly: what follows it is of interest, too.
        self.said += 1;
        let lies = if self.said <= 2 { 60 } else { self.lies };
        match self.rng.u8(..lies) {
            0 => outcome.reply = reply(&mut self.rng, node.inc(), self.near),
            1 => damage(&mut self.rng, &mut outcome.reply),
            2 if self.rng.bool() => return Ok(Sent::Yes),
            2 => self.replies.push_back(outcome.reply.clone()),
            _ => {}
        }
        self.replies.push_back(outcome.reply);
        Ok(Sent::Yes)
    }

    fn receive(&mut self) -> std::result::Result<Option<Vec<u8>>, String> {
        match self.rng.u16(..500) {
            0 => Err("it broke".into()),
            1..=50 => Ok(None),
            _ => Ok(self.replies.pop_front()),
        }
    }
}

/// A log's disk that lags behind.
#[derive(Default)]
struct Lagging(Mutex<[u64; 2]>);

impl Log for Lagging {
    fn synced(&self, stream: StreamId) -> Pos {
        Pos(self.0.lock()[usize::from(stream.0)])
    }
    fn raise(&self, _stream: StreamId, _end: Pos) {}
    fn follow_disk(&self, _follows: bool) {}
    fn want_copy(&self) {}
    fn durable(&self) -> Epoch {
        Epoch(0)
    }
    fn fence(&self, _why: &str) {}
    fn anchor(&self, _mirrored: bool) -> Result<()> {
        Ok(())
    }
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

#[test]
fn a_writer_under_any_nodes() {
    let (mut run, mut rng) = Run::new("writer");
    let (mut raised, mut mirrored) = (0, 0);
    while run.next() {
        let register = SimRegister::new();
        let mut own: Box<dyn perdura_mirror::Register> = Box::new(register.clone());
        let first = view(vec![Mode::Disk]);
        own.replace(&first).unwrap();
        let options = MirrorOptions {
            tail_bytes_max: 64 << 10,
            ..MirrorOptions::new(vec![["a".into(), "b".into()]], Key::none())
        };
        let mut random = rng.fork();
        let beginning = Beginning {
            view: first,
            start: vec![Pos(0); 2],
            anchored: false,
            random: Box::new(move || random.u64(..)),
        };
        let mirror = Mirror::new(options, Liars::new(&mut rng), own, beginning).unwrap();
        let (log, mut ends, mut now_ns) = (Lagging::default(), [0_u64; 2], 1);
        for _ in 0..ROUND {
            run.next();
            now_ns += rng.u64(..5_000_000);
            let at = rng.usize(..2);
            let synced = log.0.lock()[at];
            if rng.bool() && ends[at] - synced < 60 << 10 {
                let bytes = vec![rng.u8(..); 64 * rng.usize(1..64)];
                let block = perdura_wal::Sealed {
                    stream: StreamId(u8::try_from(at).unwrap()),
                    pos: Pos(ends[at]),
                    epoch: Epoch(1),
                    bytes: &bytes,
                };
                mirror.ship(block, Pos(synced));
                ends[at] += u64::try_from(bytes.len()).unwrap();
            }
            if rng.u8(..4) == 0 {
                log.0.lock()[at] = rng.u64(synced..=ends[at]);
            }
            raised += u64::from(mirror.pump(&log, now_ns));
            // A node that says that it has seen a later generation has the arbiter asked, and no more.
            mirror.manage(&log, now_ns).unwrap();
            mirrored += u64::from(mirror.is_mirrored());
            for node in mirror
                .status(now_ns)
                .groups
                .iter()
                .flat_map(|group| &group.nodes)
            {
                assert!(node.trouble.as_ref().is_none_or(|why| !why.is_empty()));
            }
        }
    }
    assert!(
        raised > run.inputs / 50 && mirrored > run.inputs / 200,
        "{raised}, {mirrored}"
    );
}

#[test]
fn a_takeover_under_any_nodes() {
    let (mut run, mut rng) = Run::new("takeover");
    let (mut all, mut refused) = (0, 0);
    while run.next() {
        let net = Liars::new(&mut rng);
        for node in &net.nodes {
            let node = &mut node.lock();
            let mut peer = welcomed(node, UUID, &Key::none());
            for stream in 0..2 {
                ask(node, &mut peer, &open(1, stream, 4096));
                let bytes = vec![7; rng.usize(..40_000)];
                ask(node, &mut peer, &append(1, stream, (4096, 0), &bytes));
            }
        }
        let member = |number: u8| Member {
            inc: NodeInc(u64::from(number)),
            machine: Machine([number; 16]),
            address: (if number == 2 { "b" } else { "a" }).to_owned(),
        };
        let claimed = View {
            v: 2,
            generation: Generation(2),
            ..view(vec![Mode::Mirror(Box::new([member(1), member(2)]))])
        };
        let mut random = rng.fork();
        let mut fetch = Fetch::new(
            claimed,
            Key::none(),
            net,
            Patience::default(),
            vec![Pos(0), Pos(8192)],
            Box::new(move || random.u64(..)),
        );
        let mut now_ns = 1;
        loop {
            run.next();
            match fetch.step(now_ns) {
                Ok(Fetched::All(kept)) => {
                    for (wanted, kept) in [0, 8192].into_iter().zip(&kept) {
                        assert!(kept.iter().all(|kept| kept.from.0 >= wanted), "{kept:?}");
                    }
                    all += 1;
                    break;
                }
                Ok(Fetched::Step) => now_ns += 1000,
                Ok(Fetched::Waits) => now_ns += 50_000_000,
                Err(error) => {
                    assert!(error.to_string().contains("--accept-loss"), "{error}");
                    refused += 1;
                    break;
                }
            }
        }
    }
    assert!(all > run.inputs / 1000, "{all}, {refused}");
}

#[test]
fn views_of_any_bytes() {
    let (mut run, mut rng) = Run::new("view");
    let mut whole = 0;
    while run.next() {
        let member = |rng: &mut Rng| Member {
            inc: NodeInc(number(rng)),
            machine: Machine(array(rng)),
            address: "a".repeat(rng.usize(1..256)),
        };
        let groups: Vec<Mode> = (0..rng.usize(1..4))
            .map(|at| match rng.u8(..3) {
                0 => Mode::Disk,
                1 => Mode::Solo(member(&mut rng)),
                _ => {
                    let (mut one, mut two) = (member(&mut rng), member(&mut rng));
                    (one.inc, two.inc) = (NodeInc(u64::try_from(at).unwrap()), NodeInc(u64::MAX));
                    Mode::Mirror(Box::new([one, two]))
                }
            })
            .collect();
        let homes = (0..rng.usize(1..4)).map(|_| rng.u8(..1)).collect();
        let written = View {
            homes,
            hard: Epoch(number(&mut rng)),
            ..view(groups)
        };
        let mut bytes = written.encode();
        assert_eq!(View::decode(&bytes).as_ref(), Ok(&written));
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..bytes.len());
            match rng.u8(..4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, rng.u8(..)),
                _ => bytes[at] = rng.u8(..),
            }
            if bytes.len() < 5 {
                break;
            }
        }
        if let Some(at) = bytes.len().checked_sub(4).filter(|_| rng.u8(..8) > 0) {
            let crc = crc32c(&bytes[..at]).to_le_bytes();
            bytes[at..].copy_from_slice(&crc);
        }
        if let Ok(read) = View::decode(&bytes) {
            assert_eq!(read.encode(), bytes, "what is read is written as it was");
            whole += 1;
        }
    }
    assert!(whole > run.inputs / 50, "{whole}");
}

#[test]
fn hard_copies_of_any_bytes() {
    let (mut run, mut rng) = Run::new("hard copy");
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let node = Mutex::new(Node::new(setup::options()));
    {
        let node = &mut node.lock();
        let mut peer = welcomed(node, UUID, &Key::none());
        ask(node, &mut peer, &open(1, 0, 4096));
    }
    let (mut copier, _) = HardCopier::new(Arc::clone(&disk)).unwrap();
    for piece in 0..20_u64 {
        {
            let node = &mut node.lock();
            let mut peer = welcomed(node, UUID, &Key::none());
            ask(
                node,
                &mut peer,
                &append(1, 0, (4096 + piece * 101, 0), &[7; 100]),
            );
        }
        copier.step(&node).unwrap();
    }
    drop(copier);
    let name = list(disk.as_ref()).unwrap()[0].name.clone();
    let file = disk.open(&name, Access::Buffered).unwrap();
    let mut original = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(0, &mut original).unwrap();
    let (mut whole, mut torn, mut none) = (0, 0, 0);
    while run.next() {
        let mut bytes = original.clone();
        for _ in 0..rng.usize(..3) {
            let at = rng.usize(..bytes.len());
            match rng.u8(..4) {
                0 => bytes.truncate(at + 1),
                1 => bytes.insert(at, rng.u8(..)),
                _ => bytes[at] = rng.u8(..),
            }
        }
        if rng.u8(..8) == 0 && bytes.len() >= 64 {
            let crc = crc32c(&bytes[..60]).to_le_bytes();
            bytes[60..64].copy_from_slice(&crc);
        }
        file.set_len(0).unwrap();
        file.write_at(0, &bytes).unwrap();
        let found = &list(disk.as_ref()).unwrap()[0];
        match &found.ring {
            Ok(ring) => {
                let held = ring.end.0 - ring.start.0;
                assert!(held <= 20 * 101 && held + ring.torn <= found.bytes);
                if ring.torn == 0 {
                    whole += 1
                } else {
                    torn += 1
                }
            }
            Err(why) => {
                assert!(!why.is_empty());
                none += 1;
            }
        }
    }
    assert!(whole.min(torn).min(none) > 0, "{whole}, {torn}, {none}");
}
