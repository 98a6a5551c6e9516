//! Tests of the memory disk with nodes in this process.

use std::net::SocketAddr;

use super::*;
use crate::{Logd, LogdOptions, TcpNet};

const BLOCKS: u64 = 16;

fn node(ring_bytes: u64) -> Logd {
    let options = LogdOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        ring_bytes,
        ..LogdOptions::default()
    };
    Logd::start(options).unwrap()
}

fn options(nodes: [&Logd; 2], state: &Path) -> MemoryDiskOptions {
    let nodes = nodes.map(|node| node.addresses()[0].to_string());
    MemoryDiskOptions {
        net: Arc::new(TcpNet::new(&nodes, None).unwrap()),
        nodes,
        key: Key::none(),
        state: state.to_owned(),
        blocks: BLOCKS,
    }
}

/// The bytes that a disk must have, and random writes to both.
struct Model {
    bytes: Vec<u8>,
    random: fastrand::Rng,
}

impl Model {
    fn new(seed: u64) -> Model {
        Model {
            bytes: vec![0; to_usize(BLOCKS) * MEMORY_BLOCK_BYTES],
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn write(&mut self, disk: &mut MemoryDisk, count: usize) {
        for _ in 0..count {
            let at = self.random.usize(..self.bytes.len());
            let len = self.random.usize(1..=(self.bytes.len() - at).min(10_000));
            let new: Vec<u8> = (0..len).map(|_| self.random.u8(..)).collect();
            disk.write(to_u64(at), &new).unwrap();
            self.bytes[at..at + len].copy_from_slice(&new);
        }
    }

    fn check(&self, disk: &mut MemoryDisk) {
        let mut bytes = vec![1; self.bytes.len()];
        disk.read(0, &mut bytes).unwrap();
        assert!(bytes == self.bytes, "the disk has what was written");
    }
}

#[test]
fn blocks_are_overwritten_many_times_around_the_ring() {
    let nodes = [(); 2].map(|()| node(ring_bytes_for(BLOCKS)));
    let dir = tempfile::tempdir().unwrap();
    let mut disk = MemoryDisk::open(&options([&nodes[0], &nodes[1]], dir.path())).unwrap();
    let mut model = Model::new(1);
    model.check(&mut disk);
    for _ in 0..10 {
        model.write(&mut disk, 40);
        model.check(&mut disk);
    }
    let most = ring_bytes_for(BLOCKS);
    assert!(
        disk.end.0 > 3 * most,
        "the ring went around: {}",
        disk.end.0
    );
    for node in &nodes {
        let held = node.stats().node.bytes;
        assert!(held > 0 && held <= most, "{held} of {most}");
    }
}

#[test]
fn a_new_server_finds_every_block_and_fences_the_old_one() {
    let nodes = [(); 2].map(|()| node(ring_bytes_for(BLOCKS)));
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut old = MemoryDisk::open(&options([&nodes[0], &nodes[1]], dirs[0].path())).unwrap();
    let mut model = Model::new(2);
    model.write(&mut old, 100);
    let again = MemoryDisk::open(&options([&nodes[0], &nodes[1]], dirs[0].path()));
    assert!(again.is_err_and(|why| why.to_string().contains("another process serves")));
    // The new server has only a copy of the state, so it does not find the lock of the old server.
    std::fs::copy(dirs[0].path().join("state"), dirs[1].path().join("state")).unwrap();
    let mut new = MemoryDisk::open(&options([&nodes[0], &nodes[1]], dirs[1].path())).unwrap();
    model.check(&mut new);
    assert!(old.write(0, &[7]).is_err(), "the old server is replaced");
    model.write(&mut new, 50);
    model.check(&mut new);
    assert_eq!(nodes[0].stats().node.rings, 1, "older rings are retired");
}

#[test]
fn one_node_may_end_and_both_may_not() {
    let [first, second] = [(); 2].map(|()| node(ring_bytes_for(BLOCKS)));
    let dir = tempfile::tempdir().unwrap();
    let settings = options([&first, &second], dir.path());
    let mut disk = MemoryDisk::open(&settings).unwrap();
    let mut model = Model::new(3);
    model.write(&mut disk, 30);
    assert_eq!(disk.count(), 2);
    first.stop();
    // A whole block is written without a read before, so the append is what fails.
    disk.write(0, &[9; MEMORY_BLOCK_BYTES]).unwrap();
    model.bytes[..MEMORY_BLOCK_BYTES].fill(9);
    assert_eq!(disk.count(), 1);
    let holders = disk.file.read().unwrap().map(|state| state.holders);
    assert_eq!(
        holders,
        Some([false, true]),
        "no later server reads the first node"
    );
    model.write(&mut disk, 30);
    model.check(&mut disk);
    drop(disk);
    let mut disk = MemoryDisk::open(&settings).unwrap();
    model.check(&mut disk);
    second.stop();
    assert!(disk.write(0, &[1]).is_err(), "nobody holds it");
    drop(disk);
    let why = MemoryDisk::open(&settings).err().unwrap().to_string();
    assert!(why.contains("still has its records"), "{why}");
}

#[test]
fn a_node_that_missed_writes_is_not_read_later() {
    let [first, second] = [(); 2].map(|()| node(ring_bytes_for(BLOCKS)));
    let dir = tempfile::tempdir().unwrap();
    let settings = options([&first, &second], dir.path());
    let mut disk = MemoryDisk::open(&settings).unwrap();
    disk.write(0, &[1]).unwrap();
    // The first node keeps its ring, but this server does not reach it any more.
    disk.holders[0] = None;
    disk.write_state().unwrap();
    disk.write(0, &[2]).unwrap();
    drop(disk);
    second.stop();
    let why = MemoryDisk::open(&settings).err().unwrap().to_string();
    assert!(why.contains("still has its records"), "{why}");
}

#[test]
fn input_that_does_not_fit_is_refused() {
    let nodes = [(); 2].map(|()| node(ring_bytes_for(BLOCKS)));
    let dir = tempfile::tempdir().unwrap();
    let settings = options([&nodes[0], &nodes[1]], dir.path());
    let mut disk = MemoryDisk::open(&settings).unwrap();
    let end = disk.bytes();
    assert!(disk.write(end, &[1]).is_err() && disk.write(u64::MAX, &[1]).is_err());
    assert!(disk.read(end - 1, &mut [0, 0]).is_err());
    drop(disk);
    let larger = MemoryDiskOptions {
        blocks: BLOCKS + 1,
        ..settings
    };
    let why = MemoryDisk::open(&larger).err().unwrap().to_string();
    assert!(why.contains("has 16 blocks, not 17"), "{why}");
    let other = tempfile::tempdir().unwrap();
    let small = MemoryDiskOptions {
        blocks: 2 * BLOCKS,
        state: other.path().to_owned(),
        ..larger
    };
    let why = MemoryDisk::open(&small).err().unwrap().to_string();
    assert!(why.contains("--ring"), "{why}");
}

#[test]
fn a_changed_byte_of_state_or_record_is_noticed() {
    let state = State {
        holders: [true, false],
        uuid: perdura_base::Uuid([3; 16]),
        claim: 5,
        rings: 4,
        blocks: 9,
    };
    let bytes = state.encode();
    assert_eq!(State::decode(&bytes), Ok(state));
    let record = record(7, &[9; MEMORY_BLOCK_BYTES]);
    assert_eq!(parse(&record), Some((7, &[9; MEMORY_BLOCK_BYTES][..])));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(State::decode(&changed).is_err(), "byte {at} of the state");
    }
    for at in (0..16).chain([16, 4000, RECORD_BYTES - 1]) {
        let mut changed = record.clone();
        changed[at] ^= 1;
        assert_eq!(parse(&changed), None, "byte {at} of the record");
    }
    assert_eq!(parse(&record[..RECORD_BYTES - 1]), None);
    assert!(State::decode(&bytes[..3]).is_err());
}
