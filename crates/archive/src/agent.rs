//! The archive agent. It maintains an archive from a process outside the database. It reads no file of the
//! database. The manifests in the archive tell it what it must know about the database.
//!
//! The agent holds two locks: the lock of the role `Agent`, which only one process can have at a time, and the lock for
//! merging. Opening the archive is one step. After an error the next step opens the archive again and removes the files
//! that the failed step left. An agent may be killed at any moment. Then only its unfinished merge or removal is lost.
//! The inputs of a merge still exist, because they are removed only after a manifest without them is durable.
//!
//! # Source
//! "Single-pass restore after a media failure", 3.3: a daemon merges runs beside the database.
//! # Deviations
//! The paper's daemon is a thread of the server. Our agent needs only the archive's directory, so the agent may run on
//! another machine.

use std::sync::Arc;

use perdura_base::checksum::mix64;
use perdura_base::{Result, Uuid};
use perdura_device::Disk;
use perdura_page::RegionDigest;

use crate::manifest::{Role, Writer};
use crate::merger::MergerOptions;
use crate::retention::Retention;
use crate::store::Store;
use crate::upkeep::{Upkeep, UpkeepStep};

/// The agent of the archive of one database.
pub struct Agent {
    disk: Arc<dyn Disk>,
    uuid: Uuid,
    life: u64,
    openings: u64,
    options: MergerOptions,
    retention: Retention,
    digest: Arc<RegionDigest>,
    upkeep: Option<Upkeep>,
}

impl Agent {
    /// Returns an agent for the archive of database `uuid` on `disk`. `life` is a random number that differs for each
    /// agent.
    #[must_use]
    pub fn new(
        disk: Arc<dyn Disk>,
        uuid: Uuid,
        life: u64,
        options: MergerOptions,
        retention: Retention,
    ) -> Agent {
        Agent {
            disk,
            uuid,
            life,
            openings: 0,
            options,
            retention,
            digest: Arc::new(RegionDigest::new()),
            upkeep: None,
        }
    }

    /// Returns the archive. `None`: the archive is not open now.
    #[must_use]
    pub fn store(&self) -> Option<&Arc<Store>> {
        self.upkeep.as_ref().map(Upkeep::store)
    }

    /// Takes one step: opens the archive, or makes one I/O. `now_us` is the wall clock, microseconds since 1970.
    ///
    /// # Errors
    /// [`Error::Locked`](perdura_base::Error::Locked) if a second agent is running or a second process merges.
    /// [`Error::ArchiveTaken`](perdura_base::Error::ArchiveTaken) if a newer agent has opened the archive. Then this
    /// agent must stop. Otherwise the errors of [`Store::open`] and [`Upkeep::step`]; the next step then opens the
    /// archive again.
    pub fn step(&mut self, now_us: u64) -> Result<UpkeepStep> {
        let Some(mut upkeep) = self.upkeep.take() else {
            self.upkeep = Some(self.open()?);
            return Ok(UpkeepStep::Looked);
        };
        let step = upkeep.step(now_us)?;
        self.upkeep = Some(upkeep);
        Ok(step)
    }

    fn open(&mut self) -> Result<Upkeep> {
        assert!(self.upkeep.is_none(), "it is opened once at a time");
        let life = mix64(self.life.wrapping_add(self.openings));
        self.openings += 1;
        let writer = Writer {
            role: Role::Agent,
            life,
        };
        let (store, _) = Store::open(Arc::clone(&self.disk), &self.uuid, writer, None)?;
        let (options, retention) = (self.options.clone(), self.retention.clone());
        Upkeep::new(store, options, retention, Arc::clone(&self.digest))
    }
}
