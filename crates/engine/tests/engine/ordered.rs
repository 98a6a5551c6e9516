//! The replay of ordered frames in a restart that had to choose its image a second time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perdura::catalog::CatalogRows;
use perdura_base::{CkptEpoch, PartitionId, PartitionSet, Result, StreamId};
use perdura_device::{CrashProfile, SimDisk};
use perdura_formats::ordered::encode_head;
use perdura_heap::{Heap, MemoryAccount};
use perdura_recovery::{
    Catalog, Family, Method, OrderedFrame, OrderedPlayer, Progress, RestartOptions, restart,
};
use perdura_wal::{FrameKind, Origin};

use crate::core_steps::{env, open, pages_of, small, two_images};

/// A player that counts its calls. When the play begins, the player stores the number of rows in the heap.
#[derive(Debug, Default)]
struct Counts {
    begun: AtomicU64,
    rows: AtomicU64,
    played: AtomicU64,
    finished: AtomicU64,
}

impl OrderedPlayer for Counts {
    fn begin(&self, heap: &Arc<Heap>, catalog: &Catalog, _: CkptEpoch) -> Result<()> {
        let ids = (0..heap.geometry().partitions).map(PartitionId);
        let of_table = |table| ids.clone().map(|id| heap.lock(id).len(table)).sum::<u64>();
        let rows = catalog.keys().map(|table| of_table(*table)).sum();
        self.rows.store(rows, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn play(&self, _: &OrderedFrame<'_>, _: &Origin) -> Result<()> {
        self.played.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        self.finished.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_restart_that_plans_its_image_again_plays_ordered_frames_once_with_the_last_one() {
    let disk = SimDisk::new(6);
    two_images(&disk);
    disk.crash(CrashProfile::Nothing, 6);
    let core = open(&disk, 1);
    core.anchor().declare(core.wal(), Family::Effects).unwrap();
    for number in 1..=50 {
        let mut payload = Vec::new();
        encode_head(&mut payload, &[(PartitionId(1), number)], false);
        let none = PartitionSet::empty();
        core.wal().append(
            StreamId(0),
            FrameKind::Effects,
            &payload,
            &none,
            CkptEpoch(0),
        );
    }
    core.flush_all().unwrap();
    drop(core);
    disk.crash(CrashProfile::Nothing, 7);
    let (path, len) = pages_of(&disk, "image-b");
    for at in (4096..len).step_by(1000) {
        disk.flip(&path, at, 1);
    }
    let env = env(&disk, 1);
    let counts = Arc::new(Counts::default());
    let options = RestartOptions {
        life: perdura_base::LifeId(0),
        disks: env.disks,
        clock: env.clock,
        schedule: small().schedule,
        methods: Method::of(perdura_wal::Scheme::Differential).into(),
        tree: perdura_recovery::tree::TreeMeans::default(),
        ordered: Some(Arc::clone(&counts) as Arc<dyn OrderedPlayer>),
        archived: None,
        mode: perdura_recovery::RestartMode::Dry,
        tail: Default::default(),
        memory: Arc::new(MemoryAccount::new(u64::MAX)),
        catalog: Arc::new(CatalogRows::default()),
        progress: Arc::new(Progress::default()),
    };
    let restarted = restart(&options).unwrap().unwrap();
    assert!(restarted.report.pages_rebuilt > 0);
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    assert_eq!((of(&counts.begun), of(&counts.finished)), (1, 1));
    assert_eq!(of(&counts.played), 50);
    assert!(of(&counts.rows) >= 200, "catalog and indexes were there");
    assert_eq!(restarted.heap.lock(PartitionId(1)).pseq(), 50);
}
