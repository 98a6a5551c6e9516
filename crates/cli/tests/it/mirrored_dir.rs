//! A writer with a lagging disk, and two nodes that also copy the log to a directory. After the writer and both nodes
//! have failed, a start must recover the data that the nodes had copied.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura::mirror::{Key, MirrorOptions, NumberedFiles, Patience, Register};
use perdura::{Core, CoreOptions, Disks, Env, Error, Nodes, Progress, Rung};
use perdura_base::Epoch;
use perdura_device::{Clock, CrashProfile, Disk, MemDisk, SimDisk, SystemClock};
use perdura_logd::TcpNet;
use perdura_mirror::hard_copy::list;

use crate::node_processes::{World, plain};

const PATIENCE: Duration = Duration::from_secs(20);

/// A writer in this process, on a simulated disk. A power cut leaves only synced data on this disk.
struct Writer {
    world: World,
    disk: Arc<SimDisk>,
    views: Arc<dyn Disk>,
    clock: Arc<SystemClock>,
}

impl Writer {
    fn new() -> Writer {
        let world = World::with(&|number, dir: &Path, address| {
            let copies = dir.join(format!("copies-{number}"));
            let mut args = plain(number, dir, address);
            args.extend(["--dir".to_owned(), copies.display().to_string()]);
            args
        });
        Writer {
            world,
            disk: SimDisk::new(5),
            views: Arc::new(MemDisk::new()),
            clock: Arc::new(SystemClock::new()),
        }
    }

    fn open(&self, accept_loss: bool) -> Result<Core, Error> {
        let addresses = [0, 1].map(|number: usize| self.world.nodes[number].address.clone());
        let net = TcpNet::new(&addresses, None).unwrap();
        let views = Arc::clone(&self.views);
        let nodes = Nodes {
            options: MirrorOptions {
                tail_bytes_max: 4 << 20,
                one_machine: true,
                // The timeout is long because the test's cores are busy.
                suspect_ns: 5_000_000_000,
                ..MirrorOptions::new(vec![addresses], Key::none())
            },
            net: Arc::new(net),
            register: Arc::new(move |uuid| {
                Ok(Box::new(NumberedFiles::new(Arc::clone(&views), uuid, 1)) as Box<dyn Register>)
            }),
            random: Arc::new(|| fastrand::u64(..)),
            patience: Patience::default(),
            pass: Arc::new(|| std::thread::sleep(Duration::from_micros(200))),
        };
        let env = Env {
            disks: Disks::on_one(self.disk.life(), 2),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            seed: 7,
            nodes: Some(nodes),
            accept_loss,
        };
        let options = CoreOptions {
            partitions: 4,
            segment_bytes: 1 << 20,
            ..CoreOptions::default()
        };
        Core::open(env, options, Arc::new(Progress::default()))
    }

    fn settle(&self, core: &Core, holds: impl Fn(&Core) -> bool) {
        let nodes = core.nodes().unwrap();
        let begun = Instant::now();
        while !holds(core) {
            assert!(begun.elapsed() < PATIENCE, "{:?}", nodes.status(0));
            nodes.pump(self.clock.mono_ns());
            nodes.manage(self.clock.mono_ns()).unwrap();
        }
    }

    /// Writes rows that reach the nodes but not the disk. Returns the epoch of the last row.
    fn put(&self, core: &Core, keys: std::ops::Range<u32>) -> Epoch {
        let mut last = Epoch(0);
        for key in keys {
            let key = format!("k{key}");
            let parts = [core.partition_of(key.as_bytes())].into_iter().collect();
            let put = |tx: &mut perdura::Tx<'_>| {
                tx.put(core.database(0), key.as_bytes(), &[7; 2000], None)
            };
            last = core.transact(&parts, put).unwrap().1.epoch;
            core.ship().unwrap();
            self.settle(core, |core| core.wal().durable(Rung::Mirror) >= last);
        }
        last
    }

    /// Returns the total size, in bytes, of the copies that a node has of all streams.
    fn copied(&self, number: usize) -> u64 {
        let path = self.world.dir.path().join(format!("copies-{number}"));
        let found = list(&perdura_device::FileDisk::at(&path)).unwrap();
        let ends = found.iter().filter_map(|found| found.ring.as_ref().ok());
        ends.map(|ring| ring.end.0 - ring.start.0).sum()
    }

    /// Waits until the copies of the two nodes stop growing.
    fn let_copy(&self) {
        let mut before = [u64::MAX; 2];
        loop {
            let now = [0, 1].map(|number| self.copied(number));
            if now == before && now.iter().all(|bytes| *bytes > 0) {
                return;
            }
            before = now;
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

fn has(core: &Core, key: u32) -> bool {
    let key = format!("k{key}");
    let parts = [core.partition_of(key.as_bytes())].into_iter().collect();
    let (found, _) = core
        .transact(&parts, |tx| {
            Ok::<bool, Error>(tx.get(core.database(0), key.as_bytes())?.is_some())
        })
        .unwrap();
    found
}

#[test]
fn what_both_nodes_copied_comes_back_when_all_three_were_killed() {
    let mut writer = Writer::new();
    let core = writer.open(false).unwrap();
    writer.settle(&core, |core| core.nodes().unwrap().is_mirrored());
    let on_disk = core.wal().durable(Rung::Disk);
    let kept = writer.put(&core, 0..200);
    writer.let_copy();
    // The nodes are killed shortly after these writes, so they have copied only some of them.
    let last = writer.put(&core, 200..260);
    assert_eq!(
        core.wal().durable(Rung::Disk),
        on_disk,
        "the disk lags behind"
    );
    for node in &mut writer.world.nodes {
        node.kill();
    }
    drop(core);
    writer.disk.crash(CrashProfile::Nothing, 1);
    writer
        .world
        .nodes
        .iter_mut()
        .for_each(crate::node_processes::Node::again);

    let why = writer.open(false).err().expect("it is refused").to_string();
    assert!(
        why.contains("it was restarted and its memory is empty")
            && why.contains("hard copies (--dir)"),
        "{why}"
    );
    let core = writer.open(true).expect("the loss is accepted");
    let told = core.report().notes.join("\n");
    assert!(told.contains("came from nodes"), "{told}");
    for key in 0..200 {
        assert!(has(&core, key), "k{key} was copied: {told}");
    }
    let there = (200..260).take_while(|key| has(&core, *key)).count();
    assert!(
        (200..260).skip(there).all(|key| !has(&core, key)),
        "a prefix"
    );
    let anchor = core.anchor().get();
    let losses: Vec<_> = anchor.losses.iter().collect();
    let [loss] = losses[..] else {
        panic!("{losses:?}");
    };
    assert!(kept <= loss.durable && loss.durable <= last, "{loss:?}");
    assert!(
        told.contains(&format!("is kept up to epoch {}", loss.durable)),
        "{told}"
    );

    // This life uses the nodes again, and the next start must find its data.
    writer.settle(&core, |core| core.nodes().unwrap().is_mirrored());
    writer.put(&core, 300..310);
    core.flush_all().unwrap();
    drop(core);
    writer.disk.crash(CrashProfile::Nothing, 2);
    let core = writer.open(false).unwrap();
    assert!(has(&core, 309) && has(&core, 199));
}

/// The writer and both nodes fail, and one node's copy is lost. The other node's copy is enough to recover everything
/// up to the end of that copy.
#[test]
fn the_copy_of_one_node_is_enough_and_a_torn_end_of_it_does_not_count() {
    let mut writer = Writer::new();
    let core = writer.open(false).unwrap();
    writer.settle(&core, |core| core.nodes().unwrap().is_mirrored());
    for keys in [0..50, 50..100] {
        writer.put(&core, keys);
        writer.let_copy();
    }
    for node in &mut writer.world.nodes {
        node.kill();
    }
    drop(core);
    writer.disk.crash(CrashProfile::Nothing, 1);
    let copies = |number: usize| writer.world.dir.path().join(format!("copies-{number}"));
    std::fs::remove_dir_all(copies(0)).unwrap();
    // The test removes the last byte of each file of the other node's copy, so its last piece is torn.
    for entry in std::fs::read_dir(copies(1)).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().ends_with(".copy") {
            let file = std::fs::File::options()
                .write(true)
                .open(entry.path())
                .unwrap();
            let len = file.metadata().unwrap().len();
            file.set_len(len - 1).unwrap();
        }
    }
    writer
        .world
        .nodes
        .iter_mut()
        .for_each(crate::node_processes::Node::again);
    let core = writer.open(true).expect("the loss is accepted");
    let told = core.report().notes.join("\n");
    let there = (0..100).take_while(|key| has(&core, *key)).count();
    assert!((50..100).contains(&there), "{there}: {told}");
    assert!((0..100).skip(there).all(|key| !has(&core, key)), "a prefix");
}
