//! The speed of a modelled disk.

use std::sync::Arc;

use perdura_device::{Disk, ModelDisk, SystemClock};

/// A bandwidth and a latency. Zero: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelledDisk {
    /// 10^6 bytes a second.
    pub mbps: u64,
    /// The wait of each read and each sync, microseconds.
    pub latency_us: u64,
}

impl ModelledDisk {
    /// Returns a disk with these limits over `disk`, or `disk` itself without a limit. Files are laid out in advance,
    /// like those of a log that has gone round once.
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
