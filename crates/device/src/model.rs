//! Another disk, slowed to a set bandwidth and latency: what a slower or faster device would do
//! to throughput and restart time, measured without owning it.
//!
//! One bucket a disk, shared by its files: each byte read or written takes its share of the
//! bandwidth, in the order in which the calls arrive. A read and a sync wait the latency on top,
//! which overlaps with other calls, as on a device with a queue.
//!
//! This is the one file of the crate that lets time pass. Clock and sleep come from outside; the
//! clock must run by itself, because the last 50 us of a wait, which sleeping would overshoot,
//! are spun.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use perdura_base::Result;

use crate::path::bytes_u64;
use crate::{Access, Clock, Disk, File};

/// The part of a wait that is spun, nanoseconds.
const SPIN_NS: u64 = 50_000;

/// A disk with a modelled speed.
pub struct ModelDisk {
    inner: Arc<dyn Disk>,
    device: Arc<Device>,
}

impl ModelDisk {
    /// `inner`, slowed to `mb_per_s` (10^6 bytes a second; 0 is no limit) and `latency_us` for
    /// each read and each sync. `sleep` is `std::thread::sleep` outside tests.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Disk>,
        mb_per_s: u64,
        latency_us: u64,
        clock: Arc<dyn Clock>,
        sleep: fn(Duration),
    ) -> ModelDisk {
        let latency_ns = latency_us.saturating_mul(1000);
        let device = Device {
            mb_per_s,
            latency_ns,
            clock,
            sleep,
            free_at_ns: Mutex::new(0),
        };
        ModelDisk {
            inner,
            device: Arc::new(device),
        }
    }

    fn slowed(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(ModelFile {
            inner,
            device: Arc::clone(&self.device),
        })
    }
}

/// The device all files share.
struct Device {
    mb_per_s: u64,
    latency_ns: u64,
    clock: Arc<dyn Clock>,
    sleep: fn(Duration),
    /// When the last accepted transfer ends.
    free_at_ns: Mutex<u64>,
}

impl Device {
    fn transfer(&self, bytes: u64, latency_ns: u64) {
        let mut until = self.clock.mono_ns();
        if let Some(transfer_ns) = bytes.saturating_mul(1000).checked_div(self.mb_per_s) {
            let mut free_at = self.free_at_ns.lock();
            *free_at = until.max(*free_at).saturating_add(transfer_ns);
            until = *free_at;
        }
        self.wait_until(until.saturating_add(latency_ns));
    }

    fn wait_until(&self, until_ns: u64) {
        let left_ns = until_ns.saturating_sub(self.clock.mono_ns());
        if left_ns > SPIN_NS {
            (self.sleep)(Duration::from_nanos(left_ns - SPIN_NS));
        }
        while self.clock.mono_ns() < until_ns {
            std::hint::spin_loop();
        }
    }
}

impl Disk for ModelDisk {
    fn create(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(self.slowed(self.inner.create(path, access)?))
    }

    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(self.slowed(self.inner.open(path, access)?))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn make_dir(&self, dir: &str) -> Result<()> {
        self.inner.make_dir(dir)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.inner.remove(path)
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.device.transfer(0, self.device.latency_ns);
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        self.inner.lock(path)
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

struct ModelFile {
    inner: Arc<dyn File>,
    device: Arc<Device>,
}

impl File for ModelFile {
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let count = self.inner.read_at(offset, buf)?;
        self.device
            .transfer(bytes_u64(count), self.device.latency_ns);
        Ok(count)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.device.transfer(bytes_u64(data.len()), 0);
        self.inner.write_at(offset, data)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let zeros = len.saturating_sub(self.inner.len()?);
        self.device.transfer(zeros, 0);
        self.inner.allocate(len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn sync(&self) -> Result<()> {
        self.device.transfer(0, self.device.latency_ns);
        self.inner.sync()
    }

    fn path(&self) -> &str {
        self.inner.path()
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemDisk, SystemClock};

    #[test]
    fn bandwidth_and_latency_are_charged() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let inner = Arc::new(MemDisk::new());
        let disk = ModelDisk::new(inner, 100, 2_000, Arc::clone(&clock), std::thread::sleep);
        let file = disk.create("f", Access::Buffered).unwrap();

        let start = clock.mono_ns();
        file.write_at(0, &[0; 500_000]).unwrap();
        let written = clock.mono_ns();
        assert!(written - start >= 5_000_000, "500 kB at 100 MB/s take 5 ms");
        file.sync().unwrap();
        assert!(
            clock.mono_ns() - written >= 2_000_000,
            "a sync takes the latency"
        );
    }
}
