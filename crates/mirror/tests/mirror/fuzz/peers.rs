//! Fuzzing of a writer and a takeover by nodes that send arbitrary replies.

use std::collections::VecDeque;
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;
use perdura_base::{Epoch, Pos, Result, StreamId};
use perdura_mirror::sim::SimRegister;
use perdura_mirror::{
    Beginning, Connection, Fetch, Fetched, Generation, Key, Log, Machine, Member, Mirror,
    MirrorOptions, Mode, Net, Node, NodeInc, NodeOptions, Patience, Peer, Reply, Sent, View,
};

use super::{ROUND, Run, damage, reply, view};
use crate::setup::{self, UUID, append, ask, open, welcomed};

/// A network with real nodes. It replaces some of the replies on their way to the client.
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
    /// Of this many replies, on average one is replaced, one is damaged, and one is lost or sent twice.
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
        // The greeting is replaced less often, so that many connections get beyond it.
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

/// A log with a disk that syncs late.
#[derive(Default)]
struct Lagging(Mutex<[u64; 2]>);

impl Log for Lagging {
    fn synced(&self, stream: StreamId) -> Pos {
        Pos(self.0.lock()[usize::from(stream.0)])
    }
    fn raise(&self, _stream: StreamId, _end: Pos) {}
    fn follow_disk(&self, _follows: bool) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn want_copy(&self) {}
    fn durable(&self) -> Epoch {
        Epoch(0)
    }
    fn fence(&self, _why: &str) {}
    fn anchor(&self, _mirrored: bool) -> Result<()> {
        Ok(())
    }
}

/// Makes a writer whose log has two streams and whose mirror has one group.
fn writer(net: Arc<dyn Net>, mut random: Rng) -> Mirror {
    let mut register: Box<dyn perdura_mirror::Register> = Box::new(SimRegister::new());
    let first = view(vec![Mode::Disk]);
    register.replace(&first).unwrap();
    let options = MirrorOptions {
        tail_bytes_max: 64 << 10,
        ..MirrorOptions::new(vec![["a".into(), "b".into()]], Key::none())
    };
    let beginning = Beginning {
        view: first,
        start: vec![Pos(0); 2],
        anchored: false,
        random: Box::new(move || random.u64(..)),
    };
    Mirror::new(options, net, register, beginning).unwrap()
}

/// A network of nodes with spoiled rings. A node answers each opening and each *renew* of a ring with a damage report.
/// Each report names new damage.
struct Spoilt;

impl Net for Spoilt {
    fn connect(&self, _address: &str) -> Result<Box<dyn Connection>> {
        Ok(Box::new(Spoils {
            node: Node::new(setup::options()),
            peer: Peer::new([4; 32]),
            replies: VecDeque::new(),
            damages: 0,
        }))
    }
}

struct Spoils {
    node: Node,
    peer: Peer,
    replies: VecDeque<Vec<u8>>,
    damages: u64,
}

impl Connection for Spoils {
    fn send(&mut self, head: &[u8], tail: &[u8]) -> std::result::Result<Sent, String> {
        let outcome = self.node.handle(&mut self.peer, &[head, tail].concat());
        self.replies.push_back(match Reply::decode(&outcome.reply) {
            Ok(Reply::Held(held)) => {
                self.damages += 1;
                let spoiled = Reply::Spoiled {
                    inc: held.inc,
                    generation: held.ring.generation,
                    stream: held.ring.stream,
                    damage: self.damages,
                };
                spoiled.frame()
            }
            _ => outcome.reply,
        });
        Ok(Sent::Yes)
    }

    fn receive(&mut self) -> std::result::Result<Option<Vec<u8>>, String> {
        Ok(self.replies.pop_front())
    }
}

/// Regression: the writer panicked when a node found a renewed ring spoiled again and reported new damage.
#[test]
fn a_ring_that_is_spoiled_again_and_again_keeps_its_node_out_and_no_more() {
    let (mirror, log) = (
        writer(Arc::new(Spoilt), Rng::with_seed(1)),
        Lagging::default(),
    );
    for round in 1..500 {
        let now_ns = round * 2_000_000;
        mirror.pump(&log, now_ns);
        mirror.manage(&log, now_ns).unwrap();
        assert!(!mirror.is_mirrored());
    }
    let status = mirror.status(1_000_000_000);
    let trouble = status.groups[0].nodes[0].trouble.clone().unwrap();
    assert!(trouble.contains("differs from what was sent"), "{trouble}");
}

#[test]
fn a_writer_under_any_nodes() {
    let (mut run, mut rng) = Run::new("writer");
    let (mut raised, mut mirrored) = (0, 0);
    while run.next() {
        let mirror = writer(Liars::new(&mut rng), rng.fork());
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
            // If a node has reported a later generation, the writer must only ask the arbiter.
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
