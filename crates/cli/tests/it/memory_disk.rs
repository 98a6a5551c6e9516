//! SQLite on a disk in the memories of two `perdura logd` processes (`perdura_logd::MemoryDisk`).
//!
//! A second process serves the disk as a FUSE file, so that the test can kill this process together with its index. The
//! second process is this test program again, with [`serves`] as its only test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use perdura_logd::{MemoryDisk, MemoryDiskOptions, TcpNet};
use perdura_mirror::Key;
use perdura_workloads::fuse_file::{self, Cells, Errno};

use crate::mounts::{Mounted, cannot_run, command};
use crate::node_processes::World;
use crate::support::arg;

/// The number of blocks: 16 MiB.
const BLOCKS: u64 = 4096;
/// The variables that tell the serving process its nodes, its state and its mount point.
const TOLD: [&str; 4] = [
    "PERDURA_MEMORY_DISK_A",
    "PERDURA_MEMORY_DISK_B",
    "PERDURA_MEMORY_DISK_STATE",
    "PERDURA_MEMORY_DISK_AT",
];
/// The line that the serving process prints when the file is there.
const READY: &str = "the memory disk is mounted";

/// The disk that the file-serving threads share.
struct Shared(Mutex<MemoryDisk>);

impl Cells for Shared {
    fn bytes(&self) -> u64 {
        self.0.lock().unwrap().bytes()
    }

    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
        let left = self.bytes().saturating_sub(offset);
        let mut bytes = vec![0; size.min(usize::try_from(left).unwrap())];
        let read = self.0.lock().unwrap().read(offset, &mut bytes);
        read.map_err(|_| Errno::EIO)?;
        Ok(bytes)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let written = self.0.lock().unwrap().write(offset, data);
        written.map_err(|_| Errno::EIO)
    }

    fn sync(&self) -> Result<(), Errno> {
        // A write is in the nodes when it returns.
        Ok(())
    }
}

/// The serving process. It ends when the test kills it.
#[test]
#[ignore = "the process that another test starts"]
fn serves() {
    let [a, b, state, at] = TOLD.map(|name| std::env::var(name).expect("the test sets it"));
    let nodes = [a, b];
    let disk = MemoryDisk::open(&MemoryDiskOptions {
        net: Arc::new(TcpNet::new(&nodes, None).unwrap()),
        nodes,
        key: Key::none(),
        state: state.into(),
        blocks: BLOCKS,
    });
    let disk = disk.unwrap();
    println!("{} holders", disk.count());
    let _session = fuse_file::mount(&Arc::new(Shared(Mutex::new(disk))), Path::new(&at)).unwrap();
    println!("{READY}");
    loop {
        std::thread::park();
    }
}

/// A process that serves the disk. It is killed when this value is dropped.
struct Serving {
    child: Child,
    at: PathBuf,
    /// The number of nodes that held the disk after its opening.
    holders: String,
}

impl Serving {
    fn start(world: &World, at: PathBuf) -> Result<Serving, String> {
        let [a, b] = [0, 1].map(|number| world.nodes[number].address.clone());
        let state = arg(&world.dir.path().join("state")).to_owned();
        let told = [a, b, state, arg(&at).to_owned()];
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "memory_disk::serves", "--nocapture"])
            .envs(TOLD.into_iter().zip(told))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut serving = Serving {
            child,
            at,
            holders: String::new(),
        };
        for line in lines.map_while(Result::ok) {
            match line.trim() {
                READY => return Ok(serving),
                line if line.ends_with("holders") => serving.holders = line.to_owned(),
                _ => {}
            }
        }
        let mut said = String::new();
        let stderr = serving.child.stderr.take().unwrap();
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            said += &line;
        }
        Err(said)
    }

    fn file(&self) -> PathBuf {
        fuse_file::file_in(&self.at)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = command("umount", &["-l", arg(&self.at)]);
    }
}

/// Waits until a node listens.
fn await_node(address: &str) {
    let begun = Instant::now();
    while std::net::TcpStream::connect(address).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{address}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs SQL statements on the database in a directory. Returns the output.
fn sqlite(dir: &Path, sql: &str) -> String {
    let sql = format!("PRAGMA synchronous=FULL; {sql}");
    let db = dir.join("test.db");
    command("sqlite3", &["-bail", "-batch", arg(&db), &sql]).unwrap()
}

/// Inserts the rows of a range, one in each transaction.
fn insert(dir: &Path, rows: std::ops::Range<u32>) {
    let each = rows.map(|id| format!("INSERT INTO t VALUES ({id}, printf('%0900d', {id}));"));
    sqlite(dir, &each.collect::<String>());
}

/// Checks that the database is sound and has exactly the first `count` rows.
fn check(dir: &Path, count: u32) {
    let right = "SELECT count(*), max(id), sum(v = printf('%0900d', id)) FROM t;";
    let said = sqlite(dir, &format!("PRAGMA integrity_check; {right}"));
    let expected = format!("ok\n{count}|{}|{count}", count - 1);
    assert_eq!(said.trim(), expected);
}

/// Returns why this machine cannot run the test.
fn missing() -> Option<String> {
    let fuse = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    let fuse = fuse.err().map(|error| format!("/dev/fuse: {error}"));
    fuse.or_else(|| command("sqlite3", &["-version"]).err())
}

#[test]
fn sqlite_survives_its_nodes_one_by_one_and_the_server_of_its_disk() {
    if let Some(why) = missing() {
        cannot_run(
            "memory disks",
            "root, /dev/fuse, loop devices and sqlite3",
            &why,
        );
        return;
    }
    let mut world = World::with(&|_, _, address| {
        let args = ["--listen", address, "--ring", "40MiB"];
        args.map(str::to_owned).to_vec()
    });
    world
        .nodes
        .iter()
        .for_each(|node| await_node(&node.address));
    let place = |name: &str| world.dir.path().join(name);
    let [at, again, mount, remount] = ["at", "again", "mount", "remount"].map(place);
    let serving = Serving::start(&world, at).unwrap();
    assert_eq!(serving.holders, "2 holders");
    let file = serving.file();
    command("mkfs.ext4", &["-q", "-F", arg(&file)]).unwrap();
    let mounted = Mounted::new(&file, &mount).unwrap();
    sqlite(
        &mount,
        "PRAGMA journal_mode=WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);",
    );
    insert(&mount, 0..150);
    world.nodes[0].kill();
    insert(&mount, 150..300);
    // A new mount has no cache, so the rows come from the node that is left.
    mounted.unmount().unwrap();
    mounted.mount().unwrap();
    check(&mount, 300);
    insert(&mount, 300..400);

    // The server is killed with its index, and the file system is not unmounted before.
    drop(serving);
    let _ = mounted.unmount();
    world.nodes[0].again();
    await_node(&world.nodes[0].address);
    let serving = Serving::start(&world, again).unwrap();
    assert_eq!(
        serving.holders, "2 holders",
        "the node that returned is filled"
    );
    let file = serving.file();
    let mounted = Mounted::new(&file, &remount).unwrap();
    check(&remount, 400);
    world.nodes[1].kill();
    insert(&remount, 400..450);
    mounted.unmount().unwrap();
    mounted.mount().unwrap();
    check(&remount, 450);
}
