//! Checkpoints onto several image disks. A thread for each disk writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use perdura::{Core, CoreOptions, Disks, Env, Progress};
use perdura_device::{
    Clock, CrashProfile, Disk, FaultPlan, ManualClock, MemDisk, ModelDisk, SimDisk, SyncFailure,
    SystemClock,
};
use perdura_recovery::{Level, Schedule};

use crate::core_steps::{get, put, small};

fn env(data: Arc<dyn Disk>, images: Vec<Arc<dyn Disk>>) -> Env {
    Env {
        disks: Disks {
            images,
            logs: vec![Arc::clone(&data)],
            data,
        },
        clock: Arc::new(ManualClock::at(1_000_000)) as Arc<dyn Clock>,
        seed: 7,
        nodes: None,
        accept_loss: false,
    }
}

fn with_threads(partitions: u16) -> CoreOptions {
    CoreOptions {
        partitions,
        schedule: Schedule::new(Level::Four, 2),
        ..small()
    }
}

fn open(env: Env, options: CoreOptions) -> perdura::Result<Core> {
    Core::open(env, options, Arc::new(Progress::default()))
}

/// Returns the time of a checkpoint of 8 MB onto `count` disks of 20 MB/s each.
fn checkpoint_time(count: usize) -> Duration {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let slow = |_| {
        let (disk, clock) = (Arc::new(MemDisk::new()), Arc::clone(&clock));
        Arc::new(ModelDisk::new(disk, 20, 0, clock, std::thread::sleep)) as Arc<dyn Disk>
    };
    let images = (0..count).map(slow).collect();
    let options = CoreOptions {
        segment_bytes: 1 << 20,
        ..with_threads(8)
    };
    let core = open(env(Arc::new(MemDisk::new()), images), options).expect("a new database");
    for number in 0..8000u32 {
        put(
            &core,
            &format!("key {number}"),
            &[number.to_le_bytes()[0]; 1000],
        );
    }
    core.flush_all().expect("room");
    let begin = Instant::now();
    core.checkpoint_now().expect("a checkpoint");
    begin.elapsed()
}

#[test]
fn two_image_disks_take_half_the_time_of_one() {
    let best = |count| (0..3).map(|_| checkpoint_time(count)).min();
    let (one, two) = (best(1).unwrap(), best(2).unwrap());
    assert!(
        one.as_secs_f64() >= 1.8 * two.as_secs_f64(),
        "one disk {one:?}, two {two:?}"
    );
}

/// The values that a restart may find: for each key the durable one, and those that became durable perhaps.
#[derive(Default)]
struct Ledger {
    durable: BTreeMap<String, Vec<u8>>,
    doubtful: BTreeMap<String, Vec<u8>>,
}

impl Ledger {
    /// Writes some keys and flushes them. Returns whether the database continues.
    fn write(&mut self, core: &Core, rng: &mut Rng) -> bool {
        for _ in 0..rng.usize(1..60) {
            let key = format!("key {}", rng.u8(..));
            let value = vec![rng.u8(..); rng.usize(1..3000)];
            put(core, &key, &value);
            self.doubtful.insert(key, value);
        }
        let is_flushed = core.flush_all().is_ok();
        if is_flushed {
            self.durable.append(&mut self.doubtful);
        }
        is_flushed
    }

    fn check(&mut self, core: &Core, seed: u64) {
        for (key, value) in std::mem::take(&mut self.doubtful) {
            if get(core, &key).as_ref() == Some(&value) {
                self.durable.insert(key, value);
            }
        }
        for (key, value) in &self.durable {
            assert_eq!(get(core, key).as_ref(), Some(value), "seed {seed}: {key}");
        }
    }
}

/// Returns a fault of an image disk that strikes during the next checkpoint or two.
fn fault(rng: &mut Rng) -> FaultPlan {
    let at = rng.u64(1..30);
    let none = FaultPlan::default();
    match rng.u8(0..6) {
        0 => none,
        1 => FaultPlan {
            fail_sync_at: Some((
                rng.u64(1..3),
                [SyncFailure::KeepsNew, SyncFailure::Reverts][rng.usize(0..2)],
            )),
            ..none
        },
        2 => FaultPlan {
            enospc_at: Some((rng.u64(1..8), rng.u64(1..5))),
            ..none
        },
        3 => FaultPlan {
            cut_after_ops: Some(at),
            ..none
        },
        _ => FaultPlan {
            fail_write_at: Some(at),
            ..none
        },
    }
}

/// Runs a life with faults of the image disks. Returns how many checkpoints failed, and how many were completed.
fn live(core: &Core, ledger: &mut Ledger, images: &[Arc<SimDisk>], rng: &mut Rng) -> [u64; 2] {
    images[rng.usize(0..images.len())].set_plan(fault(rng));
    for _ in 0..rng.usize(2..6) {
        if core.wal().failure().is_some() || !ledger.write(core, rng) {
            break;
        }
        // A fault cancels the checkpoint or stops the database.
        let _either = core.checkpoint_now();
    }
    let stats = core.checkpoint_stats();
    [stats.cancelled, stats.completed]
}

#[test]
fn a_fault_of_one_image_disk_loses_no_acknowledged_write() {
    let [mut cancelled, mut completed] = [0, 0];
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let (data, images) = (
            SimDisk::new(seed),
            [1, 2, 3].map(|n| SimDisk::new(100 * n + seed)),
        );
        let options = with_threads([1, 2, 4, 8][rng.usize(0..4)]);
        let mut ledger = Ledger::default();
        for _ in 0..4 {
            let disks = images.iter().map(|disk| disk.life() as Arc<dyn Disk>);
            let env = env(data.life(), disks.collect());
            let core = open(env, options.clone()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            ledger.check(&core, seed);
            let [failed, done] = live(&core, &mut ledger, &images, &mut rng);
            cancelled += failed;
            completed += done;
            drop(core);
            for disk in images.iter().chain([&data]) {
                disk.crash(CrashProfile::Worst, rng.u64(..));
            }
        }
    }
    assert!(
        cancelled > 20 && completed > 100,
        "{cancelled} checkpoints were cancelled, {completed} completed"
    );
}

/// Found by `kill -9`. A server was killed while it made a database with images on other disks. Each later start made
/// another identity and refused the pages files of the first.
#[test]
fn an_interrupted_creation_with_images_on_other_disks_is_resumed() {
    let mut interrupted = 0;
    for cut in 1..40 {
        for struck in 0..3 {
            let disks = [1, 2, 3].map(|n| SimDisk::new(100 * n + cut));
            let env = |seed, order: [usize; 2]| Env {
                seed,
                ..env(
                    disks[0].life(),
                    order.map(|at| disks[at].life() as Arc<dyn Disk>).to_vec(),
                )
            };
            disks[struck].set_plan(FaultPlan {
                cut_after_ops: Some(cut),
                ..FaultPlan::default()
            });
            interrupted += usize::from(open(env(1, [1, 2]), with_threads(4)).is_err());
            for disk in &disks {
                disk.crash(CrashProfile::Worst, cut);
            }
            let is_made = disks[0].read_all("anchor").is_ok();
            let order = if is_made || cut % 2 == 0 {
                [1, 2]
            } else {
                [2, 1]
            };
            let core = open(env(2, order), with_threads(4));
            let core = core.unwrap_or_else(|e| panic!("cut {cut} of disk {struck}: {e}"));
            put(&core, "key", b"value");
            core.flush_all().expect("room");
            drop(core);
            open(env(3, order), with_threads(4)).expect("it is a database");
        }
    }
    assert!(interrupted > 30, "{interrupted} creations were interrupted");
}
