//! The machine of a run: disks, clock, the database that is open on them, and its clients.

use std::sync::Arc;

use fastrand::Rng;
use perdura_base::error::Family;
use perdura_base::{Error, PageId};
use perdura_device::{Clock, CrashProfile, Disk, ManualClock, SimDisk};
use perdura_steal::{Committed, Place, Steal, StealEnv, Txn};

use crate::content::scramble;
use crate::faults;
use crate::report::Tally;
use crate::world::Check;

use super::oracle::{Oracle, Spot, Write};
use super::row::Row;
use super::swarm::Swarm;

/// A client with a transaction that runs.
pub(crate) struct Client {
    pub number: u64,
    pub txn: Txn,
    /// In the order in which they were made.
    pub writes: Vec<Write>,
    pub rolls_back: bool,
}

impl Client {
    /// What it wrote to a spot last.
    pub fn wrote(&self, spot: Spot) -> Option<Option<Row>> {
        let last = self.writes.iter().rev().find(|(at, _)| *at == spot);
        last.map(|(_, row)| *row)
    }
}

/// Everything a run consists of.
pub(crate) struct World {
    pub swarm: Swarm,
    pub rng: Rng,
    /// The data disk first, then those of the streams, then those of the images.
    pub disks: Vec<Arc<SimDisk>>,
    pub clock: Arc<ManualClock>,
    pub steal: Option<Steal>,
    pub clients: Vec<Client>,
    pub clients_ever: u64,
    pub oracle: Oracle,
    pub promises: Vec<Committed>,
    /// Every epoch up to here was acknowledged or seen after a restart: it must not be lost.
    pub must_survive: u64,
    /// Every epoch up to here has proof in a durable block or in the anchor.
    pub evidence: u64,
    /// What each stream's unsynced blocks would prove.
    pub named: Vec<u64>,
    /// How many checkpoints had been completed when a crash interrupted one last, if any did.
    pub interrupted: Option<u64>,
    /// The database has failed, or the power is gone: the life is over.
    pub stopped: bool,
    pub faults_before: u64,
    pub tally: Tally,
    pub trace: u64,
    pub seed: u64,
    pub scratch: Vec<u8>,
}

pub(crate) fn spot(place: Place) -> Spot {
    (place.page.0, place.slot)
}

pub(crate) fn place(spot: Spot) -> Place {
    Place {
        page: PageId(spot.0),
        slot: spot.1,
    }
}

impl World {
    /// A machine with empty disks.
    pub fn new(seed: u64, rng: Rng, swarm: Swarm) -> World {
        let logs = if swarm.logs_apart { swarm.streams } else { 0 };
        let images = if swarm.images_apart {
            swarm.image_disks
        } else {
            0
        };
        let disks = (0..=u64::from(logs) + u64::from(images))
            .map(|i| SimDisk::new(scramble(seed ^ (i << 56))))
            .collect();
        let streams = usize::from(swarm.streams);
        World {
            swarm,
            rng,
            disks,
            clock: Arc::new(ManualClock::at(1_700_000_000_000_000)),
            steal: None,
            clients: Vec::new(),
            clients_ever: 0,
            oracle: Oracle::default(),
            promises: Vec::new(),
            must_survive: 0,
            evidence: 0,
            named: vec![0; streams],
            interrupted: None,
            stopped: false,
            faults_before: 0,
            tally: Tally::default(),
            trace: scramble(seed),
            seed,
            scratch: Vec::new(),
        }
    }

    /// Folds something that happened into the trace.
    pub fn note(&mut self, what: u64) {
        self.trace = scramble(self.trace ^ what);
    }

    /// The disk that the first image disk is, or the first after those of the streams.
    fn first_image(&self) -> usize {
        match self.swarm.logs_apart {
            true => usize::from(self.swarm.streams) + 1,
            false => 1,
        }
    }

    /// The disks of the images.
    pub fn image_disks<'a>(&self, disks: &'a [Arc<SimDisk>]) -> &'a [Arc<SimDisk>] {
        match self.swarm.images_apart {
            true => &disks[self.first_image()..],
            false => &disks[..1],
        }
    }

    /// What a database on the given disks sees of the outside.
    pub fn env(&self, disks: &[Arc<SimDisk>]) -> StealEnv {
        let disk = |at: usize| disks[at].life() as Arc<dyn Disk>;
        let first_image = self.first_image();
        StealEnv {
            data: disk(0),
            logs: (0..usize::from(self.swarm.streams))
                .map(|s| disk(if self.swarm.logs_apart { s + 1 } else { 0 }))
                .collect(),
            images: (0..usize::from(self.swarm.image_disks))
                .map(|i| match self.swarm.images_apart {
                    true => disk(first_image + i),
                    false => disk(0),
                })
                .collect(),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            seed: self.seed,
        }
    }

    /// Opens the database, or makes it if there is none.
    pub fn open_on(&self, disks: &[Arc<SimDisk>]) -> Result<Steal, Error> {
        let options = &self.swarm.options;
        match Steal::open(self.env(disks), options.clone())? {
            Some(steal) => Ok(steal),
            None => Steal::create(self.env(disks), options.clone()),
        }
    }

    /// The database; steps are taken only while it is open.
    pub fn steal(&self) -> &Steal {
        self.steal
            .as_ref()
            .expect("a step is taken only while the database is open")
    }

    /// Faults that struck so far, whatever their kind.
    pub fn faults_struck(&self) -> u64 {
        let struck = self
            .disks
            .iter()
            .map(|disk| disk.faults().values().sum::<u64>());
        struck.sum()
    }

    /// Power fails, or the process dies: nothing of the database remains.
    pub fn crash(&mut self) {
        let drawn = CrashProfile::ALL[self.rng.usize(0..CrashProfile::ALL.len())];
        let profile = self.swarm.profile.unwrap_or(drawn);
        for disk in &self.disks {
            disk.crash(profile, self.rng.u64(..));
        }
        faults::clear(&self.disks);
        let running = |steal: &Steal| steal.checkpoint_stats().running;
        if self.steal.as_ref().is_some_and(running) {
            self.interrupted = Some(self.tally.checkpoints);
        }
        self.clients.clear();
        self.steal = None;
        self.promises.clear();
        self.named.fill(0);
        self.stopped = false;
        self.tally.crashes += 1;
    }

    /// The clients look which of their commits count now.
    pub fn observe(&mut self) {
        let Some(steal) = &self.steal else { return };
        if self.promises.is_empty() || steal.wal().failure().is_some() {
            return;
        }
        let (must_survive, tally) = (&mut self.must_survive, &mut self.tally);
        self.promises.retain(|committed| {
            let due = steal.is_acked(committed);
            if due {
                *must_survive = committed.epoch.0.max(*must_survive);
                tally.acknowledged += 1;
            }
            !due
        });
    }

    /// Whether an error is one that the faults injected so far explain.
    pub fn tolerate(&mut self, step: &str, error: &Error) -> Check {
        if error.family() == Family::Corruption {
            return Err(format!("{step}: {error}"));
        }
        if matches!(error, Error::LogFull(_)) {
            return Ok(());
        }
        if self.faults_struck() == self.faults_before {
            return Err(format!("{step} failed without a fault: {error}"));
        }
        // Whatever has not stopped the log is tried again.
        let failed = |steal: &Steal| steal.wal().failure().is_some();
        self.stopped |= self.steal.as_ref().is_some_and(failed);
        Ok(())
    }
}
