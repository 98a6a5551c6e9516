//! The world of the tree: a machine with a database, and clients.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fastrand::Rng;
use perdura_base::Error;
use perdura_device::{Clock, Disk, SimDisk};
use perdura_recovery::Disks;
use perdura_steal::{Committed, Keyed, KeyedOptions, StealEnv};
use perdura_wal::Rung;

use crate::locked::interleaved;
use crate::machine::{Machine, keep_locked};
use crate::report::Check;

use super::client::KeyClients;
use super::memory::Memory;
use super::swarm::Swarm;

interleaved!(Keyed);

/// The state of a simulated run: the machine, the clients of the tree, and the memory.
pub(crate) struct World {
    /// The machine. Its first disk is the data disk. The streams' disks follow.
    pub machine: Machine<Keyed>,
    pub swarm: Swarm,
    pub keys: KeyClients,
    /// The memory that holds this life's log in addition to the disks. After a restart, the field has the memory of the
    /// last life until the restart's result has been compared.
    pub memory: Option<Memory>,
    /// The memory of a life that has just begun, and the number of blocks that its takeover has written to the log.
    pub next: RefCell<(Option<Memory>, u64)>,
    /// True if a crash destroyed the memory.
    pub may_lose: bool,
}

impl Deref for World {
    type Target = Machine<Keyed>;

    fn deref(&self) -> &Machine<Keyed> {
        &self.machine
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Machine<Keyed> {
        &mut self.machine
    }
}

impl World {
    /// Returns a world with empty disks.
    pub fn new(seed: u64, rng: Rng, swarm: Swarm) -> World {
        let logs = swarm.course.log_disks(swarm.logs_apart);
        World {
            machine: Machine::new(seed, rng, swarm.course.clone(), 1 + logs),
            keys: KeyClients::new(swarm.keys.clone(), swarm.options.dirty_max()),
            swarm,
            memory: None,
            next: RefCell::default(),
            may_lose: false,
        }
    }

    /// Writes the memory's blocks to the log on these disks, as a takeover does. Returns how many blocks it has
    /// written.
    ///
    /// # Errors
    /// Errors of the disks.
    pub fn prepare(&self, disks: &[Arc<SimDisk>]) -> Result<u64, Error> {
        match &self.memory {
            Some(memory) => memory.drain(&self.env(disks).disks),
            None => Ok(0),
        }
    }

    /// Opens the database on disks that have the memory's blocks. If the blocks were lost, opens the database without
    /// them and accepts the loss.
    ///
    /// # Errors
    /// Errors of [`Keyed::open`].
    pub fn open_prepared(
        &self,
        disks: &[Arc<SimDisk>],
        options: KeyedOptions,
    ) -> Result<Option<Keyed>, Error> {
        match Keyed::open(self.env(disks), options.clone()) {
            Err(error) if self.may_lose && error.to_string().contains("accept-loss") => {
                let accept_loss = true;
                let options = KeyedOptions {
                    accept_loss,
                    ..options
                };
                Keyed::open(self.env(disks), options)
            }
            opened => opened,
        }
    }

    /// Replaces the last life's memory by the new life's memory. The caller has compared the new life's restart.
    pub fn take_memory(&mut self) {
        let (next, drained) = self.next.take();
        self.memory = next;
        let marks = [("drained", drained), ("loss", u64::from(self.may_lose))];
        for (mark, count) in marks.into_iter().filter(|(_, count)| *count > 0) {
            *self.machine.tally.reached.entry(mark).or_default() += count;
        }
        self.may_lose = false;
    }

    /// Chooses a stream at random and seals a part of it. In half of the calls, everything that the memory holds of
    /// this stream then counts as durable.
    pub fn step_of_memory(&mut self) -> Check {
        let (Some(memory), false) = (self.memory.clone(), self.machine.stopped) else {
            return Ok(());
        };
        let stream = self.machine.draw_stream();
        if let Err(error) = self.keyed().wal().ship_step(stream) {
            return self.machine.tolerate("ship_step", &error);
        }
        if self.machine.rng.bool() {
            self.keyed().wal().raise_mirror(stream, memory.end(stream));
        }
        let wal = self.keyed().wal();
        let is_ahead = wal.durable(Rung::Mirror) > wal.durable(Rung::Disk);
        *self
            .machine
            .tally
            .reached
            .entry("ahead_of_disk")
            .or_default() += u64::from(is_ahead);
        Ok(())
    }

    /// In some crashes, destroys the memory. Data acknowledged only by the memory is lost.
    pub fn crash_memory(&mut self) {
        let (Some(_), Some(keyed)) = (&self.memory, &self.machine.engine) else {
            return;
        };
        let on_disk = keyed.wal().durable(Rung::Disk).0;
        if self.machine.rng.u8(0..3) == 0 {
            self.memory = None;
            self.may_lose = true;
            self.machine.must_survive = self.machine.must_survive.min(on_disk);
        }
    }

    /// Returns the environment of a database on the given disks.
    pub fn env(&self, disks: &[Arc<SimDisk>]) -> StealEnv {
        let disk = |at: usize| disks[at].life() as Arc<dyn Disk>;
        keep_locked(disks);
        let of_stream = |stream: usize| disk(if self.swarm.logs_apart { stream + 1 } else { 0 });
        StealEnv {
            disks: Disks {
                data: disk(0),
                images: vec![disk(0)],
                logs: (0..usize::from(self.course.streams))
                    .map(of_stream)
                    .collect(),
            },
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            seed: self.seed,
        }
    }

    /// Returns the database. Steps are taken only while it is open.
    pub fn keyed(&self) -> &Keyed {
        self.engine()
    }
}
