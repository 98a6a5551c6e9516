//! Fuzzing of the functions that read views and hard copies. They read files of arbitrary bytes.

use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;
use perdura_base::Epoch;
use perdura_base::checksum::crc32c;
use perdura_device::{Access, Disk, MemDisk};
use perdura_mirror::hard_copy::{HardCopier, list};
use perdura_mirror::{Key, Machine, Member, Mode, Node, NodeInc, View};

use super::{Run, array, number, view};
use crate::setup::{self, UUID, append, ask, open, welcomed};

#[test]
fn views_of_any_bytes() {
    let (mut run, mut rng) = Run::new("view");
    let mut whole = 0;
    while run.next() {
        let member = |rng: &mut Rng| Member {
            inc: NodeInc(number(rng)),
            machine: Machine(array(rng)),
            address: "a".repeat(rng.usize(1..256)),
        };
        let groups: Vec<Mode> = (0..rng.usize(1..4))
            .map(|at| match rng.u8(..3) {
                0 => Mode::Disk,
                1 => Mode::Solo(member(&mut rng)),
                _ => {
                    let (mut one, mut two) = (member(&mut rng), member(&mut rng));
                    (one.inc, two.inc) = (NodeInc(u64::try_from(at).unwrap()), NodeInc(u64::MAX));
                    Mode::Mirror(Box::new([one, two]))
                }
            })
            .collect();
        let homes = (0..rng.usize(1..4)).map(|_| rng.u8(..1)).collect();
        let written = View {
            homes,
            hard: Epoch(number(&mut rng)),
            ..view(groups)
        };
        let mut bytes = written.encode();
        assert_eq!(View::decode(&bytes).as_ref(), Ok(&written));
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..bytes.len());
            match rng.u8(..4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, rng.u8(..)),
                _ => bytes[at] = rng.u8(..),
            }
            if bytes.len() < 5 {
                break;
            }
        }
        if let Some(at) = bytes.len().checked_sub(4).filter(|_| rng.u8(..8) > 0) {
            let crc = crc32c(&bytes[..at]).to_le_bytes();
            bytes[at..].copy_from_slice(&crc);
        }
        if let Ok(read) = View::decode(&bytes) {
            assert_eq!(read.encode(), bytes, "what is read is written as it was");
            whole += 1;
        }
    }
    assert!(whole > run.inputs / 50, "{whole}");
}

#[test]
fn hard_copies_of_any_bytes() {
    let (mut run, mut rng) = Run::new("hard copy");
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let node = Mutex::new(Node::new(setup::options()));
    {
        let node = &mut node.lock();
        let mut peer = welcomed(node, UUID, &Key::none());
        ask(node, &mut peer, &open(1, 0, 4096));
    }
    let (mut copier, _) = HardCopier::new(Arc::clone(&disk)).unwrap();
    for piece in 0..20_u64 {
        {
            let node = &mut node.lock();
            let mut peer = welcomed(node, UUID, &Key::none());
            ask(
                node,
                &mut peer,
                &append(1, 0, (4096 + piece * 101, 0), &[7; 100]),
            );
        }
        copier.step(&node).unwrap();
    }
    drop(copier);
    let name = list(disk.as_ref()).unwrap()[0].name.clone();
    let file = disk.open(&name, Access::Buffered).unwrap();
    let mut original = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(0, &mut original).unwrap();
    let (mut whole, mut torn, mut none) = (0, 0, 0);
    while run.next() {
        let mut bytes = original.clone();
        for _ in 0..rng.usize(..3) {
            let at = rng.usize(..bytes.len());
            match rng.u8(..4) {
                0 => bytes.truncate(at + 1),
                1 => bytes.insert(at, rng.u8(..)),
                _ => bytes[at] = rng.u8(..),
            }
        }
        if rng.u8(..8) == 0 && bytes.len() >= 64 {
            let crc = crc32c(&bytes[..60]).to_le_bytes();
            bytes[60..64].copy_from_slice(&crc);
        }
        file.set_len(0).unwrap();
        file.write_at(0, &bytes).unwrap();
        let found = &list(disk.as_ref()).unwrap()[0];
        match &found.ring {
            Ok(ring) => {
                let held = ring.end.0 - ring.start.0;
                assert!(held <= 20 * 101 && held + ring.torn <= found.bytes);
                if ring.torn == 0 {
                    whole += 1
                } else {
                    torn += 1
                }
            }
            Err(why) => {
                assert!(!why.is_empty());
                none += 1;
            }
        }
    }
    assert!(whole.min(torn).min(none) > 0, "{whole}, {torn}, {none}");
}
