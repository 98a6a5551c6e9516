//! A database with threads. A thread drives the simulated network between the database and its nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use perdura::mirror::sim::SimNet;
use perdura::mirror::{Key, Machine, MirrorOptions, NumberedFiles, Patience, Register};
use perdura::{Db, Durability, LogIo, Nodes, Options, Rung};
use perdura_base::Epoch;
use perdura_device::{Disk, MemDisk};

use crate::faulty;
use crate::faulty_disk::Faults;
use crate::mirrored::deliver;

/// The minimum time for which the test watches a writer with a slow disk.
const WATCHED_MIN: Duration = Duration::from_millis(15);
/// The number of bytes not on disk at which a writer is slowed down.
const MUCH: u64 = 7 << 18;
/// An age in microseconds. When the oldest data that is not on disk has this age, a writer is slowed down in any case.
const OLD_US: u64 = 33_000;

/// Two nodes, a network that a thread drives, an arbiter, and a directory.
struct Moving {
    dir: tempfile::TempDir,
    net: SimNet,
    views: Arc<dyn Disk>,
    random: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    mover: Option<JoinHandle<()>>,
}

impl Moving {
    fn new() -> Moving {
        let net = SimNet::new();
        for (number, address) in (0u8..).zip(["a", "b"]) {
            net.add(address, Machine([number + 1; 16]), 32 << 20, Key::none());
        }
        let ends = Arc::new(AtomicBool::new(false));
        let mover = {
            let (net, ends) = (net.clone(), Arc::clone(&ends));
            std::thread::spawn(move || {
                while !ends.load(Ordering::SeqCst) {
                    deliver(&net);
                    std::thread::sleep(Duration::from_micros(20));
                }
            })
        };
        Moving {
            dir: tempfile::tempdir().unwrap(),
            net,
            views: Arc::new(MemDisk::new()),
            random: Arc::new(AtomicU64::new(1)),
            ends,
            mover: Some(mover),
        }
    }

    /// Returns the settings of the process that has this client number.
    fn options(&self, client: u32) -> Options {
        let (random, token) = (Arc::clone(&self.random), u64::from(client));
        let views = Arc::clone(&self.views);
        let mut mirror = MirrorOptions::new(vec![["a".into(), "b".into()]], Key::none());
        mirror.tail_bytes_max = 16 << 20;
        let mut options = Options::new(self.dir.path());
        options.durability = Durability::Mirror;
        options.nodes = Some(Nodes {
            options: mirror,
            net: self.net.client(client),
            register: Arc::new(move |uuid| {
                let files = NumberedFiles::new(Arc::clone(&views), uuid, token);
                Ok(Box::new(files) as Box<dyn Register>)
            }),
            random: Arc::new(move || random.fetch_add(1, Ordering::SeqCst)),
            patience: Patience::default(),
            pass: Arc::new(|| std::thread::sleep(Duration::from_millis(1))),
        });
        options
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        if let Some(mover) = self.mover.take() {
            let _what_it_panicked_with_was_shown = mover.join();
        }
    }
}

fn await_mirror(db: &Db) {
    while !db.is_mirrored() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_database_with_threads_commits_in_memory_and_comes_back() {
    let moving = Moving::new();
    let db = Db::open(moving.options(1)).unwrap();
    await_mirror(&db);
    let table = db.map("rows").unwrap();
    let (mut ahead, mut last) = (0, Epoch(0));
    for round in 0..300_u32 {
        table.put(round.to_be_bytes(), [7; 100]).unwrap();
        let reached = db.reached();
        ahead += u32::from(reached.at(Rung::Mirror) > reached.at(Rung::Disk));
        assert!(reached.at(Rung::Mirror) >= last);
        last = reached.at(Rung::Mirror);
    }
    assert!(ahead > 200, "acknowledged before the disk: {ahead} of 300");
    let told = db.take_views();
    assert!(
        told.iter().any(|line| line.contains("mirror(a, b)")),
        "{told:?}"
    );
    drop(table);
    db.abandon();
    let db = Db::open(moving.options(2)).unwrap();
    let table = db.map("rows").unwrap();
    for round in 0..300_u32 {
        assert_eq!(
            table.get(round.to_be_bytes()).unwrap().as_deref(),
            Some(&[7; 100][..])
        );
    }
    drop(table);
    db.close().unwrap();
    let mut alone = moving.options(3);
    alone.nodes = None;
    drop(Db::open(alone).expect("a clean end needs no nodes"));
}

/// There was a bug: a writer faster than the disk was slowed down only by the age of the unwritten data. When the
/// writer slowed down, 4 to 8 MiB were not on disk, and the disk needed up to 100 ms to write them.
#[test]
fn what_the_disk_lacks_slows_a_writer_down_before_it_is_old() {
    let moving = Moving::new();
    let faults = Faults::new(1, 0);
    let mut options = moving.options(1);
    options.log_io = LogIo::Sync;
    let db = faulty::open(&options, &faults).unwrap();
    await_mirror(&db);
    let table = db.map("rows").unwrap();
    let (mut random, mut watched) = (fastrand::Rng::with_seed(1), Duration::ZERO);
    for round in 0..200_u8 {
        if watched >= WATCHED_MIN {
            break;
        }
        while db.stats().log.unsynced_bytes > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        faults.delay_writes(Duration::from_millis(100));
        let (mut large, lag_us) = (0_u8, || db.stats().log.durable_lag_us);
        while db.stats().log.unsynced_bytes < MUCH && lag_us() < OLD_US {
            // Random bytes, so that the value is no shorter in the log than in memory.
            let value: Vec<u8> = (0..100_000).map(|_| random.u8(..)).collect();
            table.put([large], value).unwrap();
            large += 1;
        }
        let (begun, mut commits) = (Instant::now(), 0);
        while (1..OLD_US).contains(&lag_us()) {
            table.put(b"small", [round, commits]).unwrap();
            commits += 1;
        }
        let took = begun.elapsed();
        assert!(
            u128::from(commits) <= took.as_millis() + 3,
            "{commits} commits in {took:?}, one a millisecond may be"
        );
        watched += took;
        faults.delay_writes(Duration::ZERO);
    }
    assert!(
        watched >= WATCHED_MIN,
        "{MUCH} bytes are old when they are there"
    );
    drop(table);
    db.close().unwrap();
}
