//! Tests of fuzzy sweeps. Transactions run between the visits of a sweep. Each run has several rounds of sweep, crash,
//! and restart from the last complete image. Each restarted heap is compared with the heap before the crash.

use std::collections::BTreeMap;

use perdura_base::{CkptEpoch, ImageSlot, PartitionId};
use perdura_heap::{GroupBuilder, Heap, TableKey, Undo, Visit, decode_group};

use crate::harness::*;

const P: PartitionId = PartitionId(0);

/// A complete image: epoch, slot, and the pages listed in the directory.
struct Image {
    k: CkptEpoch,
    slot: ImageSlot,
    directory: Vec<u32>,
}

struct World {
    rng: fastrand::Rng,
    heap: Heap,
    log: Vec<Vec<u8>>,
    slots: [BTreeMap<u32, Vec<u8>>; 2],
    image: Option<Image>,
    k: u64,
}

impl World {
    fn transaction(&mut self) {
        let (mut undo, mut group) = (Undo::new(), GroupBuilder::new());
        let mut part = self.heap.lock(P);
        for _ in 0..self.rng.usize(1..4) {
            let key = [self.rng.u8(..12)];
            let hash = self.heap.geometry().hash(&key);
            if self.rng.u8(..4) == 0 {
                part.delete(&mut undo, PLAIN, &key, hash);
            } else {
                let bytes = [20, 150, 900, 4000, 9000, 40_000][self.rng.usize(..6)];
                let value = vec![self.rng.u8(..); bytes];
                part.put(&mut undo, TableKey::new(PLAIN, &key, hash), &value, None)
                    .expect("room");
            }
        }
        if self.rng.u8(..5) == 0 {
            part.rollback(&undo);
        } else {
            part.encode(&undo, &mut group);
            self.log
                .extend(Some(group.finish().to_vec()).filter(|g| !g.is_empty()));
        }
    }

    fn transactions(&mut self, up_to: usize) {
        for _ in 0..self.rng.usize(..=up_to) {
            self.transaction();
        }
    }

    /// Makes a sweep. Sometimes stops in the middle, as a crash would.
    fn sweep(&mut self) {
        self.k += 1;
        let k = CkptEpoch(self.k);
        let slot = self
            .image
            .as_ref()
            .map_or(ImageSlot::A, |image| image.slot.other());
        self.heap.set_ckpt_epoch(k);
        let mut directory = Vec::new();
        let pages = self.heap.lock(P).pages();
        for local in 0..pages {
            match self.heap.lock(P).visit(local, slot, k) {
                Visit::Born | Visit::Untouched => (),
                Visit::Clean => directory.push(local),
                Visit::Dirty(bytes) => {
                    directory.push(local);
                    self.slots[slot.index()].insert(local, bytes.to_vec());
                }
            }
            self.transactions(2);
            if self.rng.u8(..60) == 0 {
                return;
            }
        }
        self.image = Some(Image { k, slot, directory });
    }

    /// Returns a heap restarted from the last image and the log.
    fn restart(&mut self) -> Option<Heap> {
        let heap = bare_heap(1);
        let k = self.image.as_ref().map_or(CkptEpoch(0), |image| image.k);
        let slot = self.image.as_ref().map(|image| image.slot);
        heap.set_ckpt_epoch(CkptEpoch(self.k));
        let mut part = heap.lock(P);
        if let Some(image) = &self.image {
            for local in &image.directory {
                part.load_page(*local, self.slots[image.slot.index()].get(local)?);
            }
        }
        let groups: Vec<_> = self
            .log
            .iter()
            .map(|g| decode_group(g).expect("a group"))
            .collect();
        let mut records: Vec<_> = groups
            .iter()
            .flat_map(|g| g.records())
            .filter(|r| r.tag >= k)
            .collect();
        self.rng.shuffle(&mut records);
        for record in &records {
            part.apply(record).expect("a page of this partition");
        }
        if !part.useq_gaps().is_empty() {
            return None;
        }
        part.finish_restart(k, slot);
        part.build_indexes(&ordered, None).ok()?;
        part.attach_table(PLAIN, false);
        drop(part);
        Some(heap)
    }
}

/// Returns whether every restart gives the heap as it was before the restart.
fn holds(seed: u64) -> bool {
    let mut world = World {
        rng: fastrand::Rng::with_seed(seed),
        heap: new_heap(1),
        log: Vec::new(),
        slots: [BTreeMap::new(), BTreeMap::new()],
        image: None,
        k: 1,
    };
    for _ in 0..8 {
        world.transactions(12);
        world.sweep();
        world.transactions(6);
        let Some(restarted) = world.restart() else {
            return false;
        };
        if logged_bytes(&restarted) != logged_bytes(&world.heap) {
            return false;
        }
        assert_eq!(contents(&restarted), contents(&world.heap));
        if world.rng.bool() {
            world.heap = restarted;
        }
    }
    true
}

#[test]
fn every_restart_from_every_image_gives_the_heap_as_it_was() {
    for seed in 0..150 {
        assert!(holds(seed), "seed {seed}");
    }
}

#[cfg(feature = "flaws")]
#[test]
fn seeded_flaws_are_caught() {
    use perdura_base::flaw::{Flaw, arm};
    for flaw in [
        Flaw::BornPagesSwept,
        Flaw::OtherImageTrusted,
        Flaw::RestartChangesClean,
        Flaw::TagFromClock,
    ] {
        arm(Some(flaw));
        let caught = (0..200).any(|seed| !holds(seed));
        arm(None);
        assert!(caught, "{flaw:?}");
    }
}
