//! The speed of a modelled disk.

use std::sync::Arc;

use perdura_device::{Disk, ModelDisk, SystemClock};

/// A bandwidth and a latency. Zero: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelledDisk {
    /// 10^6 bytes a second.
    pub mbps: u64,
    /// The additional time of each read and each sync, microseconds.
    pub latency_us: u64,
}

impl ModelledDisk {
    /// Returns a disk with these limits in front of `disk`, or `disk` itself if there are no limits. Files get space in
    /// advance, as in a log with recycled files.
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
