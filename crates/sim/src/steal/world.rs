//! Steal mode's world: a machine with a database, and clients.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fastrand::Rng;
use perdura_base::PageId;
use perdura_device::{Clock, Disk, SimDisk};
use perdura_recovery::Disks;
use perdura_steal::{Committed, Place, Steal, StealEnv};

use crate::locked::{self, Clients, interleaved};
use crate::machine::{Machine, keep_locked};

use super::row::Row;
use super::swarm::Swarm;

/// The address of a row: page number and slot number.
pub(crate) type Spot = (u32, u16);
/// Rows by spot.
pub(crate) type State = locked::State<Spot, Row>;

interleaved!(Steal);

/// The state of a run in steal mode.
pub(crate) struct World {
    /// The machine. Its first disk is the data disk. The streams' disks follow, and then the images' disks.
    pub machine: Machine<Steal>,
    pub swarm: Swarm,
    pub clients: Clients<Steal, Spot, Row>,
    pub scratch: Vec<u8>,
}

impl Deref for World {
    type Target = Machine<Steal>;

    fn deref(&self) -> &Machine<Steal> {
        &self.machine
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Machine<Steal> {
        &mut self.machine
    }
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
    /// Returns a world with empty disks.
    pub fn new(seed: u64, rng: Rng, swarm: Swarm) -> World {
        let logs = swarm.course.log_disks(swarm.logs_apart);
        let images = if swarm.images_apart {
            swarm.image_disks
        } else {
            0
        };
        let disks = 1 + logs + u64::from(images);
        World {
            machine: Machine::new(seed, rng, swarm.course.clone(), disks),
            swarm,
            clients: Clients::default(),
            scratch: Vec::new(),
        }
    }

    /// Returns the index of the first image disk. It is valid only if images have their own disks.
    fn first_image(&self) -> usize {
        match self.swarm.logs_apart {
            true => usize::from(self.course.streams) + 1,
            false => 1,
        }
    }

    /// Returns the disks in `disks` that hold images.
    pub fn image_disks<'a>(&self, disks: &'a [Arc<SimDisk>]) -> &'a [Arc<SimDisk>] {
        match self.swarm.images_apart {
            true => &disks[self.first_image()..],
            false => &disks[..1],
        }
    }

    /// Returns the environment of a database on the given disks.
    pub fn env(&self, disks: &[Arc<SimDisk>]) -> StealEnv {
        let disk = |at: usize| disks[at].life() as Arc<dyn Disk>;
        let first_image = self.first_image();
        keep_locked(disks);
        StealEnv {
            disks: Disks {
                data: disk(0),
                images: (0..usize::from(self.swarm.image_disks))
                    .map(|i| match self.swarm.images_apart {
                        true => disk(first_image + i),
                        false => disk(0),
                    })
                    .collect(),
                logs: (0..usize::from(self.course.streams))
                    .map(|s| disk(if self.swarm.logs_apart { s + 1 } else { 0 }))
                    .collect(),
            },
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            seed: self.seed,
        }
    }

    /// Returns the database. Steps are taken only while it is open.
    pub fn steal(&self) -> &Steal {
        self.engine()
    }
}
