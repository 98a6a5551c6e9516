//! Tests of the hard copy: a copy on disk that a node keeps of its rings.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::{Error, Pos, StreamId};
use perdura_device::{Access, CrashProfile, Disk, FaultPlan, MemDisk, SimDisk};
use perdura_mirror::hard_copy::{Earlier, Found, FoundRing, HardCopier, earlier, list, read_back};
use perdura_mirror::{Generation, Key, Node, NodeInc, NodeOptions, Peer, Reply, Request};

use crate::setup::{UUID, append, ask, open, options, welcomed};

/// One incarnation of a node, and a client of the node.
struct Life {
    node: Mutex<Node>,
    peer: Peer,
    end: u64,
}

impl Life {
    fn new(inc: u64, ring_bytes: u64) -> Life {
        let mut node = Node::new(NodeOptions {
            inc: NodeInc(inc),
            ring_bytes,
            ..options()
        });
        let peer = welcomed(&mut node, UUID, &Key::none());
        Life {
            node: Mutex::new(node),
            peer,
            end: 0,
        }
    }

    fn ask(&mut self, request: &Request<'_>) {
        let outcome = ask(&mut self.node.lock(), &mut self.peer, request);
        let reply = Reply::decode(&outcome.reply).unwrap();
        assert!(!matches!(reply, Reply::Refused(_)), "{reply:?}");
    }

    fn open(&mut self, generation: u64, start: u64) {
        self.ask(&open(generation, 0, start));
        self.end = start;
    }

    /// Appends a block: the [`content`] of the next `len` positions, then a zero byte.
    fn append(&mut self, generation: u64, len: u64, low: u64) {
        self.ask(&append(
            generation,
            0,
            (self.end, low),
            &content(self.end, self.end + len),
        ));
        self.end += len + 1;
    }
}

/// Returns the expected bytes of the positions from `from` to `to`.
fn content(from: u64, to: u64) -> Vec<u8> {
    (from..to)
        .map(|at| (at * 7 + at / 256).to_le_bytes()[0] | 1)
        .collect()
}

fn rings(disk: &dyn Disk) -> Vec<(String, FoundRing)> {
    let found = list(disk).unwrap();
    let ring = |found: Found| (found.name, found.ring.unwrap());
    found.into_iter().map(ring).collect()
}

/// Returns the range of positions that each file holds, in the order of the file names.
fn held(disk: &dyn Disk) -> Vec<(u64, u64)> {
    rings(disk)
        .iter()
        .map(|(_, ring)| (ring.start.0, ring.end.0))
        .collect()
}

#[test]
fn what_was_appended_is_read_back_and_removed_in_whole_files() {
    const BLOCK: u64 = 1 << 20;
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let (mut copier, found) = HardCopier::new(Arc::clone(&disk)).unwrap();
    assert!(found.is_empty());
    let mut life = Life::new(5, 64 << 20);
    assert_eq!(copier.step(&life.node).unwrap(), 0);
    life.open(1, 4096);
    for number in 0..40 {
        life.append(1, BLOCK - 1, 4096);
        if number % 3 == 0 {
            copier.step(&life.node).unwrap();
        }
    }
    copier.step(&life.node).unwrap();
    let (mut at, mut files) = (4096, Vec::new());
    for (name, ring) in rings(disk.as_ref()) {
        assert_eq!(
            (ring.uuid, ring.generation, ring.stream),
            (UUID, Generation(1), StreamId(0))
        );
        assert_eq!((ring.inc, ring.low, ring.torn), (NodeInc(5), Pos(4096), 0));
        assert_eq!(ring.start, Pos(at), "{name}");
        let (_, bytes) = read_back(disk.as_ref(), &name).unwrap();
        let mut wanted = content(at, ring.end.0);
        let zeros = (at..ring.end.0)
            .zip(&mut wanted)
            .filter(|(at, _)| (at - 4096) % BLOCK == BLOCK - 1);
        zeros.for_each(|(_, byte)| *byte = 0);
        assert!(bytes == wanted, "{name}");
        at = ring.end.0;
        files.push(ring.end.0);
    }
    assert_eq!(at, life.end);
    assert!(files.len() >= 3, "{files:?}");
    assert_eq!(copier.stats().files, 3);
    assert_eq!(copier.stats().copied_bytes, 40 * BLOCK);

    // While one position of the first file is not forgotten, no file is removed. When all are forgotten, the first file
    // is removed.
    life.append(1, 10, files[0] - 1);
    copier.step(&life.node).unwrap();
    assert_eq!(held(disk.as_ref()).len(), 3);
    life.append(1, 10, files[0]);
    copier.step(&life.node).unwrap();
    assert_eq!(held(disk.as_ref())[0].0, files[0]);

    life.open(2, life.end.next_multiple_of(4096));
    life.append(2, 10, life.end);
    copier.step(&life.node).unwrap();
    assert_eq!(held(disk.as_ref()).len(), 3);
    life.ask(&Request::Retire {
        generation: Generation(2),
    });
    copier.step(&life.node).unwrap();
    let left = rings(disk.as_ref());
    assert_eq!((left.len(), left[0].1.generation), (1, Generation(2)));
    assert_eq!(copier.stats().files, 1);
}

#[test]
fn bytes_that_were_forgotten_before_they_were_copied_are_a_gap_between_files() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let (mut copier, _) = HardCopier::new(Arc::clone(&disk)).unwrap();
    let mut life = Life::new(5, 64 << 10);
    life.open(1, 0);
    life.append(1, 999, 0);
    copier.step(&life.node).unwrap();
    life.append(1, 999, 0);
    life.append(1, 999, 1500);
    copier.step(&life.node).unwrap();
    life.append(1, 499, 1500);
    copier.step(&life.node).unwrap();
    // This piece filled the first file. The file's bytes are forgotten now, so it is removed.
    assert_eq!(held(disk.as_ref()), [(1500, 3500)]);
    // The ring is emptied and begins again after its end.
    life.open(1, 8192);
    life.append(1, 99, 8192);
    copier.step(&life.node).unwrap();
    assert_eq!(held(disk.as_ref()), [(8192, 8292)]);
}

#[test]
fn another_life_of_the_node_keeps_what_the_one_before_left_until_it_is_of_no_use() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let (mut copier, _) = HardCopier::new(Arc::clone(&disk)).unwrap();
    let mut life = Life::new(5, 64 << 10);
    life.open(1, 0);
    life.append(1, 999, 0);
    copier.step(&life.node).unwrap();
    let second = HardCopier::new(Arc::clone(&disk)).err().unwrap();
    assert!(matches!(second, Error::Locked { .. }), "{second}");
    drop(copier);

    let (mut copier, found) = HardCopier::new(Arc::clone(&disk)).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].ring.as_ref().unwrap().end, Pos(1000));
    let mut life = Life::new(6, 64 << 10);
    copier.step(&life.node).unwrap();
    assert_eq!(copier.stats().files, 1);
    life.open(1, 0);
    life.append(1, 1999, 0);
    copier.step(&life.node).unwrap();
    let incs: Vec<u64> = rings(disk.as_ref())
        .iter()
        .map(|(_, ring)| ring.inc.0)
        .collect();
    assert_eq!(incs, [5, 6]);
    life.append(1, 10, 1000);
    copier.step(&life.node).unwrap();
    assert_eq!(rings(disk.as_ref())[0].1.inc, NodeInc(6));

    // A node without rings of a generation still reports to the copier that the generation is retired.
    drop(copier);
    let (mut copier, _) = HardCopier::new(Arc::clone(&disk)).unwrap();
    let mut life = Life::new(7, 64 << 10);
    life.ask(&Request::Seal {
        generation: Generation(2),
    });
    copier.step(&life.node).unwrap();
    assert_eq!(copier.stats().files, 1);
    life.ask(&Request::Retire {
        generation: Generation(2),
    });
    copier.step(&life.node).unwrap();
    assert_eq!(held(disk.as_ref()), []);
}

#[test]
fn a_power_cut_leaves_all_that_a_step_has_synced_and_a_valid_begin_of_the_rest() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let (mut copier, _) = HardCopier::new(disk.life()).unwrap();
        let mut life = Life::new(5, 1 << 20);
        life.open(1, 0);
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..rng.u64(1..6) {
            life.append(1, rng.u64(1..60_000), 0);
        }
        copier.step(&life.node).unwrap();
        let synced = life.end;
        life.append(1, 5000, 0);
        // Make an I/O of the next step fail.
        disk.set_plan(FaultPlan {
            cut_after_ops: Some(rng.u64(1..4)),
            ..FaultPlan::default()
        });
        let _ = copier.step(&life.node);
        let profiles = [
            CrashProfile::Nothing,
            CrashProfile::Worst,
            CrashProfile::Ordered,
        ];
        let at = rng.usize(..profiles.len());
        disk.crash(profiles[at], seed);
        let found = rings(disk.life().as_ref());
        let end = found.iter().map(|(_, ring)| ring.end.0).max().unwrap();
        assert!(
            end >= synced && end <= life.end,
            "seed {seed}: {end} of {synced}"
        );
        for (name, ring) in found {
            let (_, bytes) = read_back(disk.life().as_ref(), &name).unwrap();
            let differ = (ring.start.0..)
                .zip(&bytes)
                .find(|(at, byte)| **byte != 0 && **byte != content(*at, at + 1)[0]);
            assert_eq!(differ, None, "seed {seed}");
        }
    }
}

#[test]
fn files_that_are_none_or_are_cut_or_changed_are_named_and_never_trusted() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let (mut copier, _) = HardCopier::new(Arc::clone(&disk)).unwrap();
    let mut life = Life::new(5, 1 << 20);
    life.open(1, 0);
    for _ in 0..5 {
        life.append(1, 99, 0);
        copier.step(&life.node).unwrap();
    }
    let (name, whole) = rings(disk.as_ref()).remove(0);
    let file = disk.open(&name, Access::Buffered).unwrap();
    let len = file.len().unwrap();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    file.read_at(0, &mut bytes).unwrap();
    for at in 0..len {
        let spot = usize::try_from(at).unwrap();
        file.write_at(at, &[bytes[spot] ^ 0x40]).unwrap();
        let (found, _) = read_back(disk.as_ref(), &name).unwrap();
        match found.ring {
            Err(why) => assert!(at < 64, "byte {at}: {why}"),
            Ok(ring) => {
                assert!(
                    at >= 64 && ring.end < whole.end && ring.torn > 0,
                    "byte {at}"
                );
                assert!(ring.end.0 * 132 / 100 + 64 <= at, "byte {at}: {ring:?}");
            }
        }
        file.write_at(at, &bytes[spot..=spot]).unwrap();
    }
    for cut in (0..len).rev() {
        file.set_len(cut).unwrap();
        let (found, bytes) = read_back(disk.as_ref(), &name).unwrap();
        let end = cut.saturating_sub(64) / 132 * 100;
        match found.ring {
            Err(why) => assert!(cut < 64, "cut at {cut}: {why}"),
            Ok(ring) => assert_eq!(
                (ring.end.0, bytes.len()),
                (end, usize::try_from(end).unwrap())
            ),
        }
    }
    file.set_len(0).unwrap();
    file.write_at(0, &bytes).unwrap();
    disk.rename(&name, "hard-other.copy").unwrap();
    let why = list(disk.as_ref()).unwrap().remove(0).ring.unwrap_err();
    assert!(why.contains(&name), "{why}");
}

fn left(disk: &dyn Disk) -> Vec<Earlier> {
    earlier(disk, &list(disk).unwrap()).unwrap()
}

/// An earlier start of a node has left bytes on disk. The hard copy returns one contiguous run of these bytes. The run
/// begins after the last gap and ends at the first damage. Bytes that are on the writer's disk are left out.
#[test]
fn what_an_ended_start_has_left_is_one_run_of_bytes() {
    let disk = SimDisk::new(4);
    let mut life = Life::new(1, 64 << 10);
    life.open(1, 4096);
    let (mut copier, _) = HardCopier::new(disk.life()).unwrap();
    life.append(1, 999, 0);
    copier.step(&life.node).unwrap();
    life.append(1, 999, 5096);
    copier.step(&life.node).unwrap();
    drop(copier);
    let whole = left(disk.life().as_ref());
    assert_eq!(whole.len(), 1);
    let run = &whole[0];
    assert_eq!(
        (run.inc, run.low, run.state().end),
        (NodeInc(1), Pos(5096), Pos(6096))
    );
    assert_eq!(run.bytes[..999], content(5096, 6095));
    assert_eq!(run.read(Pos(5100), 10), Some(&run.bytes[4..14]));
    assert_eq!(run.read(Pos(6096), 10), Some(&[][..]));
    assert_eq!(
        (run.read(Pos(5095), 10), run.read(Pos(6097), 1)),
        (None, None)
    );

    // The ring forgets bytes before they are copied. The next file begins after them.
    let (mut copier, _) = HardCopier::new(disk.life()).unwrap();
    let mut life = Life::new(2, 64 << 10);
    life.open(1, 4096);
    life.append(1, 999, 0);
    copier.step(&life.node).unwrap();
    let files = list(disk.life().as_ref()).unwrap();
    let is_second = |found: &&Found| found.ring.as_ref().unwrap().inc == NodeInc(2);
    let name = files.iter().find(is_second).unwrap().name.clone();
    let file = disk.life().open(&name, Access::Buffered).unwrap();
    let mut before = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(0, &mut before).unwrap();
    life.append(1, 999, 0);
    life.append(1, 999, 6096);
    copier.step(&life.node).unwrap();
    drop(copier);
    let of_second = |disk: &SimDisk| {
        let all = left(disk.life().as_ref());
        all.into_iter().find(|of| of.inc == NodeInc(2)).unwrap()
    };
    let run = of_second(&disk);
    assert_eq!((run.low, run.state().end), (Pos(6096), Pos(7096)));

    // The first file exists again, as if its removal had not been durable, and it is damaged. The bytes after the gap
    // must not be joined to it.
    let life_disk = disk.life();
    let file = life_disk.create(&name, Access::Buffered).unwrap();
    file.write_at(0, &before).unwrap();
    assert_eq!(of_second(&disk), run);
    file.write_at(u64::try_from(before.len()).unwrap(), b"half a piece")
        .unwrap();
    let run = of_second(&disk);
    assert_eq!((run.low, run.state().end), (Pos(4096), Pos(5096)));
}
