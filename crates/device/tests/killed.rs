//! Kills a process that has 64 MiB of durable writes to a file in flight. The next process takes the lock, and at once
//! writes to the same file.
//!
//! # The trap
//! After a process was killed, the kernel continues the process's writes in flight. By default it releases the
//! process's lock long before these writes end. Then the next process overwrites bytes that are still being written,
//! and acknowledges its own write. After that the disk writes the bytes of the killed process over it. So the ring must
//! keep the lock.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura_base::Error;
use perdura_device::{
    Access, AlignedBuf, Disk, DurableWrite, FileDisk, LogIo, Part, Through, read_exact_at,
};

/// If this variable is set, the test binary is the process to be killed. The value is the directory to use.
const DIR: &str = "PERDURA_TEST_KILLED_DIR";
/// If this variable is set, the writes of the killed process keep its lock until they end.
const KEEPS: &str = "PERDURA_TEST_KILLED_KEEPS";

const MIB: usize = 1 << 20;
const WRITES: u64 = 4;
const PARTS: usize = 16;
const FILE_BYTES: u64 = WRITES * (PARTS * MIB) as u64;
const SECTOR: usize = 4096;
/// The limit of the killed process's writes.
const BYTES_PER_SECOND: u64 = 256 << 20;

fn disk(dir: &Path) -> FileDisk {
    FileDisk::new(dir).unwrap().with_log_io(LogIo::Ring)
}

/// The process to be killed. It reports that its writes are in flight, and then waits to be killed.
#[test]
fn be_killed() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    // Wait until the parent has moved this process into the control group in which writes are slow.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let disk = disk(Path::new(&dir));
    let locks = vec![disk.lock("LOCK").unwrap()];
    if std::env::var_os(KEEPS).is_some() {
        disk.keep_locked(&locks);
    }
    let queue = disk.durable_queue().unwrap();
    let file = disk.open("log", Access::Direct).unwrap();
    for token in 0..WRITES {
        let part = || {
            let mut buf = AlignedBuf::zeroed(MIB);
            buf.fill(b'A');
            Part { buf, len: MIB }
        };
        queue.submit(DurableWrite {
            token,
            file: Arc::clone(&file),
            offset: token * (PARTS * MIB) as u64,
            parts: (0..PARTS).map(|_| part()).collect(),
        });
    }
    println!("in flight");
    std::thread::sleep(Duration::from_secs(60));
}

/// A control group for slow writes to a disk, so that many bytes stay in flight for a long time. Processes outside the
/// group write to the disk at full speed.
struct Slow {
    group: PathBuf,
}

impl Slow {
    /// Makes a control group. `None`: this process is not root, or the system cannot limit the writes of a group.
    fn new(dir: &Path) -> Option<Slow> {
        let device = std::fs::metadata(dir).ok()?.dev();
        let of = |dev: u64| format!("/sys/dev/block/{}:{}", dev >> 8 & 0xfff, dev & 0xff);
        let at = PathBuf::from(of(device));
        let whole = if at.join("partition").exists() {
            "../dev"
        } else {
            "dev"
        };
        let device = std::fs::read_to_string(at.join(whole)).ok()?;
        let name = format!("perdura-test-{}", std::process::id());
        let one = (
            Path::new("/sys/fs/cgroup/blkio").join(&name),
            "blkio.throttle.write_bps_device",
            format!("{} {BYTES_PER_SECOND}", device.trim()),
        );
        let two = (
            Path::new("/sys/fs/cgroup").join(&name),
            "io.max",
            format!("{} wbps={BYTES_PER_SECOND}", device.trim()),
        );
        [one, two].into_iter().find_map(|(group, limit, value)| {
            std::fs::create_dir(&group).ok()?;
            let slow = Slow { group };
            let limited = std::fs::OpenOptions::new()
                .write(true)
                .open(slow.group.join(limit));
            limited.ok()?.write_all(value.as_bytes()).ok()?;
            Some(slow)
        })
    }

    fn add(&self, process: u32) {
        let procs = self.group.join("cgroup.procs");
        std::fs::write(procs, process.to_string()).unwrap();
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.group);
    }
}

/// The measurements of a round: how long the killed process's lock was held, and how many sectors were overwritten.
struct Seen {
    locked_ms: u128,
    overwritten: usize,
}

/// Kills a process during its writes and waits for the process's lock. Then writes a sector of each MiB. Reads all
/// these sectors after the killed process has ended.
fn round(dir: &Path, slow: Option<&Slow>, keeps: bool) -> Seen {
    let mut former = Command::new(std::env::current_exe().unwrap());
    former.args(["--exact", "be_killed", "--nocapture"]);
    former
        .env(DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if keeps {
        former.env(KEEPS, "1");
    }
    let mut former = former.spawn().unwrap();
    if let Some(slow) = slow {
        slow.add(former.id());
    }
    drop(former.stdin.take());
    let said = BufReader::new(former.stdout.take().unwrap()).lines();
    let mut said = said.map(Result::unwrap);
    assert!(said.any(|line| line.contains("in flight")), "it began");
    let killed = Instant::now();
    former.kill().unwrap();
    let disk = disk(dir);
    let _lock = loop {
        match disk.lock("LOCK") {
            Ok(lock) => break lock,
            Err(Error::Locked { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
        assert!(
            killed.elapsed() < Duration::from_secs(10),
            "it stays locked"
        );
    };
    let locked_ms = killed.elapsed().as_millis();
    let file = disk.open("log", Access::Direct).unwrap();
    let mut sector = AlignedBuf::zeroed(SECTOR);
    sector.fill(b'B');
    // Write first the sectors that the killed process writes last.
    let sectors: Vec<u64> = (0..FILE_BYTES).step_by(MIB).collect();
    for at in sectors.iter().copied().rev() {
        file.write_durable(at, &[&sector], Through::Dsync).unwrap();
    }
    former.wait().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let is_lost = |at: &&u64| {
        let mut found = AlignedBuf::zeroed(SECTOR);
        read_exact_at(file.as_ref(), **at, &mut found).unwrap();
        *found != *sector
    };
    let overwritten = sectors.iter().filter(is_lost).count();
    Seen {
        locked_ms,
        overwritten,
    }
}

#[test]
fn what_the_next_life_writes_survives_what_a_killed_one_had_in_flight() {
    if std::env::var_os(DIR).is_some() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let made = disk(dir.path());
    let file = made.create("log", Access::Direct).unwrap();
    file.allocate(FILE_BYTES).unwrap();
    file.sync().unwrap();
    if let Err(why) = made.durable_queue() {
        let required = std::env::var_os("PERDURA_REQUIRE_RING").is_some();
        assert!(!required, "no ring works here: {why}");
        eprintln!("NOT TESTED: {why}");
        return;
    }
    let slow = Slow::new(dir.path());
    let mut slowest = 0;
    for nth in 0..4 {
        let kept = round(dir.path(), slow.as_ref(), true);
        assert_eq!(
            kept.overwritten, 0,
            "round {nth}: sectors that were durable, after {} ms behind the lock",
            kept.locked_ms
        );
        slowest = slowest.max(kept.locked_ms);
    }
    let without = round(dir.path(), slow.as_ref(), false);
    println!(
        "slow: {}; the lock was free after at most {slowest} ms; where writes do not keep it, after {} ms, \
         and {} of {} sectors were overwritten",
        slow.is_some(),
        without.locked_ms,
        without.overwritten,
        FILE_BYTES / MIB as u64
    );
}
