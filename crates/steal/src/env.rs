//! A database's environment: disks, clock and seed. Functions that prepare a creation or a restart.

use std::sync::Arc;

use perdura_base::{Error, Result, Uuid};
use perdura_device::Clock;
use perdura_heap::Geometry;
use perdura_recovery::restart::{NewDatabase, RestartOptions};
use perdura_recovery::{Disks, Methods, Schedule};
use perdura_wal::{Scheme, SegmentSizes};

/// The disks, the clock and the seed that a database uses.
#[derive(Clone)]
pub struct StealEnv {
    /// The disks.
    pub disks: Disks,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The seed of random numbers. The uuid of a new database comes from it.
    pub seed: u64,
}

impl StealEnv {
    /// Returns the description of a new database, for its creation.
    ///
    /// # Errors
    /// [`Error::Usage`] if the disks already have a database.
    pub(crate) fn new_database(
        &self,
        is_there: bool,
        geometry: Geometry,
        (scheme, segment_bytes): (Scheme, u64),
    ) -> Result<NewDatabase> {
        if is_there {
            return Err(Error::Usage(format!(
                "there is a database in {} already",
                self.disks.data.name()
            )));
        }
        Ok(NewDatabase {
            uuid: Uuid::of_seed(self.seed),
            geometry,
            streams: u8::try_from(self.disks.logs.len()).expect("at most 16 streams"),
            segments: SegmentSizes::fixed(segment_bytes),
            scheme,
        })
    }

    /// Returns the options of a restart by these restart methods.
    ///
    /// # Errors
    /// [`Error::Usage`] if a method does not exist.
    pub(crate) fn restart_options(
        &self,
        schedule: Schedule,
        methods: &str,
    ) -> Result<RestartOptions> {
        let methods = Methods::by_names(methods).map_err(Error::Usage)?;
        let (disks, clock) = (self.disks.clone(), Arc::clone(&self.clock));
        Ok(RestartOptions::of_records(disks, clock, schedule, methods))
    }
}
