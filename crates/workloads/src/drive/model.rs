//! How fast a modelled disk is.

use std::sync::Arc;

use perdura_device::{Disk, ModelDisk, SystemClock};

/// A bandwidth and a latency; zero is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelledDisk {
    /// 10^6 bytes a second.
    pub mbps: u64,
    /// What each read and each sync waits, microseconds.
    pub latency_us: u64,
}

impl ModelledDisk {
    /// A disk slowed so far; itself without a limit. Files are laid out in advance, as those of a log are that has gone
    /// round once.
    #[must_use]
    pub fn over(self, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        if self == ModelledDisk::default() {
            return disk;
        }
        let clock = Arc::new(SystemClock::new());
        let model = ModelDisk::new(disk, self.mbps, self.latency_us, clock, std::thread::sleep);
        Arc::new(model.laid_out())
    }
}
