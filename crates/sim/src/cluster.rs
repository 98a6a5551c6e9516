//! Nodes, an arbiter and a network between them, and how a process of a run reaches them.

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

/// Steps in which a mirror ends, at most.
const END_STEPS: usize = 200;

/// The nodes' addresses, two for each group.
pub(crate) type Groups = Arc<[[String; 2]]>;

/// Nodes and what is between them.
pub(crate) struct Fabric {
    pub net: SimNet,
    pub register: SimRegister,
    pub groups: Groups,
    /// Bytes of a stream that may be shipped and not synced.
    tail_bytes: u64,
    /// How long a writer may acknowledge by its disk after it has asked the arbiter, nanoseconds; 0: for ever.
    lease_ns: u64,
    random: Arc<AtomicU64>,
}

impl Fabric {
    /// Groups of two nodes that run, each on a machine that no other one is on.
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

    /// The nodes as the process of that name has them. `pass` has a moment pass while it waits for them.
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

/// Moves up to so many frames, each of a drawn connection.
pub(crate) fn deliver(net: &SimNet, rng: &mut Rng, frames: usize) {
    for _ in 0..frames {
        if !net.deliver_one(|moves| rng.usize(0..moves)) {
            return;
        }
    }
}

/// The nodes of a run that is about something else: network and arbiter work, and of each group one node always runs. So nothing
/// that was acknowledged is lost.
pub(crate) struct Cluster {
    fabric: Fabric,
    clock: Arc<ManualClock>,
    /// The name of the newest process.
    client: Cell<u32>,
    rng: Rng,
}

impl Cluster {
    /// One group or two.
    pub fn new(seed: u64, clock: Arc<ManualClock>) -> Cluster {
        let mut rng = Rng::with_seed(scramble(seed ^ 0x636c_7573));
        Cluster {
            fabric: Fabric::new(seed, rng.u8(1..=2), 64 << 10, 0),
            clock,
            client: Cell::new(0),
            rng,
        }
    }

    /// The nodes as the next process has them.
    pub fn nodes(&self) -> Nodes {
        self.client.set(self.client.get() + 1);
        let (net, clock) = (self.fabric.net.clone(), Arc::clone(&self.clock));
        let rng = Mutex::new(Rng::with_seed(scramble(u64::from(self.client.get()))));
        self.fabric.nodes(self.client.get(), move || {
            deliver(&net, &mut rng.lock(), 16);
            clock.advance_us(10_000);
        })
    }

    /// The newest process is gone.
    pub fn leave(&self) {
        self.fabric.net.leave(self.client.get());
    }

    /// What happens beside a step of the run: time passes, blocks are shipped, frames move, replies are collected, the view changes.
    /// Now and then the second node of a group loses its memory. Returns whether the process went ahead of its disk.
    ///
    /// # Errors
    /// The log's, the anchor's.
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

    /// The end of a process whose log is on disk: the view goes to Disk, and the anchor says so. Returns whether it came to that; it
    /// always does, except if the log has failed.
    ///
    /// # Errors
    /// The log's, the anchor's.
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
