//! The tree's world: a machine with its database, and its clients.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fastrand::Rng;
use perdura_base::TableId;
use perdura_device::{Clock, Disk, SimDisk};
use perdura_recovery::Disks;
use perdura_steal::{Committed, KeyTxn, Keyed, Running, StealEnv};

use crate::locked::{self, Clients, interleaved};
use crate::machine::{Machine, keep_locked};

use super::swarm::Swarm;

/// Where a row is: table and key.
pub(crate) type Spot = (TableId, Vec<u8>);
/// Rows by spot.
pub(crate) type State = locked::State<Spot, Vec<u8>>;

interleaved!(Keyed, KeyTxn);

/// Everything a run consists of.
pub(crate) struct World {
    /// The data disk first, then those of the streams.
    pub machine: Machine<Keyed>,
    pub swarm: Swarm,
    pub clients: Clients<Keyed, Spot, Vec<u8>>,
    /// The life in which clients worked last, and the epoch that was durable when it began.
    pub life: (u32, u64),
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
            swarm,
            clients: Clients::default(),
            life: (0, 0),
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
