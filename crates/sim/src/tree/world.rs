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
use super::rows::ClientsLife;
use super::swarm::Swarm;

interleaved!(Keyed);

/// Everything a run consists of.
pub(crate) struct World {
    /// The data disk first, then those of the streams.
    pub machine: Machine<Keyed>,
    pub swarm: Swarm,
    pub keys: KeyClients,
    /// The life in which clients worked last.
    pub life: ClientsLife,
    /// What holds the log of this life beside the disks, and what held that of the last one until its restart has been compared.
    pub memory: Option<Memory>,
    /// The memory of a life that has just begun, and blocks that its takeover has written.
    pub next: RefCell<(Option<Memory>, u64)>,
    /// A crash took the memory along.
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
    /// A machine with empty disks.
    pub fn new(seed: u64, rng: Rng, swarm: Swarm) -> World {
        let logs = swarm.course.log_disks(swarm.logs_apart);
        World {
            machine: Machine::new(seed, rng, swarm.course.clone(), 1 + logs),
            keys: KeyClients::new(swarm.keys.clone(), swarm.options.dirty_max()),
            swarm,
            life: ClientsLife::default(),
            memory: None,
            next: RefCell::default(),
            may_lose: false,
        }
    }

    /// Writes to the log on these disks what the memory holds, as a takeover does. Returns how many blocks.
    ///
    /// # Errors
    /// The disks'.
    pub fn prepare(&self, disks: &[Arc<SimDisk>]) -> Result<u64, Error> {
        match &self.memory {
            Some(memory) => memory.drain(&self.env(disks).disks),
            None => Ok(0),
        }
    }

    /// Opens the database on disks that have what the memory held; without what it held, if it is lost and must be given up.
    ///
    /// # Errors
    /// As [`Keyed::open`].
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

    /// The restart is compared: the memory of the last life is not needed any more.
    pub fn take_memory(&mut self) {
        let (next, drained) = self.next.take();
        self.memory = next;
        let marks = [("drained", drained), ("loss", u64::from(self.may_lose))];
        for (mark, count) in marks.into_iter().filter(|(_, count)| *count > 0) {
            *self.machine.tally.reached.entry(mark).or_default() += count;
        }
        self.may_lose = false;
    }

    /// Seals what can be sealed, and has the memory count for some of it.
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

    /// A crash takes the memory along, or not. What was acknowledged there is lost with it.
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

    /// What a database on the given disks sees of the outside.
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

    /// The database; steps are taken only while it is open.
    pub fn keyed(&self) -> &Keyed {
        self.engine()
    }
}
