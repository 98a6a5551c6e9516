//! A writer with a mirror. A test controls every step of the writer.

use std::sync::Arc;

use perdura_base::{Epoch, Incarnation, Pos, StreamId};
use perdura_mirror::sim::{SimNet, SimRegister};
use perdura_mirror::{
    Beginning, Claim, Claimant, Key, Machine, Mirror, MirrorOptions, Register, View, beginning_view,
};
use perdura_wal::Sealed;

use super::{BLOCK, MS, ModelLog, TAIL, UUID};

pub struct Rig {
    pub net: SimNet,
    pub register: SimRegister,
    pub log: Arc<ModelLog>,
    pub mirror: Arc<Mirror>,
    pub now_ns: u64,
    shipped: Vec<u64>,
}

impl Rig {
    pub fn new(groups: u8, streams: u8) -> Rig {
        Rig::with(groups, streams, [Machine([1; 16]), Machine([2; 16])], false)
    }

    pub fn on_one_machine(allowed: bool) -> Rig {
        Rig::with(1, 1, [Machine([1; 16]); 2], allowed)
    }

    fn with(groups: u8, streams: u8, machines: [Machine; 2], one_machine: bool) -> Rig {
        let (net, register) = (SimNet::new(), SimRegister::new());
        let mut addresses = Vec::new();
        for group in 0..groups {
            let pair = [0, 1].map(|node| format!("node-{group}-{node}"));
            for (address, machine) in pair.iter().zip(machines) {
                net.add(address, machine, TAIL * 2, Key::none());
            }
            addresses.push(pair);
        }
        let by = Claimant {
            uuid: UUID,
            writer: 1,
            wall_us: 0,
            groups,
            streams,
        };
        let mut claim = Claim::new(by.clone());
        let mut arbiter = register.clone();
        let claimed = loop {
            if let Some(view) = claim.step(&mut arbiter).unwrap() {
                break view;
            }
        };
        let view = beginning_view(&claimed, &by, Incarnation(1), Epoch(0));
        arbiter.replace(&view).unwrap();
        let start = vec![0; usize::from(streams)];
        let beginning = Beginning {
            view,
            start: start.iter().copied().map(Pos).collect(),
            anchored: false,
            random: Box::new(|| 4),
        };
        let options = MirrorOptions {
            tail_bytes_max: TAIL,
            one_machine,
            ..MirrorOptions::new(addresses, Key::none())
        };
        let mirror = Mirror::new(
            options,
            net.client(1),
            Box::new(register.clone()),
            beginning,
        );
        Rig {
            net,
            register,
            log: Arc::new(ModelLog::new(start.clone(), Arc::default(), 0)),
            mirror: Arc::new(mirror.unwrap()),
            now_ns: MS,
            shipped: start,
        }
    }

    /// Moves the writer to the machine on which each group's first node runs. The writer can then use the memory of
    /// these nodes.
    pub fn come_home(&self) {
        self.net.set_machine(1, Machine([1; 16]));
    }

    pub fn is_mapped(&self, group: usize, node: usize) -> bool {
        let status = self.mirror.status(self.now_ns);
        status.groups[group].nodes[node].is_mapped
    }

    pub fn view(&self) -> View {
        self.register.view().unwrap()
    }

    pub fn ship(&mut self, stream: u8, blocks: u64) {
        for _ in 0..blocks {
            let shipped = &mut self.shipped[usize::from(stream)];
            Rig::ship_at(&self.mirror, stream, *shipped);
            *shipped += 64;
        }
    }

    /// Ships a block to a mirror directly, at a given position.
    pub fn ship_at(mirror: &Mirror, stream: u8, pos: u64) {
        let sealed = Sealed {
            stream: StreamId(stream),
            pos: Pos(pos),
            epoch: Epoch(1),
            bytes: &[7; BLOCK],
        };
        mirror.ship(sealed, Pos(0));
    }

    pub fn raised(&self, stream: usize) -> u64 {
        self.log.disk.lock().raised[stream]
    }

    pub fn sync(&self, stream: usize, end: u64) {
        self.log.disk.lock().sync(stream, end);
    }

    /// Moves all frames and takes all steps until there is nothing to do.
    pub fn settle(&mut self) {
        self.pass_ms(40);
    }

    /// Takes single steps, each with one frame, until a condition holds.
    pub fn step_until(&mut self, is_so: impl Fn(&Rig) -> bool) {
        for step in 0..10_000 {
            if is_so(self) {
                return;
            }
            self.now_ns += if step % 8 == 0 { MS } else { 0 };
            if let Some(first) = self.net.moves().first() {
                self.net.deliver(*first);
            }
            self.mirror.pump(self.log.as_ref(), self.now_ns);
            let _an_arbiter_may_fail = self.mirror.manage(self.log.as_ref(), self.now_ns);
        }
        panic!("it does not come to that: {:?}", self.view());
    }

    pub fn is_ready(&self, group: usize, node: usize) -> bool {
        let status = self.mirror.status(self.now_ns);
        status.groups[group].nodes[node].is_ready
    }

    pub fn pass_ms(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ns += MS;
            for _ in 0..4 {
                while let Some(first) = self.net.moves().first() {
                    self.net.deliver(*first);
                }
                self.mirror.pump(self.log.as_ref(), self.now_ns);
                let _an_arbiter_may_fail = self.mirror.manage(self.log.as_ref(), self.now_ns);
            }
        }
    }
}
