//! A simulated network of nodes and an arbiter, controlled by a seed. Nodes and clients run the production code, and
//! the simulated network produces every fault that a real network may have.
//!
//! A connection has a queue of sent frames. A sent frame waits in the queue until the simulator delivers the frame. So
//! the frames of one connection arrive in order. Frames of two connections arrive in any order. If a connection breaks,
//! the waiting frames of both directions are lost. A *cut* between a client and a node delays the frames of one
//! direction or of both. The client and the node do not notice the cut. A killed node loses its memory. A paused node
//! answers later.

mod arbiter;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use perdura_base::num::to_u64;
use perdura_base::{Pos, Result};

use crate::handshake::Identity;
use crate::ids::{Machine, NodeInc, RingName};
use crate::message::RingState;
use crate::net::{Connection, Net, Sent};
use crate::node::{Holdings, Node, NodeOptions, Peer};
use crate::shared::{HeapMemory, Memories, Shared};
use crate::{Key, Nonce};

pub use arbiter::{Mood, SimRegister};

/// The maximum number of frames that wait on the way from a client to a node. With this many waiting, the connection
/// reports that it is full.
const QUEUE_MAX: usize = 64;

/// The number of looks after which frames of half-open connections may move again. A look makes a list of the possible
/// moves.
const LATE: u64 = 256;

/// A direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From the client to the node.
    Up,
    /// From the node to the client.
    Down,
}

/// A possible move of a frame: the number of its connection, and its direction.
pub type Move = (u64, Way);

struct Host {
    node: Option<Node>,
    is_paused: bool,
    machine: Machine,
    ring_bytes: u64,
    key: Key,
    /// The memories that the node has shared with clients since it last started.
    memories: Shares,
}

/// All memories, oldest first.
type Shares = Arc<Mutex<Vec<Weak<dyn Shared>>>>;

/// A frame from a node, and the memory that comes with it.
type Reply = (Vec<u8>, Option<Arc<dyn Shared>>);

struct Pipe {
    client: u32,
    address: String,
    peer: Peer,
    /// The client's frames on the way to the node.
    up: VecDeque<Vec<u8>>,
    /// The node's frames on the way to the client.
    down: VecDeque<Reply>,
    /// The frames that have arrived at the client and that the client has not taken.
    arrived: VecDeque<Reply>,
    /// The memory that came with the last frame that the client took.
    memory: Option<Arc<dyn Shared>>,
    is_broken: bool,
    /// True if the client finds the connection broken while frames that it sent may still arrive.
    is_half_open: bool,
    /// True if the client has closed the connection.
    is_left: bool,
}

#[derive(Default)]
struct World {
    hosts: BTreeMap<String, Host>,
    pipes: BTreeMap<u64, Pipe>,
    /// For each client and node, the cut directions.
    cuts: BTreeMap<(u32, String), Vec<Way>>,
    /// The contents that each killed node had when it was killed.
    fallen: BTreeMap<NodeInc, Holdings>,
    /// The machine of each client.
    machines: BTreeMap<u32, Machine>,
    next_pipe: u64,
    next_random: u64,
    frames: u64,
    /// The count of looks so far.
    looks: u64,
    /// The index of a frame to lose, as in [`SimNet::lose_frame`].
    lost_frame: Option<u64>,
    /// A reused buffer for the possible moves.
    moves: Vec<Move>,
}

impl World {
    fn random(&mut self) -> u64 {
        self.next_random += 1;
        perdura_base::checksum::mix64(self.next_random)
    }

    fn is_cut(&self, pipe: &Pipe, way: Way) -> bool {
        let mut cuts = self.cuts.iter();
        cuts.any(|((client, address), ways)| {
            *client == pipe.client && *address == pipe.address && ways.contains(&way)
        })
    }

    /// Returns whether the next frame of a connection can move in a direction.
    fn can_move(&self, pipe: &Pipe, way: Way) -> bool {
        let is_late = pipe.is_half_open && !self.looks.is_multiple_of(LATE);
        let waits = match way {
            Way::Up => !pipe.up.is_empty(),
            Way::Down => !pipe.down.is_empty(),
        };
        if !waits || pipe.is_broken || is_late || self.is_cut(pipe, way) {
            return false;
        }
        let host = || self.hosts.get(&pipe.address);
        way == Way::Down || host().is_some_and(|host| !host.is_paused)
    }

    /// Fills `moves` with all moves that are possible now.
    fn look(&mut self, moves: &mut Vec<Move>) {
        self.looks += 1;
        moves.clear();
        for (id, pipe) in &self.pipes {
            let ways = [Way::Up, Way::Down].into_iter();
            let possible = ways.filter(|way| self.can_move(pipe, *way));
            moves.extend(possible.map(|way| (*id, way)));
        }
    }

    fn deliver(&mut self, (id, way): Move) {
        let lost = self.lost_frame == Some(self.frames);
        self.frames += 1;
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return;
        };
        if lost {
            pipe.is_broken = true;
            return;
        }
        match way {
            Way::Down => {
                let frame = pipe.down.pop_front();
                pipe.arrived.extend(frame);
            }
            Way::Up => {
                let host = self.hosts.get_mut(&pipe.address);
                let node = host.and_then(|host| host.node.as_mut());
                let (Some(frame), Some(node)) = (pipe.up.pop_front(), node) else {
                    pipe.is_broken = true;
                    return;
                };
                let outcome = node.handle(&mut pipe.peer, &frame);
                pipe.down.push_back((outcome.reply, outcome.memory));
                pipe.is_broken |= outcome.ends;
            }
        }
        let gone = |pipe: &Pipe| pipe.is_left && (pipe.is_broken || pipe.up.is_empty());
        self.pipes.retain(|_, pipe| !gone(pipe));
    }
}

/// A simulated network: the nodes, the connections, and the frames in them.
#[derive(Clone, Default)]
pub struct SimNet(Arc<Mutex<World>>);

impl SimNet {
    /// Returns a network without nodes.
    #[must_use]
    pub fn new() -> SimNet {
        SimNet::default()
    }

    /// Adds a node at an address and starts it.
    pub fn add(&self, address: &str, machine: Machine, ring_bytes: u64, key: Key) {
        let host = Host {
            node: None,
            is_paused: false,
            machine,
            ring_bytes,
            key,
            memories: Arc::default(),
        };
        self.0.lock().hosts.insert(address.to_owned(), host);
        self.start(address);
    }

    /// Starts a node with empty memory. Does nothing if it is running.
    pub fn start(&self, address: &str) {
        let mut world = self.0.lock();
        let inc = NodeInc(world.random());
        let host = world.hosts.get_mut(address).expect("a node that was added");
        if host.node.is_none() {
            host.is_paused = false;
            let memories = Arc::new(Mutex::new(Vec::new()));
            host.memories = Arc::clone(&memories);
            let make = move |len| {
                let memory: Arc<dyn Shared> = Arc::new(HeapMemory::new(len));
                let mut all = memories.lock();
                all.retain(|memory: &Weak<dyn Shared>| memory.strong_count() > 0);
                all.push(Arc::downgrade(&memory));
                Some(memory)
            };
            host.node = Some(Node::new(NodeOptions {
                ring_bytes: host.ring_bytes,
                rings_max: 64,
                key: host.key.clone(),
                machine: host.machine,
                inc,
                memories: Some(Memories(Arc::new(make))),
            }));
        }
    }

    /// Kills a node. Its memory is lost, and its connections break.
    pub fn kill(&self, address: &str) {
        let mut world = self.0.lock();
        let host = world.hosts.get_mut(address);
        let node = host.expect("a node that was added").node.take();
        if let Some(node) = node {
            world.fallen.insert(node.inc(), node.holdings());
        }
        let pipes = world.pipes.values_mut();
        pipes
            .filter(|pipe| pipe.address == address)
            .for_each(|pipe| pipe.is_broken = true);
    }

    /// Pauses a node, or ends its pause if `is_paused` is false. A paused node answers nothing.
    pub fn pause(&self, address: &str, is_paused: bool) {
        let mut world = self.0.lock();
        world
            .hosts
            .get_mut(address)
            .expect("a node that was added")
            .is_paused = is_paused;
    }

    /// Returns the node's shared memories that are in use, oldest first. Tests damage these memories.
    #[must_use]
    pub fn memories(&self, address: &str) -> Vec<Arc<dyn Shared>> {
        let world = self.0.lock();
        let host = world.hosts.get(address).expect("a node that was added");
        let memories = host.memories.lock();
        memories.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the incarnation of a node. `None`: it is not running.
    #[must_use]
    pub fn inc(&self, address: &str) -> Option<NodeInc> {
        let world = self.0.lock();
        world.hosts.get(address)?.node.as_ref().map(Node::inc)
    }

    /// Returns the bytes that the node's incarnation `inc` has of a ring, and the position of the first byte. `None`:
    /// that incarnation is not running, or it does not have the ring.
    ///
    /// # Errors
    /// The position of the first damaged byte.
    #[must_use]
    pub fn held(
        &self,
        address: &str,
        inc: NodeInc,
        ring: RingName,
    ) -> Option<Result<(Pos, Vec<u8>), Pos>> {
        let world = self.0.lock();
        let node = world.hosts.get(address)?.node.as_ref();
        let node = node.filter(|node| node.inc() == inc)?;
        let mut bytes = Vec::new();
        let from = match node.copy_of(ring, Pos(0), usize::MAX, &mut bytes)? {
            Ok((from, _low)) => from,
            Err(_) => return Some(Err(Pos(0))),
        };
        let holdings = node.holdings();
        let mut rings = holdings.rings.iter();
        let is_it = |of: &RingState| (of.generation, of.stream) == (ring.generation, ring.stream);
        let (_, state) = rings.find(|(of, state)| *of == ring.uuid && is_it(state))?;
        let end = Pos(from.0 + to_u64(bytes.len()));
        Some(match end == state.end {
            true => Ok((from, bytes)),
            false => Err(end),
        })
    }

    /// Returns the contents that an incarnation of a node had when it was killed.
    #[must_use]
    pub fn fallen(&self, inc: NodeInc) -> Option<Holdings> {
        self.0.lock().fallen.get(&inc).cloned()
    }

    /// Stops the frames of one direction between a client and a node.
    pub fn cut(&self, client: u32, address: &str, way: Way) {
        let mut world = self.0.lock();
        let ways = world.cuts.entry((client, address.to_owned())).or_default();
        ways.push(way);
    }

    /// Ends all cuts and all pauses.
    pub fn heal(&self) {
        let mut world = self.0.lock();
        world.cuts.clear();
        world
            .hosts
            .values_mut()
            .for_each(|host| host.is_paused = false);
    }

    /// Breaks the connections between a client and a node. The frames in them are lost.
    pub fn break_connections(&self, client: u32, address: &str) {
        let mut world = self.0.lock();
        let pipes = world.pipes.values_mut();
        let between = pipes.filter(|pipe| pipe.client == client && pipe.address == address);
        between.for_each(|pipe| pipe.is_broken = true);
    }

    /// Makes the connections of a client to a node half open. The client finds the connections broken, but the client's
    /// sent frames still arrive. Sent frames may arrive after the first frames of the client's next connection.
    pub fn half_open(&self, client: u32, address: &str) {
        let mut world = self.0.lock();
        let pipes = world.pipes.values_mut();
        let between = pipes.filter(|pipe| pipe.client == client && pipe.address == address);
        between.for_each(|pipe| pipe.is_half_open = true);
    }

    /// Ends a client. Frames that it has sent may still arrive, until the simulator breaks their connection.
    pub fn leave(&self, client: u32) {
        let mut world = self.0.lock();
        let pipes = world.pipes.values_mut();
        pipes
            .filter(|pipe| pipe.client == client)
            .for_each(|pipe| pipe.is_left = true);
    }

    /// Sets the client's machine. Nodes on that machine share memory with the client.
    pub fn set_machine(&self, client: u32, machine: Machine) {
        self.0.lock().machines.insert(client, machine);
    }

    /// Loses the frame with this number, and breaks its connection. Frames are numbered in the order of their moves,
    /// from 0.
    pub fn lose_frame(&self, number: u64) {
        self.0.lock().lost_frame = Some(number);
    }

    /// Returns the number of frames that have moved.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.0.lock().frames
    }

    /// Returns the moves that are possible now.
    #[must_use]
    pub fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        self.0.lock().look(&mut moves);
        moves
    }

    /// Moves one frame.
    pub fn deliver(&self, to_move: Move) {
        self.0.lock().deliver(to_move);
    }

    /// Moves one frame, if a frame can move. `draw` gets the number of possible moves and returns the index of the move
    /// to make. Returns whether a move was possible.
    pub fn deliver_one(&self, draw: impl FnOnce(usize) -> usize) -> bool {
        let mut world = self.0.lock();
        let mut moves = std::mem::take(&mut world.moves);
        world.look(&mut moves);
        let is_one = !moves.is_empty();
        if is_one {
            world.deliver(moves[draw(moves.len())]);
        }
        world.moves = moves;
        is_one
    }

    /// Returns the network for one client.
    #[must_use]
    pub fn client(&self, client: u32) -> Arc<dyn Net> {
        Arc::new(Client {
            net: self.clone(),
            client,
        })
    }
}

struct Client {
    net: SimNet,
    client: u32,
}

impl Client {
    fn begin(&self, world: &mut World, address: &str, is_local: bool) -> Box<dyn Connection> {
        let mut nonce: Nonce = [0; 32];
        nonce[..8].copy_from_slice(&world.random().to_le_bytes());
        let id = world.next_pipe;
        world.next_pipe += 1;
        let host = world.hosts.get(address);
        let runs = host.is_some_and(|host| host.node.is_some());
        world.pipes.insert(
            id,
            Pipe {
                client: self.client,
                address: address.to_owned(),
                peer: match is_local {
                    true => Peer::local(nonce),
                    false => Peer::new(nonce),
                },
                up: VecDeque::new(),
                down: VecDeque::new(),
                arrived: VecDeque::new(),
                memory: None,
                is_broken: !runs,
                is_half_open: false,
                is_left: false,
            },
        );
        Box::new(SimConnection {
            net: self.net.clone(),
            id,
        })
    }
}

impl Net for Client {
    fn connect(&self, address: &str) -> Result<Box<dyn Connection>> {
        Ok(self.begin(&mut self.net.0.lock(), address, false))
    }

    fn local(&self, node: &Identity) -> Option<Box<dyn Connection>> {
        let mut world = self.net.0.lock();
        if world.machines.get(&self.client) != Some(&node.machine) {
            return None;
        }
        let mut hosts = world.hosts.iter();
        let inc = |host: &Host| host.node.as_ref().map(Node::inc);
        let found = hosts.find(|(_, host)| inc(host) == Some(node.inc));
        let address = found?.0.clone();
        Some(self.begin(&mut world, &address, true))
    }
}

struct SimConnection {
    net: SimNet,
    id: u64,
}

impl SimConnection {
    fn with<T>(&self, act: impl FnOnce(&mut Pipe) -> Result<T, String>) -> Result<T, String> {
        let mut world = self.net.0.lock();
        let pipe = world.pipes.get_mut(&self.id);
        let pipe = pipe.ok_or_else(|| "the connection is broken".to_owned())?;
        act(pipe)
    }
}

impl Connection for SimConnection {
    fn send(&mut self, head: &[u8], tail: &[u8]) -> Result<Sent, String> {
        self.with(|pipe| {
            if pipe.is_broken || pipe.is_half_open {
                return Err("the connection is broken".into());
            }
            if pipe.up.len() >= QUEUE_MAX {
                return Ok(Sent::Full);
            }
            pipe.up.push_back([head, tail].concat());
            Ok(Sent::Yes)
        })
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>, String> {
        self.with(|pipe| match pipe.arrived.pop_front() {
            Some((frame, memory)) => {
                pipe.memory = memory;
                Ok(Some(frame))
            }
            None if pipe.is_broken || pipe.is_half_open => Err("the connection is broken".into()),
            None => Ok(None),
        })
    }

    fn memory(&mut self) -> Option<Arc<dyn Shared>> {
        let memory = self.with(|pipe| Ok(pipe.memory.take()));
        memory.ok().flatten()
    }

    fn stands(&mut self) -> Result<(), String> {
        self.with(|pipe| match pipe.is_broken || pipe.is_half_open {
            true => Err("the connection is broken".into()),
            false => Ok(()),
        })
    }
}

impl Drop for SimConnection {
    fn drop(&mut self) {
        let mut world = self.net.0.lock();
        if let Some(pipe) = world.pipes.get_mut(&self.id) {
            pipe.is_left = true;
            if pipe.is_broken || pipe.up.is_empty() {
                world.pipes.remove(&self.id);
            }
        }
    }
}
