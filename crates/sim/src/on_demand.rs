//! A restart that lets transactions run before it has loaded everything. It must lead to the rows of the other restarts.

use std::sync::Arc;

use fastrand::Rng;
use perdura::{Core, Error, PartitionSet, Result, Tx};
use perdura_base::PartitionId;
use perdura_device::{CrashProfile, SimDisk};

use crate::report::Check;

/// The inputs of a check that an engine leads to the same rows if it loads partitions on demand.
pub(crate) struct OnDemand<'a, O, C> {
    /// The disks before the restart.
    pub disks: &'a [Arc<SimDisk>],
    /// Opens an engine. The flag says whether the engine loads partitions on demand.
    pub open: O,
    /// Compares an engine with the rows of the world's engine.
    pub compare: C,
}

impl<O, C> OnDemand<'_, O, C>
where
    O: Fn(&[Arc<SimDisk>], bool) -> Result<Core>,
    C: Fn(&Core) -> Check,
{
    /// Restarts and loads in a random order. In some checks the process dies before everything is loaded, and another
    /// restart follows.
    pub fn check(&self, choice: u64) -> Check {
        let mut rng = Rng::with_seed(choice);
        for life in 0..3 {
            let on_demand = life < 2;
            let core = (self.open)(self.disks, on_demand)
                .map_err(|error| format!("on demand, life {life}: {error}"))?;
            if rng.bool() {
                self.use_some(&core, &mut rng)
                    .map_err(|error| format!("on demand, life {life}: {error}"))?;
            }
            let ends_early = life < 2 && rng.bool();
            if !ends_early {
                core.load_all()
                    .map_err(|error| format!("on demand, life {life}, loading: {error}"))?;
                (self.compare)(&core).map_err(|what| format!("on demand, life {life}: {what}"))?;
            }
            for disk in self.disks {
                disk.crash(CrashProfile::Nothing, rng.u64(..));
            }
        }
        Ok(())
    }

    /// Runs transactions, purges and loads in a random order, and takes a checkpoint at times.
    fn use_some(&self, core: &Core, rng: &mut Rng) -> Result<()> {
        let partitions = core.heap().geometry().partitions;
        for _ in 0..rng.usize(1..6) {
            match rng.u8(0..8) {
                0..3 => {
                    let some = (0..partitions).filter(|_| rng.u8(0..4) == 0);
                    let parts: PartitionSet = some.map(PartitionId).collect();
                    let read =
                        |_: &mut Tx<'_>| match parts.iter().find(|id| core.heap().is_absent(*id)) {
                            Some(id) => Err(Error::Stopped(format!("partition {id} is absent"))),
                            None => Ok(()),
                        };
                    let ((), _no_write) = core.transact(&parts, read)?;
                }
                3..5 => drop(core.load_next()?),
                // Once all is loaded, the purge would remove expired keys that the other restarts still have.
                5..7 if !core.is_loaded() => {
                    if !matches!(core.purge_step(), Ok(0)) {
                        return Err(Error::Stopped("the purge does not wait".into()));
                    }
                }
                5..7 => {}
                _ => core.checkpoint_now()?,
            }
        }
        core.flush_all()
    }
}
