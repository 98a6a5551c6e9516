//! Simulated nodes, an arbiter, the network, and a process's access to the nodes. The arbiter stores the *view*. The
//! view says which process may write, and where the acknowledged bytes are.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use parking_lot::Mutex;
use perdura::mirror::sim::{SimNet, SimRegister};
use perdura::mirror::{Key, Machine, MirrorOptions, Patience, Register};
use perdura::{Core, Nodes};
use perdura_base::Error;
use perdura_device::{Clock, ManualClock};

use crate::content::scramble;

/// The maximum number of steps for ending a mirror.
const END_STEPS: usize = 200;

/// The nodes' addresses, two for each group.
pub(crate) type Groups = Arc<[[String; 2]]>;

/// Nodes, and the network and arbiter between them.
pub(crate) struct Fabric {
    pub net: SimNet,
    pub register: SimRegister,
    pub groups: Groups,
    /// The maximum number of bytes of a stream that may be shipped before they are synced.
    tail_bytes: u64,
    /// The length of a writer's lease, in nanoseconds. The lease begins with a request to the arbiter. During the
    /// lease, the writer's disk suffices for an acknowledgement. 0: no limit.
    lease_ns: u64,
    random: Arc<AtomicU64>,
}

impl Fabric {
    /// Returns a fabric with two running nodes in each group. Each node has a separate machine.
    pub fn new(seed: u64, groups: u8, tail_bytes: u64, lease_ns: u64) -> Fabric {
        let net = SimNet::new();
        let mut addresses = Vec::new();
        for group in 0..groups {
            let pair = [0, 1].map(|node| format!("node-{group}-{node}"));
            for (number, address) in (1u8..).zip(&pair) {
                let machine = Machine([group * 2 + number; 16]);
                net.add(address, machine, tail_bytes * 2, Key::none());
            }
            addresses.push(pair);
        }
        assert!(!addresses.is_empty(), "a mirror has nodes");
        Fabric {
            net,
            register: SimRegister::new(),
            groups: addresses.into(),
            tail_bytes,
            lease_ns,
            random: Arc::new(AtomicU64::new(seed)),
        }
    }

    /// Returns the nodes as the process with the id `client` sees them. While the process waits for a node, it calls
    /// `pass` to advance time.
    pub fn nodes(&self, client: u32, pass: impl Fn() + Send + Sync + 'static) -> Nodes {
        let (register, random) = (self.register.clone(), Arc::clone(&self.random));
        Nodes {
            options: MirrorOptions {
                tail_bytes_max: self.tail_bytes,
                lease_ns: self.lease_ns,
                ..MirrorOptions::new(self.groups.to_vec(), Key::none())
            },
            net: self.net.client(client),
            register: Arc::new(move |_| Ok(Box::new(register.clone()) as Box<dyn Register>)),
            random: Arc::new(move || scramble(random.fetch_add(1, Ordering::Relaxed))),
            patience: Patience {
                other_ns: 40_000_000,
                all_ns: 200_000_000,
                retry_ns: 20_000_000,
            },
            pass: Arc::new(pass),
        }
    }
}

/// Delivers up to `frames` frames. The connection of each frame is chosen at random.
pub(crate) fn deliver(net: &SimNet, rng: &mut Rng, frames: usize) {
    for _ in 0..frames {
        if !net.deliver_one(|moves| rng.usize(0..moves)) {
            return;
        }
    }
}

/// The nodes of a run that does not test the mirror. The network and the arbiter work, and one node of each group
/// always runs. So no acknowledged data is lost.
pub(crate) struct Cluster {
    fabric: Fabric,
    clock: Arc<ManualClock>,
    /// The id of the newest process in the network.
    client: Cell<u32>,
    rng: Rng,
}

impl Cluster {
    /// Returns a cluster of one group or two.
    pub fn new(seed: u64, clock: Arc<ManualClock>) -> Cluster {
        let mut rng = Rng::with_seed(scramble(seed ^ 0x636c_7573));
        Cluster {
            fabric: Fabric::new(seed, rng.u8(1..=2), 64 << 10, 0),
            clock,
            client: Cell::new(0),
            rng,
        }
    }

    /// Returns the nodes as a new process sees them.
    pub fn nodes(&self) -> Nodes {
        self.client.set(self.client.get() + 1);
        let (net, clock) = (self.fabric.net.clone(), Arc::clone(&self.clock));
        let rng = Mutex::new(Rng::with_seed(scramble(u64::from(self.client.get()))));
        self.fabric.nodes(self.client.get(), move || {
            deliver(&net, &mut rng.lock(), 16);
            clock.advance_us(10_000);
        })
    }

    /// Removes the newest process from the network.
    pub fn leave(&self) {
        self.fabric.net.leave(self.client.get());
    }

    /// Takes a step of the nodes, in addition to the run's own step: time passes, blocks are shipped, frames move,
    /// replies are collected, the view changes. Sometimes the second node of a group loses its memory. Returns
    /// whether the process has epochs that are durable on the mirror but not on its disk.
    ///
    /// # Errors
    /// Errors of the log and of the anchor.
    pub fn step(&mut self, core: &Core) -> Result<bool, Error> {
        let Some(nodes) = core.nodes() else {
            return Ok(false);
        };
        let rng = &mut self.rng;
        if rng.u8(0..150) == 0 {
            let node = &self.fabric.groups[rng.usize(0..self.fabric.groups.len())][1];
            self.fabric.net.kill(node);
            self.fabric.net.start(node);
        }
        for _ in 0..rng.u8(0..4) {
            self.clock.advance_us(rng.u64(0..10_000));
            if rng.bool() {
                core.ship()?;
            }
            deliver(&self.fabric.net, rng, 24);
            nodes.pump(self.clock.mono_ns());
            nodes.manage(self.clock.mono_ns())?;
        }
        let wal = core.wal();
        Ok(wal.durable(perdura::Rung::Mirror) > wal.durable(perdura::Rung::Disk))
    }

    /// Prepares the end of a process. After that end, the process's disk alone suffices. For that, the view changes to
    /// Disk, and the anchor records the change. Returns false only if the log has failed, because the view then cannot
    /// change.
    ///
    /// # Errors
    /// Errors of the log and of the anchor.
    pub fn end(&mut self, core: &Core) -> Result<bool, Error> {
        let Some(nodes) = core.nodes() else {
            return Ok(true);
        };
        nodes.begin_stop();
        for _ in 0..END_STEPS {
            if nodes.has_stopped() {
                return Ok(true);
            }
            self.clock.advance_us(5000);
            deliver(&self.fabric.net, &mut self.rng, 24);
            nodes.pump(self.clock.mono_ns());
            nodes.manage(self.clock.mono_ns())?;
        }
        Ok(false)
    }
}
