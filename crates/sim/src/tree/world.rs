//! The tree's world: a machine with its database, and its clients.

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

/// All parts of a run.
pub(crate) struct World {
    /// The machine. Its disks are the data disk, then those of the streams.
    pub machine: Machine<Keyed>,
    pub swarm: Swarm,
    pub keys: KeyClients,
    /// The memory that holds the log of this life beside the disks. Until a restart has been compared, it is that of
    /// the last life.
    pub memory: Option<Memory>,
    /// The memory of a life that has just begun, and the number of blocks that its takeover has written.
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
    /// Returns a machine with empty disks.
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

    /// Writes the memory's blocks to the log on these disks, as a takeover does. Returns their number.
    ///
    /// # Errors
    /// Errors of the disks.
    pub fn prepare(&self, disks: &[Arc<SimDisk>]) -> Result<u64, Error> {
        match &self.memory {
            Some(memory) => memory.drain(&self.env(disks).disks),
            None => Ok(0),
        }
    }

    /// Opens the database on disks that have the memory's blocks. Opens it without those blocks if they are lost and
    /// must be given up.
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

    /// Ends the comparison of a restart: the memory of the last life is no longer needed.
    pub fn take_memory(&mut self) {
        let (next, drained) = self.next.take();
        self.memory = next;
        let marks = [("drained", drained), ("loss", u64::from(self.may_lose))];
        for (mark, count) in marks.into_iter().filter(|(_, count)| *count > 0) {
            *self.machine.tally.reached.entry(mark).or_default() += count;
        }
        self.may_lose = false;
    }

    /// Seals a part of a stream, and lets the memory count for some of it.
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

    /// Destroys the memory in some crashes. Everything that was acknowledged there is lost with it.
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
