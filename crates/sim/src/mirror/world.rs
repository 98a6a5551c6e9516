//! The state of a run in mirror mode.

use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;
use perdura::mirror::View;
use perdura::mirror::sim::{SimNet, SimRegister};
use perdura::{Core, Disks, Env, Error, Nodes, Progress};
use perdura_base::error::Family;
use perdura_device::{Clock, Disk, ManualClock, SimDisk};

use crate::cluster::{Fabric, Groups};
use crate::content::scramble;
use crate::machine::keep_locked;
use crate::report::{Check, Tally};

use super::character::Character;
use super::trouble::Trouble;
use super::writer::Writer;

/// The length of a lease in nanoseconds, in runs that use leases. A writer can take several steps and rounds during
/// one lease.
const LEASE_NS: u64 = 80_000_000;

/// Returns whether the writers of a run have a lease.
fn has_lease(seed: u64) -> bool {
    seed % 4 == 1
}

/// The state of a run.
pub(super) struct World {
    pub seed: u64,
    pub rng: Rng,
    pub character: Character,
    /// The disks, the data disk first.
    pub disks: Vec<Arc<SimDisk>>,
    pub clock: Arc<ManualClock>,
    pub net: SimNet,
    pub register: SimRegister,
    pub groups: Groups,
    fabric: Fabric,
    clients: u32,
    numbers: u64,
    /// A sleeping process that may continue.
    pub asleep: Option<Writer>,
    pub tally: Tally,
    pub trace: u64,
    pub faults_before: u64,
}

impl World {
    /// Returns a world with empty disks and running nodes.
    pub fn new(seed: u64, rng: Rng, character: Character) -> World {
        let lease_ns = if has_lease(seed) { LEASE_NS } else { 0 };
        let fabric = Fabric::new(seed, character.groups, character.tail_bytes, lease_ns);
        let disks = if character.apart {
            1 + u64::from(character.streams)
        } else {
            1
        };
        World {
            seed,
            rng,
            disks: (0..disks)
                .map(|number| SimDisk::new(scramble(seed ^ (number << 56))))
                .collect(),
            clock: Arc::new(ManualClock::at(1_700_000_000_000_000)),
            net: fabric.net.clone(),
            register: fabric.register.clone(),
            groups: Arc::clone(&fabric.groups),
            fabric,
            clients: 0,
            numbers: 0,
            asleep: None,
            tally: Tally::default(),
            trace: scramble(seed),
            faults_before: 0,
            character,
        }
    }

    /// Returns whether a random event happens. Its probability is `odds` out of 100.
    pub fn chance(&mut self, odds: u8) -> bool {
        self.rng.u8(0..100) < odds
    }

    /// Folds an event into the trace.
    pub fn note(&mut self, what: u64) {
        self.trace = scramble(self.trace ^ what);
    }

    /// Counts that the run has reached the rare state `mark`.
    pub fn reach(&mut self, mark: &'static str) {
        *self.tally.reached.entry(mark).or_default() += 1;
    }

    /// Returns a number that no earlier call has returned.
    pub fn fresh(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Returns the id of a new process in the network.
    pub fn next_client(&mut self) -> u32 {
        self.clients += 1;
        self.clients
    }

    /// Returns the view in force, if any.
    pub fn view(&self) -> Option<View> {
        self.register.view()
    }

    /// Returns how many disk faults of any kind have struck so far.
    pub fn faults_struck(&self) -> u64 {
        self.disks.iter().map(|disk| disk.faults_struck()).sum()
    }

    /// Returns whether all disks have power: no planned power cut has struck.
    pub fn has_power(&self) -> bool {
        self.disks.iter().all(|disk| disk.has_power())
    }

    /// Opens the database as the process with the id `client`, with the nodes or without.
    pub fn open(&mut self, client: u32, nodes: Option<(bool, u8)>) -> Result<Core, Error> {
        let accept_loss = nodes.is_some_and(|(accept_loss, _)| accept_loss);
        let nodes = nodes.map(|(_, trouble)| self.nodes(client, trouble));
        let lives: Vec<Arc<dyn Disk>> = self
            .disks
            .iter()
            .map(|disk| disk.life() as Arc<dyn Disk>)
            .collect();
        keep_locked(&self.disks);
        let streams = usize::from(self.character.streams);
        let mut disks = Disks::on_one(Arc::clone(&lives[0]), streams);
        if self.character.apart {
            disks.logs = lives[1..].to_vec();
        }
        let env = Env {
            disks,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            seed: self.seed,
            nodes,
            accept_loss,
        };
        Core::open(env, self.character.options(), Arc::new(Progress::default()))
    }

    /// Returns the nodes as a process sees them. Each time the process waits for a node, a random fault or repair
    /// happens with a probability of `trouble` out of 100.
    fn nodes(&mut self, client: u32, trouble: u8) -> Nodes {
        let clock = Arc::clone(&self.clock);
        let meanwhile = Mutex::new(Trouble {
            rng: self.rng.fork(),
            net: self.net.clone(),
            register: self.register.clone(),
            groups: Arc::clone(&self.groups),
            clients: client,
        });
        self.fabric.nodes(client, move || {
            let mut meanwhile = meanwhile.lock();
            meanwhile.deliver(8);
            if meanwhile.rng.u8(0..100) < trouble {
                meanwhile.strike();
            }
            clock.advance_us(10_000);
        })
    }

    /// Calls `act` with the parts that can fail between steps: the nodes, the network and the arbiter.
    pub fn trouble<T>(&mut self, act: impl FnOnce(&mut Trouble) -> T) -> T {
        let mut trouble = Trouble {
            rng: self.rng.fork(),
            net: self.net.clone(),
            register: self.register.clone(),
            groups: Arc::clone(&self.groups),
            clients: self.clients,
        };
        act(&mut trouble)
    }

    /// Accepts an error if a fault, a full log or the replacement of the writer explains it.
    ///
    /// # Errors
    /// A contradiction, if nothing explains the error.
    pub fn tolerate(&mut self, writer: &mut Writer, step: &str, error: &Error) -> Check {
        if error.family() == Family::Corruption {
            return Err(format!("{step}: {error}"));
        }
        if matches!(error, Error::LogFull(_)) {
            return Ok(());
        }
        writer.stopped |= writer.core().wal().failure().is_some();
        let newest = self.view().map(|view| view.generation);
        let is_replaced = newest.is_some_and(|newest| newest > writer.generation);
        match error.is_fenced() {
            true if is_replaced => return Ok(()),
            true if has_lease(self.seed) && error.to_string().contains("log-lease") => {
                self.reach("lease_over");
                return Ok(());
            }
            true => return Err(format!("{step}: no other writer has claimed, and: {error}")),
            false => {}
        }
        match writer.is_fenced_off || self.faults_struck() > self.faults_before {
            true => Ok(()),
            false => Err(format!("{step} failed without a fault: {error}")),
        }
    }
}
