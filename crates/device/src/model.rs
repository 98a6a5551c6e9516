//! A disk that is slowed down to a set bandwidth and latency. It shows how throughput and restart time would be on a
//! slower or faster device.
//!
//! All files of a disk share one *bucket* of unfinished transfers. It delays each transfer, in the order of the calls,
//! so that all transfers together do not exceed the bandwidth. Reads and syncs also wait for the latency. The latencies
//! of several calls overlap, as on a device with a queue.
//!
//! # Keeping the rate by sleeping only
//!
//! If a model spins, it takes CPU time from the program that is measured. If it sleeps, it wakes late, and even later
//! when all cores are busy. Four rules keep the rate exact without spinning:
//!
//! * A wait that is too short for a sleep is added to a debt in the bucket. The call that makes the debt long enough
//!   sleeps for all of it. So a series of small reads needs only one sleep.
//! * If a sleep was too long, the excess is a credit: the next transfer may begin earlier by this time. A real drive
//!   would have read ahead during the excess. An idle device gets no credit.
//! * The modelled drive reads ahead. A read that continues where the last one ended finds up to 2 MiB already read, if
//!   there was time for it. So a reader that computes between two reads, or waits for a processor, does not stop the
//!   disk. Queued I/O would have this effect too.
//! * For a latency below a millisecond, the model spins for the last 50 us, because it cannot make up for a late
//!   wake-up.
//!
//! This is the only file of the crate that waits for time to pass. The caller supplies the clock and the sleep. The
//! clock must advance by itself, even if nothing calls it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use perdura_base::Result;

use crate::path::bytes_u64;
use crate::{Clock, Disk, DiskLayer, File, FileLayer};

/// The last part of a short latency, in nanoseconds. The model spins during this part instead of sleeping.
const SPIN_NS: u64 = 50_000;
/// The shortest latency, in nanoseconds, during which the model only sleeps and does not spin.
const SPIN_BELOW_NS: u64 = 1_000_000;
/// The longest debt that does not cause a sleep, in nanoseconds.
const DEBT_NS: u64 = 200_000;
/// The maximum credit for a sleep that was too long, in nanoseconds.
const CREDIT_NS: u64 = 50_000_000;

/// The maximum number of bytes that a drive reads ahead.
const READ_AHEAD_BYTES: u64 = 2 << 20;
/// The highest offset, in bytes, at which a read counts as the first read of a file. The file may have a header before
/// that read.
const FIRST_READ_BYTES: u64 = 4096;

/// A disk with a modelled speed.
pub struct ModelDisk {
    inner: Arc<dyn Disk>,
    device: Arc<Device>,
    allocation_is_free: bool,
}

impl ModelDisk {
    /// Slows `inner` down to `mb_per_s` (10^6 bytes a second; 0 means no limit), and delays each read and each sync
    /// by `latency_us`. `sleep` is `std::thread::sleep` outside tests.
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
            bucket: Mutex::new(Bucket::default()),
            busy_ns: AtomicU64::new(0),
            files: AtomicU64::new(0),
        };
        ModelDisk {
            inner,
            device: Arc::new(device),
            allocation_is_free: false,
        }
    }

    /// Models files that were all written before and lie in sequence, such as the segments of a log that reuses them.
    /// Allocating then costs no transfer. A read of the next file after the end of a file needs no seek.
    #[must_use]
    pub fn laid_out(self) -> ModelDisk {
        ModelDisk {
            allocation_is_free: true,
            ..self
        }
    }

    /// Returns the time that the device has spent on transfers, in nanoseconds. It is 0 if the bandwidth has no limit.
    #[must_use]
    pub fn busy_ns(&self) -> u64 {
        self.device.busy_ns.load(Ordering::Relaxed)
    }
}

/// The device that all files of the disk share.
struct Device {
    mb_per_s: u64,
    latency_ns: u64,
    clock: Arc<dyn Clock>,
    sleep: fn(Duration),
    bucket: Mutex<Bucket>,
    busy_ns: AtomicU64,
    /// Count of the files opened so far. It gives each opened file its number.
    files: AtomicU64,
}

/// The position of a read.
struct Read {
    file: u64,
    from: u64,
    /// True if the read reaches the end of its file and the next file lies directly behind it on the device.
    follows: bool,
}

/// The transfers that the device has not finished.
#[derive(Default)]
struct Bucket {
    /// The time at which the last accepted transfer ends, in nanoseconds of the clock.
    free_at_ns: u64,
    /// The longest time by which a wait since the last transfer was too long, in nanoseconds. At most [`CREDIT_NS`].
    credit_ns: u64,
    /// The end of the last read: the file's number, the offset, and the read's `follows`. `None`: the last transfer was
    /// not a read.
    head: Option<(u64, u64, bool)>,
}

impl Bucket {
    /// Returns whether a read continues where the last read ended.
    fn goes_on(&self, read: &Read) -> bool {
        self.head.is_some_and(|(file, end, at_end)| {
            (file == read.file && end == read.from)
                || (at_end && file != read.file && read.from <= FIRST_READ_BYTES)
        })
    }
}

impl Device {
    fn transfer(&self, bytes: u64, latency_ns: u64, read: Option<&Read>) {
        let mut until = self.clock.mono_ns();
        let transfer_ns = bytes.saturating_mul(1000).checked_div(self.mb_per_s);
        if let Some(transfer_ns) = transfer_ns.filter(|ns| *ns > 0) {
            self.busy_ns.fetch_add(transfer_ns, Ordering::Relaxed);
            let mut bucket = self.bucket.lock();
            let mut head_start_ns = std::mem::take(&mut bucket.credit_ns);
            assert!(head_start_ns <= CREDIT_NS, "a credit of {head_start_ns} ns");
            let before_ns = bucket.free_at_ns;
            if read.is_some_and(|read| bucket.goes_on(read)) {
                let ahead_ns = READ_AHEAD_BYTES * 1000 / self.mb_per_s;
                head_start_ns = head_start_ns.max(ahead_ns);
            }
            bucket.head = read.map(|read| (read.file, read.from + bytes, read.follows));
            let begin = until.saturating_sub(head_start_ns).max(bucket.free_at_ns);
            bucket.free_at_ns = begin.saturating_add(transfer_ns);
            assert!(
                before_ns <= begin && begin <= bucket.free_at_ns,
                "transfers overlap at {begin} ns"
            );
            until = until.max(bucket.free_at_ns);
        } else if bytes == 0 && self.mb_per_s > 0 {
            // A sync waits until the transfers before it have ended.
            until = until.max(self.bucket.lock().free_at_ns);
        }
        self.wait_until(until, latency_ns);
    }

    fn wait_until(&self, transferred_ns: u64, latency_ns: u64) {
        let until_ns = transferred_ns.saturating_add(latency_ns);
        let left_ns = until_ns.saturating_sub(self.clock.mono_ns());
        if latency_ns == 0 && left_ns <= DEBT_NS {
            return;
        }
        let spins = latency_ns > 0 && latency_ns < SPIN_BELOW_NS;
        let asleep_ns = left_ns.saturating_sub(if spins { SPIN_NS } else { 0 });
        if asleep_ns > 0 {
            (self.sleep)(Duration::from_nanos(asleep_ns));
        }
        while spins && self.clock.mono_ns() < until_ns {
            std::hint::spin_loop();
        }
        if self.mb_per_s > 0 {
            let late_ns = self.clock.mono_ns().saturating_sub(until_ns);
            let mut bucket = self.bucket.lock();
            bucket.credit_ns = bucket.credit_ns.max(late_ns.min(CREDIT_NS));
        }
    }
}

impl DiskLayer for ModelDisk {
    fn behind(&self) -> &dyn Disk {
        self.inner.as_ref()
    }

    fn in_front(&self, _: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(ModelFile {
            inner: file,
            device: Arc::clone(&self.device),
            number: self.device.files.fetch_add(1, Ordering::Relaxed),
            allocation_is_free: self.allocation_is_free,
        })
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.device.transfer(0, self.device.latency_ns, None);
        self.inner.sync_dir(dir)
    }
}

struct ModelFile {
    inner: Arc<dyn File>,
    device: Arc<Device>,
    /// The number of this open file. A file opened twice gets two numbers.
    number: u64,
    allocation_is_free: bool,
}

impl FileLayer for ModelFile {
    fn behind(&self) -> &dyn File {
        self.inner.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let count = self.inner.read_at(offset, buf)?;
        assert!(
            count <= buf.len(),
            "{count} bytes were read into {}",
            buf.len()
        );
        let end = offset + bytes_u64(count);
        let read = Read {
            file: self.number,
            from: offset,
            follows: self.allocation_is_free && self.inner.len()? <= end,
        };
        self.device
            .transfer(bytes_u64(count), self.device.latency_ns, Some(&read));
        Ok(count)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.device.transfer(bytes_u64(data.len()), 0, None);
        self.inner.write_at(offset, data)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let zeros = len.saturating_sub(self.inner.len()?);
        if !self.allocation_is_free {
            self.device.transfer(zeros, 0, None);
        }
        self.inner.allocate(len)
    }

    fn sync(&self) -> Result<()> {
        self.device.transfer(0, self.device.latency_ns, None);
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, MemDisk, SystemClock};
    use std::cell::Cell;

    thread_local! {
        /// The time of this test's thread. Sleeping advances it, and each call of the clock advances it a little.
        static NOW_NS: Cell<u64> = const { Cell::new(0) };
        static SLEEPS: Cell<u64> = const { Cell::new(0) };
    }

    /// A clock that advances by sleeps, and by 10 ns at each call. With the real clock these tests would fail on a busy
    /// machine.
    struct SleptClock;

    impl Clock for SleptClock {
        fn wall_us(&self) -> u64 {
            self.mono_ns() / 1000
        }

        fn mono_ns(&self) -> u64 {
            NOW_NS.set(NOW_NS.get() + 10);
            NOW_NS.get()
        }
    }

    fn sleep(time: Duration) {
        SLEEPS.set(SLEEPS.get() + 1);
        NOW_NS.set(NOW_NS.get() + u64::try_from(time.as_nanos()).unwrap());
    }

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

    #[test]
    fn many_small_reads_keep_the_rate_without_a_sleep_for_each() {
        let clock: Arc<dyn Clock> = Arc::new(SleptClock);
        let inner = Arc::new(MemDisk::new());
        let disk = ModelDisk::new(inner, 29, 0, Arc::clone(&clock), sleep);
        let disk = disk.laid_out();
        let file = disk.create("f", Access::Buffered).unwrap();
        file.allocate(4096).unwrap();
        assert_eq!(disk.busy_ns(), 0, "laying out is free");
        let start = clock.mono_ns();
        let mut buf = [0; 1024];
        // 2.9 MB at 29 MB/s take 100 ms, each read 35 us.
        for _ in 0..2_832 {
            file.read_at(0, &mut buf).unwrap();
        }
        let took = clock.mono_ns() - start;
        let ideal = disk.busy_ns();
        assert!((99_000_000..101_000_000).contains(&ideal), "{ideal}");
        assert!(took + DEBT_NS >= ideal, "{took} < {ideal}");
        assert!(took < ideal + 1_000_000, "{took} is far above {ideal}");
        let sleeps = SLEEPS.get();
        assert!(sleeps <= ideal / DEBT_NS + 1, "{sleeps} sleeps");
    }

    #[test]
    fn what_a_sleep_overshot_is_made_up_for_but_idleness_is_not() {
        fn oversleep(time: Duration) {
            sleep(time + Duration::from_millis(3));
        }
        let clock: Arc<dyn Clock> = Arc::new(SleptClock);
        let disk = ModelDisk::new(
            Arc::new(MemDisk::new()),
            100,
            0,
            Arc::clone(&clock),
            oversleep,
        );
        let file = disk.create("f", Access::Buffered).unwrap();
        let start = clock.mono_ns();
        for _ in 0..10 {
            file.write_at(0, &[0; 1_000_000]).unwrap();
        }
        let took = clock.mono_ns() - start;
        assert!(took >= 100_000_000, "10 MB at 100 MB/s take 100 ms: {took}");
        assert!(took < 120_000_000, "ten late wake-ups add up: {took}");

        sleep(Duration::from_millis(60));
        let start = clock.mono_ns();
        file.write_at(0, &[0; 1_000_000]).unwrap();
        file.write_at(0, &[0; 1_000_000]).unwrap();
        let took = clock.mono_ns() - start;
        assert!(
            took >= 15_000_000,
            "an idle device has saved up nothing: {took}"
        );
    }

    #[test]
    fn a_drive_reads_ahead_of_a_reader_that_goes_on_and_of_no_other() {
        let clock: Arc<dyn Clock> = Arc::new(SleptClock);
        let disk = ModelDisk::new(Arc::new(MemDisk::new()), 100, 0, Arc::clone(&clock), sleep);
        let file = disk.create("f", Access::Buffered).unwrap();
        file.set_len(100 << 20).unwrap();
        let mut buf = vec![0; 1_000_000];
        let mut timed = |offset: u64| {
            sleep(Duration::from_millis(12));
            let start = clock.mono_ns();
            file.read_at(offset, &mut buf).unwrap();
            clock.mono_ns() - start
        };
        timed(0);
        let sequential = (1..5).map(|i| timed(i * 1_000_000)).min().unwrap();
        assert!(sequential < 5_000_000, "{sequential}: it was read ahead");
        let random = (1..5).map(|i| timed(i * 10_000_000)).max().unwrap();
        assert!(random >= 9_000_000, "{random}: nobody could know");
    }
}
